# $shim: the library that lets ibv_rereg_mr reach the kernel; $rereg, $fencing: the programs; $expect: what the kernel can do.
set -eu
# A path in LD_PRELOAD ends at a blank.
cp "$shim" /tmp/shim.so
case $expect in
    pd-access) way=in-place ;;
    none) way=anew ;;
esac

LD_PRELOAD=/tmp/shim.so "$rereg" --expect "$expect"
# It cannot pass for want of the shim, nor fencing for taking the other way.
if "$rereg" --expect "$expect" >/tmp/rereg 2>&1; then
    cat /tmp/rereg
    echo "rereg passes without the shim"
    exit 1
fi
if "$fencing" --device verbs --way in-place >/tmp/fencing 2>&1; then
    cat /tmp/fencing
    echo "rdma-core's provider re-registers in place"
    exit 1
fi

echo "== fencing through the shim: $way"
LD_PRELOAD=/tmp/shim.so "$fencing" --device verbs --way $way
echo "== fencing without it: anew"
"$fencing" --device verbs --way anew
