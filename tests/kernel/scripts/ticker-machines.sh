# ticker ($ours) on two machines: the venue on the first, traders on the second. The second trader joins late; then the
# link loses everything for three seconds.
serve() {
    "$ours" "$@" >"/tmp/$1" 2>&1 &
}

# Prints the last line of a trader, which must have all ticks and be connected.
check() {
    wait "$1"
    status=$?
    tail -n 1 "$2"
    [ $status = 0 ] && tail -n 1 "$2" | grep -q "^live: .* skipped, 0 missing; .* 0 refused" || { cat "$2"; exit 1; }
}

trade() {
    exec "$ours" trader --local 10.97.0.2 --feed 10.97.0.1:7300 --exchange 10.97.0.1:7400 --seconds "$1"
}

if [ "$CMID_MACHINE" = 1 ]; then
    serve feed --listen 10.97.0.1:7300 --rate 50 --seconds 60
    serve exchange --listen 10.97.0.1:7400 --seconds 60
    wait
    tail -n 2 /tmp/feed /tmp/exchange
    exit 0
fi
# The venue may not listen yet.
tries=0
until "$ours" trader --local 10.97.0.2 --feed 10.97.0.1:7300 --exchange 10.97.0.1:7400 --seconds 2 >/tmp/first 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] || { cat /tmp/first; exit 1; }
    sleep 1
done
(trade 20 >/tmp/early 2>&1) &
early=$!
sleep 3
(trade 17 >/tmp/late 2>&1) &
late=$!
sleep 4
tc qdisc add dev eth0 root netem loss 100%
sleep 3
tc qdisc del dev eth0 root
check $early /tmp/early
check $late /tmp/late
grep -q "^not live" /tmp/early || { echo "the lost link was not noticed"; cat /tmp/early; exit 1; }
tail -n 1 /tmp/late | grep -q ", 0 skipped" && { echo "the late joiner has skipped nothing"; exit 1; }
echo "both traders have all ticks"
