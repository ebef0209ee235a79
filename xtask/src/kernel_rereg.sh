# $shim: the library that lets ibv_rereg_mr reach the kernel; $rereg, $fencing: the programs; $expect: what the kernel can do.
set -eu
# A path in LD_PRELOAD ends at a blank.
cp "$shim" /tmp/shim.so
case $expect in
    pd-access) way=in-place ;;
    none) way=anew ;;
esac

LD_PRELOAD=/tmp/shim.so "$rereg" --expect "$expect"

# A command fails, and for this reason: it says so.
fails_with() {
    reason=$1
    shift
    if "$@" >/tmp/said 2>&1; then
        cat /tmp/said
        echo "$* passes, where it should say: $reason"
        exit 1
    fi
    if ! grep -qF "$reason" /tmp/said; then
        cat /tmp/said
        echo "$* fails, but not with: $reason"
        exit 1
    fi
}

# rereg cannot pass for want of the shim, nor fencing for taking the other way: rdma-core's provider cannot re-register.
fails_with "the shim is not there" "$rereg" --expect "$expect"
fails_with "it went Anew, not InPlace" "$fencing" --device verbs --way in-place

echo "== fencing through the shim: $way"
LD_PRELOAD=/tmp/shim.so "$fencing" --device verbs --way $way
echo "== fencing without it: anew"
"$fencing" --device verbs --way anew
