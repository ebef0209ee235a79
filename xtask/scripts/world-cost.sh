#!/bin/sh
# Fails if a world of replog takes more instructions than the limit: the mean of ten seeds with three replicas, in the build of
# the tests. Takes the path of the target directory.
set -eu
export CARGO_TARGET_DIR="$1"
limit=11900000

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
cargo test --package replog --test seeds --no-run --message-format=json >"$results/build"
program=$(sed -n 's,.*"executable":"\([^"]*/seeds-[^"]*\)".*,\1,p' "$results/build")
CMID_SEED=0..10 valgrind --tool=callgrind --callgrind-out-file="$results/calls" --log-file="$results/log" \
    "$program" --exact three_replicas_keep_their_promises
total=$(sed -n 's/.*Collected : //p' "$results/log")
echo "a world of replog takes $((total / 10)) instructions; the limit is $limit"
[ $((total / 10)) -le $limit ]
