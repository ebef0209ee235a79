# $shim: the library that passes ibv_rereg_mr to the kernel; $rereg, $fencing: the programs; $expect: what the kernel
# supports; $CMID_BACKEND: the backend of cmid-verbs.
set -eu
# LD_PRELOAD separates paths at blanks.
cp "$shim" /tmp/shim.so
case $expect in
    pd-access) way=in-place ;;
    none) way=anew ;;
esac

LD_PRELOAD=/tmp/shim.so "$rereg" --expect "$expect"

# Checks that a command fails with this message.
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

# Without the shim, rereg must fail, and fencing must use the other way: rdma-core's provider cannot re-register.
fails_with "the shim is not there" "$rereg" --expect "$expect"
fails_with "re-registered Anew, not InPlace" "$fencing" --device verbs --backend "$CMID_BACKEND" --way in-place

echo "== fencing through the shim: $way"
LD_PRELOAD=/tmp/shim.so "$fencing" --device verbs --backend "$CMID_BACKEND" --way $way
echo "== fencing without it: anew"
"$fencing" --device verbs --backend "$CMID_BACKEND" --way anew
