# Run after bare.sh in the bare Debian 13, in the workspace: builds the tests of the core, of the simulator and of the bindings for aarch64 with the release's own compiler and
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
cargo test --ignore-rust-version --package cmid-proto --package cmid-sim --all-features --lib --tests --target aarch64-unknown-linux-gnu
# The bindings of cmid-verbs, which the compiler for this architecture compares with rdma-core's headers. These are unpacked, not
# installed: other scripts build without them.
(cd /tmp && apt-get -q download libibverbs-dev librdmacm-dev && for package in *-dev_*.deb; do dpkg -x "$package" /tmp/rdma-core; done)
export CC=aarch64-linux-gnu-gcc CPATH=/tmp/rdma-core/usr/include
cargo test --ignore-rust-version --package cmid-verbs --features headers --test layout --target aarch64-unknown-linux-gnu
