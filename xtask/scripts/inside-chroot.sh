# inside-chroot.sh ROOT APT TARGET DIRECTORY SHARED... -- COMMAND...: runs the command in the system at ROOT, in DIRECTORY. By chroot.sh.
# It is the first process of a mount and a PID namespace of its own, so all its mounts end with it, however it ends.
# APT: a folder with files for apt's configuration. SHARED: directories of the host, at the same paths.
root=$1
apt=$2
target=$3
directory=$4
shift 4

# A bind mount needs an existing target.
share() {
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
}
share /dev
share /sys
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# After /tmp, because they may be below it.
while [ "$1" != -- ]; do
    share "$1"
    shift
done
shift
share "$target"

# The command uses the host's configuration of the network.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ -f "$file" ] || continue
    mkdir -p "$root${file%/*}"
    [ -e "$root$file" ] || : >"$root$file"
    mount --bind "$file" "$root$file"
done
mount --bind "$apt/sources.list" "$root/etc/apt/sources.list"
mount --bind "$apt/options" "$root/etc/apt/apt.conf.d/90host"

# shellcheck disable=SC2016
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$directory" "$@"
