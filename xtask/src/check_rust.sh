# Run after bare.sh in the bare Debian 13, in the workspace: what README.md names, and xtask, compiles with the release's own compiler.
programs=
for folder in examples/*/ programs/*/ verbs/check/ trace/replay/; do
    programs="$programs --package $(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)"
done
# shellcheck disable=SC2086
cargo check --locked --package cmid-tokio --package cmid-verbs --package xtask $programs
# The program that the host has built for its VMs starts here too, with this release's libraries of rdma-core.
program=$CARGO_TARGET_DIR/../release/cmid-check
"$program" --device sim --pings 1 --connections 1 >/dev/null
for backend in kernel librdmacm; do
    status=0
    said=$("$program" --device verbs --backend $backend 2>&1) || status=$?
    echo "$said"
    # There is no device, so it could check nothing.
    [ "$status" = 2 ]
    case $said in *"cannot be loaded"*) exit 1 ;; esac
done
