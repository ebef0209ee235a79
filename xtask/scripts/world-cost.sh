#!/bin/sh
# In the build of the tests: fails if a world of replog takes more instructions than the limit, the mean of ten seeds with three
# replicas, or if a connection takes more where there are ten times as many. Makes a million. Takes the path of the target directory.
set -eu
export CARGO_TARGET_DIR="$1"
# With it each error captures a backtrace.
unset RUST_BACKTRACE
# An incremental build of them takes 5 % more than one that is not.
limit=9100000

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
# built PACKAGE TEST: the path of a test.
built() {
    cargo test --package "$1" --test "$2" --no-run --message-format=json >"$results/build"
    sed -n "s,.*\"executable\":\"\([^\"]*/$2-[^\"]*\)\".*,\1,p" "$results/build"
}
# count COMMAND...: its instructions.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$results/calls" --log-file="$results/log" "$@" >"$results/said" || { cat "$results/said"; return 1; } >&2
    sed -n 's/.*Collected : //p' "$results/log"
}

seeds=$(built replog seeds)
world=$(($(CMID_SEED=0..10 count "$seeds" --exact three_replicas_keep_their_promises) / 10))
# No test of that name would cost little.
grep " 1 passed" "$results/said"
echo "a world of replog takes $world instructions; the limit is $limit"
[ $world -le $limit ]

many=$(built cmid-sim many)
few=$(($(CMID_CONNECTIONS=2000 count "$many") / 2000))
more=$(($(CMID_CONNECTIONS=20000 count "$many") / 20000))
echo "a connection takes $few instructions where there are 2,000, and $more where there are 20,000"
[ $((more * 10)) -le $((few * 11)) ]
CMID_CONNECTIONS=1000000 timeout 120 "$many"
