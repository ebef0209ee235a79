# Run after bare.sh in the bare Debian 13, in the workspace, with the release's own compiler: the demonstrations run. Then the tests of the
# product crates, of which a dependency states a newer version of Rust, and builds.
# There are no headers of rdma-core, so the bindings are those of cmid-verbs, and of its tests those run that compare nothing with the headers.
cargo xtask --help
cargo xtask demo
# The tests of the workspace need a newer one. It is said at once.
if cargo xtask test >/tmp/refused 2>&1; then echo "the tests are not refused" >&2; exit 1; fi
cat /tmp/refused
grep -q "Rust [0-9.]* or newer for the tests" /tmp/refused

features=cmid-verbs/rdma-core
packages="--package cmid-proto --package cmid-sim --package cmid-trace"
for driver in cmid-mio cmid-epoll cmid-blocking; do
    features="$features,$driver/sim,$driver/trace,$driver/tracing,$driver/verbs"
    packages="$packages --package $driver"
done
# shellcheck disable=SC2086
cargo test --ignore-rust-version --no-default-features --features "$features" $packages --package cmid-verbs --lib
# shellcheck disable=SC2086
cargo test --ignore-rust-version --no-default-features --features "$features" $packages --tests
