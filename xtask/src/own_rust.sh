# Run after bare.sh in the bare Debian 13, in the workspace: builds the product crates with the release's own compiler, and runs their
# tests. Without headers of rdma-core, so with the bindings of cmid-verbs; of its tests those run that compare nothing with the headers.
# A dependency of the tests states a newer version of Rust, and builds.
features=cmid-verbs/prebuilt
packages="--package cmid-proto --package cmid-sim --package cmid-trace"
for driver in cmid-mio cmid-epoll cmid-blocking; do
    features="$features,$driver/sim,$driver/trace,$driver/tracing,$driver/verbs-prebuilt"
    packages="$packages --package $driver"
done
# shellcheck disable=SC2086
cargo test --ignore-rust-version --no-default-features --features "$features" $packages --package cmid-verbs --lib
# shellcheck disable=SC2086
cargo test --ignore-rust-version --no-default-features --features "$features" $packages --tests
