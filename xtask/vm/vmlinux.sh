#!/bin/sh
# vmlinux.sh IMAGE TO: writes the ELF kernel inside a boot image of x86 Linux. QEMU starts that by its PVH entry, so the guest does
# not have to unpack it under emulation. The layout is that of the kernel's Documentation/arch/x86/boot.rst. Run by `sh -eu`.
image=$1 to=$2
fail() { echo "$image: $1" >&2; exit 1; }
number() { od -A n -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }

[ "$(dd "if=$image" bs=1 skip=514 count=4 2>/dev/null)" = HdrS ] || fail "no boot image of x86 Linux"
[ "$(number 518 2)" -ge 520 ] || fail "the boot protocol is older than 2.08"
# The boot sector counts too; 0 means 4 for historical reasons.
sectors=$(number 497 1)
[ "$sectors" != 0 ] || sectors=4
begin=$(((sectors + 1) * 512 + $(number 584 4)))
length=$(number 588 4)
# The kernel's build appends the unpacked size to xz and zstd.
case $(od -A n -t x1 -j $begin -N 4 "$image" | tr -d ' ') in
1f8b08*) unpack=gzip ;;
fd377a58) unpack=xz length=$((length - 4)) ;;
28b52ffd) unpack=zstd length=$((length - 4)) ;;
*) fail "the kernel is packed in an unknown format" ;;
esac
tail -c +$((begin + 1)) "$image" | head -c $length >"$to.packed"
$unpack -d -c <"$to.packed" >"$to"
rm "$to.packed"
[ "$(head -c 4 "$to" | od -A n -t x1 | tr -d ' ')" = 7f454c46 ] || fail "its payload is no ELF kernel"
