# Run after bare.sh in the bare Debian 13, in the workspace: builds the core's tests for aarch64 with the release's own compiler and
# standard library, and runs them under qemu's emulation of the processor. Documentation's examples are not run: cargo builds them for the
# host only.
dpkg --add-architecture arm64
apt-get -q update
apt-get -q install --yes --no-install-recommends libstd-rust-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
# Emulation is slow, so the compiler optimizes; overflow and debug assertions are still checked.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
# As the minimum Rust version is that of the product: a dependency of the tests states a newer one, and builds.
cargo test --ignore-rust-version --package cmid-proto --all-features --lib --tests --target aarch64-unknown-linux-gnu
