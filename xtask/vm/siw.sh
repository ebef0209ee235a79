# Builds siw (soft-iWARP), which Debian's kernels leave out, as siw.ko in the current directory. Run by `sh -eu` with
# the kernel's release and series; the kernel's headers are installed.
release=$1 series=$2
# The source's version must be that of the kernel.
version=$(dpkg-query --show --showformat '${Version}' "linux-headers-$release")
apt-get -q -o Acquire::Retries=2 download "linux-source-$series=$version" >/dev/null
dpkg-deb --fsys-tarfile linux-source-*.deb | tar --extract --to-stdout "./usr/src/linux-source-$series.tar.xz" |
    tar --extract --xz --strip-components=5 --wildcards 'linux-source-*/drivers/infiniband/sw/siw/*'
rm linux-source-*.deb
make -C "/usr/src/linux-headers-$release" "M=$PWD" CONFIG_RDMA_SIW=m modules >/dev/null
strip --strip-debug siw.ko
