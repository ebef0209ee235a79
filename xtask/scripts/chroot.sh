#!/bin/sh
# chroot.sh NAME RELEASE CACHE APT TARGET WORKSPACE DIRECTORY COMMAND...: runs the command as root, in DIRECTORY, in the system NAME of
# the folder CACHE, which debootstrap makes of a release of Debian if it is not there, with WORKSPACE and this user's Rust. TARGET is
# cargo's target directory, APT an empty folder.
set -eu
here=$(dirname "$0")
name=$1 release=$2 cache=$3 apt=$4 target=$5 workspace=$6 directory=$7
shift 7
root=$cache/$name
case $release in '' | *[!a-z]*) echo "$release is no code name of a release" >&2 && exit 1 ;; esac
[ "$(id -u)" = 0 ] || { echo "a chroot needs root" >&2 && exit 1; }

# How the host's apt reaches the packages, and how old they may be.
apt-config dump | grep -E '^Acquire::(http|Check-|Retries)' >"$apt/options" || true
known=$(apt-get indextargets --format '$(REPO_URI)')
# The address of a repository: that of the host's apt, if it has one.
mirror() {
    found=$(echo "$known" | grep -m 1 "/$1/*\$") || found=http://deb.debian.org/$1/
    echo "$found"
}
# Without security updates its kernel would be outdated.
for suite in "$release" "$release-updates"; do echo "deb $(mirror debian) $suite main"; done >"$apt/sources.list"
echo "deb $(mirror debian-security) $release-security main" >>"$apt/sources.list"

exec 9>"$cache/$name.lock"
flock 9
if [ ! -e "$root" ]; then
    echo "installing Debian $release into $root" >&2
    rm -rf "$root.unfinished"
    # debootstrap does not read apt's configuration.
    proxy=${http_proxy-$(sed -n 's/^Acquire::http::Proxy "\(.*\)";$/\1/p' "$apt/options")}
    # What rustc needs to link. The programme installs all other packages.
    include=ca-certificates,gcc,libc6-dev
    env "http_proxy=$proxy" debootstrap --variant=minbase --include=$include "$release" "$root.unfinished" "$(mirror debian)" >&2
    # Both are copied from the host at each run.
    for file in sources.list apt.conf.d/90host; do : >"$root.unfinished/etc/apt/$file"; done
    # The last step makes the complete system visible.
    mv "$root.unfinished" "$root"
fi
flock -u 9
exec 9>&-

mkdir -p "$target"
# The chroot uses rustup's Rust, with its directories at the same paths.
cargo=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
rustup=$(realpath "${RUSTUP_HOME:-$HOME/.rustup}")
# Variables with paths of the host's own system.
unset LIBCLANG_PATH BINDGEN_EXTRA_CLANG_ARGS LD_LIBRARY_PATH TMPDIR XDG_CACHE_HOME
# The release's own programs, and the host's cargo. What `cargo install` makes is linked with the release's own libc, so the host's
# cargo must not find it.
inside=$(cat "$here/inside-chroot.sh")
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$cargo/bin"
export CARGO_TARGET_DIR="$target" CMID_CACHE=/var/cache/cmid CARGO_INSTALL_ROOT=/usr/local
# If the process that runs this script is killed, the first process of the PID namespace is killed, and with it all others.
exec setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child sh -euc "$inside" inside-chroot.sh \
    "$root" "$apt" "$target" "$directory" "$workspace" "$cargo" "$rustup" -- "$@"
