# Run after bare.sh in the bare Debian 13, in the workspace: builds sim/browser as WebAssembly, puts it into a copy of docs/browser.html,
# and opens that in headless Chromium. What the page shows is what the same program prints natively.
apt-get -q install --yes --no-install-recommends libstd-rust-dev-wasm32 lld chromium-headless-shell
CARGO_TARGET_WASM32_WASIP1_LINKER=wasm-ld CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_OPT_LEVEL=s \
    cargo build --release --package cmid-browser --target wasm32-wasip1
base64 "$CARGO_TARGET_DIR/wasm32-wasip1/release/cmid-browser.wasm" >/tmp/module
page=$CARGO_TARGET_DIR/browser.html
sed '/<script id="module"/r /tmp/module' docs/browser.html >"$page"

cargo build --package cmid-browser
natively() {
    "$CARGO_TARGET_DIR/debug/cmid-browser" "$@"
}
# show MILLISECONDS ADDRESS: the page after so much virtual time.
show() {
    timeout 120 chromium-headless-shell --no-sandbox --disable-gpu "--virtual-time-budget=$1" --dump-dom "file://$2" 2>/tmp/complaints ||
        { cat /tmp/complaints; return 1; } >&2
}
# The texts of a chart, a line each. The first three are the names of the hosts; each row has two.
texts() {
    grep -o '>[^<>]*</text>' "$1"
}
# charted FILE COMMAND...: the texts of what it prints, in /tmp/FILE.
charted() {
    file=$1
    shift
    "$@" >/tmp/dom
    texts /tmp/dom >"/tmp/$file"
}

echo "a world with faults, to its end"
faults=PowerLoss:server:3000000000,Pause:alice:9000000000,Loss:bob:12000000000
charted native natively 7 $(echo "$faults" | tr , ' ')
charted shown show 60000 "$page#seed=7&speed=60&faults=$faults"
diff /tmp/native /tmp/shown
[ "$(wc -l </tmp/shown)" -gt 500 ]

echo "the chart grows"
charted shown show 5000 "$page#seed=7&speed=20&faults=$faults"
lines=$(wc -l </tmp/shown)
[ "$lines" -gt 100 ] && [ "$lines" -lt 300 ]
head -n "$lines" /tmp/native | diff - /tmp/shown

echo "a click crashes the server, and the page says how to repeat it"
{
    cat "$page"
    echo "<script>setTimeout(() => document.querySelector('[data-strike=\"Crash:server\"]').click(), 3000)</script>"
} >/tmp/clicked.html
charted shown show 60000 "/tmp/clicked.html#seed=8&speed=60"
grep "fault: crash of server" /tmp/shown
[ "$(grep -A 1000 "fault: crash of server" /tmp/shown | grep -c "is connected")" = 2 ]
arguments=$(sed -n 's,.*id="command">cargo run -p cmid-browser -- \([^<]*\)</code>.*,\1,p' /tmp/dom)
charted native natively $arguments
diff /tmp/native /tmp/shown

echo "what is wrong is said"
show 10000 "$page#seed=-1" >/tmp/dom
grep 'id="failure">"-1" is no seed<' /tmp/dom
echo "the page: $page"
