# Run after bare.sh in the bare Debian 13, in the workspace: what README.md names, and xtask, compiles with the release's own compiler.
programs=
for folder in examples/*/ programs/*/ verbs/check/ trace/replay/; do
    programs="$programs --package $(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)"
done
# shellcheck disable=SC2086
cargo check --locked --package cmid-tokio --package cmid-verbs --package xtask $programs
