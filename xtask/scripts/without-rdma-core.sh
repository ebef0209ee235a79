#!/bin/sh
# The argument: the target directory. Runs cmid-check of the release build, with the feature `verbs`, on a system that has only the
# libraries that it is linked with: it starts, and names the library of rdma-core that is missing.
set -eu
program=$1/release/cmid-check
libraries=$(ldd "$program" | grep -o '/[^ ]*')
if echo "$libraries" | grep -E 'libibverbs|librdmacm'; then
    echo "$program is linked with rdma-core" >&2
    exit 1
fi
root=$(mktemp -d)
trap 'rm -r "$root"' EXIT
# shellcheck disable=SC2086
cp --parents --dereference $libraries "$root"
cp "$program" "$root/program"
start() {
    unshare --map-root-user --root="$root" /program "$@"
}
start --device sim --pings 1 --connections 1 >/dev/null
for backend in kernel librdmacm; do
    status=0
    start --device verbs --backend $backend 2>"$root/said" || status=$?
    cat "$root/said"
    # It could check nothing.
    [ "$status" = 2 ]
    grep -q 'libibverbs.so.1 cannot be loaded' "$root/said"
done
