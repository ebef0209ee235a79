# Run first in the bare system: installs the release's own Rust, and the libraries of rdma-core without their headers.
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install --yes --no-install-recommends cargo rustc libibverbs1 librdmacm1
[ "$(command -v rustc)" = /usr/bin/rustc ] || { echo "this rustc is not the release's" >&2; exit 1; }
rustc --version
