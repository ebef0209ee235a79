#!/bin/sh
# Packages the product crates as `cargo publish` does, and builds the packages outside of the workspace: the examples of
# README.md and of the packages' own README.md files as programs, which run on the simulated fabric. Run it in the
# workspace. Takes the path of the target directory, and options for `cargo publish`.
set -eu
target=$1
shift
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT

# Uploads nothing. cargo also builds each package, with its default features.
CARGO_TARGET_DIR=$target cargo publish --workspace --dry-run --allow-dirty "$@"

# The same packages as files.
products="cmid-blocking cmid-epoll cmid-mio cmid-proto cmid-sim cmid-trace cmid-verbs"
rm -f "$target"/package/*.crate
# shellcheck disable=SC2046
CARGO_TARGET_DIR=$target cargo package --no-verify --allow-dirty $(printf -- '--package %s ' $products)

mkdir -p "$outside/packages" "$outside/user/src/bin"
for crate in $products; do
    tar -xzf "$target/package/$crate"-*.crate -C "$outside/packages"
done

# Prints the Rust code of a Markdown file.
code() {
    sed -n '/^```rust/,/^```$/{/^```/!p}' "$1"
}

# A program of each README. The name of a crate is that of its folder without the version.
cd "$outside"
code "$OLDPWD/README.md" >user/src/bin/workspace.rs
for folder in packages/cmid-*; do
    name=$(basename "$folder" | sed 's/-[0-9].*//')
    for file in README.md LICENSE-MIT LICENSE-APACHE; do
        [ -s "$folder/$file" ] || { echo "$name: the package has no $file"; exit 1; }
    done
    printf '%s = { path = "../%s" }\n' "$name" "$folder" >>patch
    if [ "$name" = cmid-verbs ]; then
        # It needs a device, so it is only compiled.
        code "$folder/README.md" >user/src/lib.rs
    else
        code "$folder/README.md" >"user/src/bin/$name.rs"
    fi
done

{
    cat <<'MANIFEST'
[package]
name = "user"
edition = "2024"

[features]
verbs-prebuilt = ["cmid-blocking/verbs-prebuilt", "cmid-epoll/verbs-prebuilt", "cmid-mio/verbs-prebuilt", "dep:cmid-verbs"]

[dependencies]
cmid-blocking = "0.1"
cmid-epoll = "0.1"
cmid-mio = "0.1"
cmid-proto = { version = "0.1", features = ["std"] }
cmid-sim = "0.1"
cmid-trace = "0.1"
cmid-verbs = { version = "0.1", default-features = false, features = ["prebuilt"], optional = true }
mio = { version = "1", features = ["os-ext", "os-poll"] }
rustix = { version = "1", features = ["event"] }

[patch.crates-io]
MANIFEST
    cat patch
} >user/Cargo.toml
mv user/src/lib.rs user/verbs.rs
{
    echo '#![cfg(feature = "verbs-prebuilt")]'
    # The functions of the example are not called.
    echo '#![allow(dead_code)]'
    cat user/verbs.rs
} >user/src/lib.rs

cd user
export CARGO_TARGET_DIR="$target/packages-outside"
cargo build
for program in src/bin/*.rs; do
    program=$(basename "$program" .rs)
    echo "$program"
    timeout 300 "$CARGO_TARGET_DIR/debug/$program"
done
cargo build --features verbs-prebuilt
timeout 300 "$CARGO_TARGET_DIR/debug/workspace"
echo "the packages build and run outside of the workspace"
