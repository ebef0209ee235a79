#!/bin/sh
# Packages the product crates as `cargo publish` does, and builds the packages outside of the workspace: the examples of
# README.md and of the packages' own README.md files as programs, which run on the simulated fabric. Run it in the
# workspace. Takes the path of the target directory, and options for `cargo publish`.
set -eu
target=$1
shift
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT

# Uploads nothing. cargo also builds each package, with its default features; in a folder of its own, because it takes what
# an earlier run has built and unpacked of the same version for this one's.
rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/*/*/cmid-*
CARGO_TARGET_DIR=$outside/target cargo publish --workspace --dry-run --allow-dirty "$@"

# The same packages as files.
products="cmid-blocking cmid-epoll cmid-io-common cmid-mio cmid-proto cmid-sim cmid-tokio cmid-trace cmid-verbs"
rm -f "$target"/package/*.crate
# shellcheck disable=SC2046
CARGO_TARGET_DIR=$target cargo package --no-verify --allow-dirty $(printf -- '--package %s ' $products)

# The packages are where the lines of dependencies in the README.md files have a checkout; each such file is a program beside it.
mkdir "$outside/cmid"
for crate in $products; do
    tar -xzf "$target/package/$crate"-*.crate -C "$outside"
    folder=${crate#cmid-}
    case $folder in mio | epoll | blocking | tokio) folder=io-$folder ;; esac
    mv "$outside/$crate"-* "$outside/cmid/$folder"
    for file in README.md LICENSE-MIT LICENSE-APACHE; do
        [ -s "$outside/cmid/$folder/$file" ] || { echo "$crate: the package has no $file"; exit 1; }
    done
    printf '%s.path = "cmid/%s"\n' "$crate" "$folder" >>"$outside/patch"
done

# Prints the first code of a Markdown file in a language.
code() {
    sed -n "/^\`\`\`$1/,/^\`\`\`$/{/^\`\`\`$/q;/^\`\`\`/!p}" "$2"
}

# A program of a Markdown file, with its lines of dependencies. That of cmid-verbs needs a device, so it is only compiled.
program() {
    mkdir -p "$outside/$1/src"
    { printf '[package]\nname = "%s"\nedition = "2024"\n\n' "$1" && code toml "$2"; } >"$outside/$1/Cargo.toml"
    code rust "$2" >"$outside/$1/src/$3.rs"
}
program workspace README.md main
cd "$outside"
for folder in cmid/*/; do
    folder=$(basename "$folder")
    # Applications do not use io-common themselves, and the page of cmid-sim has a part of a program.
    case $folder in io-common | sim) continue ;; esac
    kind=main
    [ "$folder" != verbs ] || kind=lib
    program "readme-$folder" "cmid/$folder/README.md" "$kind"
done
{ printf '[workspace]\nresolver = "3"\nmembers = ["workspace", "readme-*"]\nexclude = ["cmid"]\n\n[patch.crates-io]\n' && cat patch; } >Cargo.toml

export CARGO_TARGET_DIR="$target/packages-outside"
cargo build
for program in workspace readme-*; do
    [ "$program" != readme-verbs ] || continue
    echo "$program"
    timeout 300 "$CARGO_TARGET_DIR/debug/$program"
done
echo "the packages build and run outside of the workspace"
