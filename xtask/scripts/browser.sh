#!/bin/sh
# Builds sim/browser as WebAssembly, puts it into a copy of docs/browser.html, and opens that in headless Chromium. What the page
# shows is what the same program prints natively. Takes the path of the target directory.
set -eu
export CARGO_TARGET_DIR="$1"
CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_OPT_LEVEL=s \
    cargo build --release --package cmid-browser --target wasm32-wasip1
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
base64 "$CARGO_TARGET_DIR/wasm32-wasip1/release/cmid-browser.wasm" >"$temporary"/module
page=$CARGO_TARGET_DIR/browser.html
sed "/<script id=\"module\"/r $temporary/module" docs/browser.html >"$page"

cargo build --package cmid-browser
natively() {
    "$CARGO_TARGET_DIR/debug/cmid-browser" "$@"
}
# show MILLISECONDS ADDRESS: the page after so much virtual time.
show() {
    timeout 120 chromium-headless-shell --no-sandbox --disable-gpu "--virtual-time-budget=$1" --dump-dom "file://$2" 2>"$temporary"/complaints ||
        { cat "$temporary"/complaints; return 1; } >&2
}
# The texts of a chart, a line each. The first three are the names of the hosts; each row has two.
texts() {
    grep -o '>[^<>]*</text>' "$1"
}
# charted FILE COMMAND...: the texts of what it prints, in "$temporary"/FILE.
charted() {
    file=$1
    shift
    "$@" >"$temporary"/dom
    texts "$temporary"/dom >"$temporary/$file"
}

echo "a world with faults, to its end"
faults=PowerLoss:server:3000000000,Pause:alice:9000000000,Loss:bob:12000000000
charted native natively 7 $(echo "$faults" | tr , ' ')
charted shown show 60000 "$page#seed=7&speed=60&faults=$faults"
diff "$temporary"/native "$temporary"/shown
[ "$(wc -l <"$temporary"/shown)" -gt 500 ]

echo "the chart grows"
charted shown show 5000 "$page#seed=7&speed=20&faults=$faults"
lines=$(wc -l <"$temporary"/shown)
[ "$lines" -gt 100 ]
[ "$lines" -lt 300 ]
head -n "$lines" "$temporary"/native | diff - "$temporary"/shown

echo "a click crashes the server, and the page says how to repeat it"
{
    cat "$page"
    echo "<script>setTimeout(() => document.querySelector('[data-strike=\"Crash:server\"]').click(), 3000)</script>"
} >"$temporary"/clicked.html
charted shown show 60000 "$temporary/clicked.html#seed=8&speed=60"
grep "fault: crash of server" "$temporary"/shown
[ "$(grep -A 1000 "fault: crash of server" "$temporary"/shown | grep -c "is connected")" = 2 ]
arguments=$(sed -n 's,.*id="command">cargo run -p cmid-browser -- \([^<]*\)</code>.*,\1,p' "$temporary"/dom)
charted native natively $arguments
diff "$temporary"/native "$temporary"/shown

echo "what is wrong is said"
show 10000 "$page#seed=-1" >"$temporary"/dom
grep 'id="failure">"-1" is no seed<' "$temporary"/dom
echo "the page: $page"
