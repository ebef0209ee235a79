#!/bin/sh
# Makes the Debian package cmid-tools: the programs rping and cmtime as cmid-rping and cmid-cmtime, cmid-check, cmid-replay, and
# their manual pages, which help2man makes from the text of clap. Then unpacks it, runs each program and formats each page. Run
# it in the workspace. Takes the path of the target directory, and the folder of the programs if they are built. Needs
# dpkg-dev, help2man, gzip and man-db.
set -eu
target=$1
programs=${2:-}
if [ -z "$programs" ]; then
    CARGO_TARGET_DIR=$target cargo build --release -p rping -p cmtime -p cmid-check -p cmid-replay \
        --features rping/verbs,cmtime/verbs,cmid-check/verbs
    programs=$target/release
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
# There is no public address.
maintainer="The authors of cmid <cmid@localhost>"

# dpkg-shlibdeps reads debian/control in its working directory.
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
root=$top/root
doc=$root/usr/share/doc/cmid-tools
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/man/man1" "$doc" "$top/debian"
printf 'Source: cmid\nPackage: cmid-tools\n' >"$top/debian/control"

add() {
    install -m 755 -s "$programs/$1" "$root/usr/bin/$2"
    help2man --no-info --section 1 --version-string "$version" --name "$3" --source "cmid $version" \
        --output "$root/usr/share/man/man1/$2.1" "$root/usr/bin/$2"
    gzip -9n "$root/usr/share/man/man1/$2.1"
}
# rdma-core has programs of the first two names.
add rping cmid-rping "ping-pong over RDMA read and write"
add cmtime cmid-cmtime "measures the phases of many RDMA connections"
add cmid-check cmid-check "checks and measures the RDMA devices of a machine"
add cmid-replay cmid-replay "replays recordings of cmid drivers"

{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
    sed -n 's/^Copyright (c) /Copyright: /p' LICENSE-MIT
    printf 'License: MIT or Apache-2.0\n\nLicense: MIT\n'
    # The paragraphs after the line of the copyright, in the form of a field.
    sed '1,/^Copyright/d' LICENSE-MIT | sed '1{/^$/d}' | sed 's/^$/./; s/^/ /'
    printf '\nLicense: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$doc/copyright"
gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
printf 'cmid (%s) unstable; urgency=medium\n\n  * CHANGELOG.md.gz lists the changes.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -R -r CHANGELOG.md)" | gzip -9n >"$doc/changelog.gz"
# The programs load rdma-core's libraries themselves, so dpkg-shlibdeps does not find those.
(cd "$top" && dpkg-shlibdeps -O root/usr/bin/*) >"$top/libraries"
depends=$(sed -n 's/^shlibs:Depends=//p' "$top/libraries")
cat >"$root/DEBIAN/control" <<CONTROL
Package: cmid-tools
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Depends: $depends, libibverbs1, librdmacm1
Recommends: ibverbs-providers
Section: net
Priority: optional
Description: programs for RDMA connection management
 A ping over RDMA that interoperates with the rping of rdma-core, a
 measurement of the phases of many connections, a check of the RDMA
 devices of a machine, and a replay of recorded drivers.
CONTROL
chmod -R go=rX "$root"
package=$target/cmid-tools_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package"
dpkg-deb --info "$package"

# What a user gets.
installed=$top/installed
dpkg-deb --extract "$package" "$installed"
fail() {
    echo "$1" >&2
    exit 1
}
for program in cmid-rping cmid-cmtime cmid-check cmid-replay; do
    "$installed/usr/bin/$program" --help >"$top/help"
    page=$installed/usr/share/man/man1/$program.1.gz
    # groff reports each request that it does not know and each line that it cannot break.
    LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings --local-file "$page" >"$top/page" 2>"$top/warnings"
    grep -qF "cmid $version" "$top/page" || fail "$program.1 does not name the version $version"
    [ ! -s "$top/warnings" ] || fail "$program.1: $(cat "$top/warnings")"
    # Each option of the help is on the page.
    grep -oE -- '^ +(-[A-Za-z], )?--[a-z-]+' "$top/help" | grep -oE -- '--[a-z-]+' >"$top/options"
    while read -r option; do
        grep -qF -- "$option" "$top/page" || fail "$program.1 does not name $option"
    done <"$top/options"
    echo "$program: $(wc -l <"$top/options") options, a page of $(wc -l <"$top/page") lines"
done
