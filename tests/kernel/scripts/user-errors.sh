# Errors of users of replog ($replog) and ticker ($ticker) on real devices: each ends the program with one line that says
# what to do.
failed=

# check STATUS EXPECTED: the program that has written /tmp/output and /tmp/errors.
check() {
    if [ "$1" = 1 ] && [ "$(wc -l </tmp/errors)" = 1 ] && grep -qF "$2" /tmp/errors; then
        cat /tmp/errors
    else
        echo "not \"$2\" in one line, but status $1:"
        cat /tmp/output /tmp/errors
        failed=yes
    fi
}

errors() {
    expected=$1
    shift
    timeout 120 "$@" >/tmp/output 2>/tmp/errors
    check $? "$expected"
}

own="--id 0 --client 10.99.0.1:7600 --folder /tmp/replog"
echo "--- wrong addresses"
errors "give --id the number of this replica" "$replog" serve $own --replica 192.0.2.1:7500
errors "select an address from" "$replog" serve $own --replica 172.16.0.1:7500
errors "select one of \`ip address\`" \
    "$replog" serve --id 0 --client 192.0.2.1:7600 --folder /tmp/replog --replica 10.99.0.1:7500
errors "choose one that" "$ticker" exchange --listen 192.0.2.1:7400
errors "choose one that" "$ticker" feed --listen 172.16.0.1:7300

echo "--- ports in use"
"$replog" serve --id 0 --client 10.99.0.1:7601 --folder /tmp/other --replica 10.99.0.1:7500 >/dev/null &
replica=$!
"$ticker" exchange --listen 10.99.0.1:7400 >/dev/null &
exchange=$!
sleep 3
errors "10.99.0.1:7500 is in use: stop the other program" "$replog" serve $own --replica 10.99.0.1:7500
errors "10.99.0.1:7601 is in use: stop the other program" \
    "$replog" serve --id 0 --client 10.99.0.1:7601 --folder /tmp/replog --replica 10.99.0.1:7501
errors "/tmp/other is in use: stop the other replica" \
    "$replog" serve --id 0 --client 10.99.0.1:7602 --folder /tmp/other --replica 10.99.0.1:7502
errors "10.99.0.1:7400 is in use: end the program" "$ticker" exchange --listen 10.99.0.1:7400
# The exchange runs, so it is the feed that is missing.
errors "start \`ticker feed\` first" "$ticker" trader --local 10.99.0.2 --feed 10.99.0.1:7300 --exchange 10.99.0.1:7400
errors "another program listens there" "$ticker" trader --local 10.99.0.2 --feed 10.99.0.1:7500 --exchange 10.99.0.1:7400
kill $replica $exchange

echo "--- a full disk"
# The VM begins with the files of the host.
rm -f /tmp/ended
mkdir -p /tmp/full
mount -t tmpfs -o size=3m tmpfs /tmp/full
record=$(head -c 30000 /dev/zero | tr '\0' x)
(
    until [ -e /tmp/ended ]; do "$replog" append --client 10.99.0.1:7603 --limit 1 "$record" >/dev/null 2>&1; done
) &
appends=$!
errors "the disk of /tmp/full/log is full: free space" \
    "$replog" serve --id 0 --client 10.99.0.1:7603 --folder /tmp/full/log --replica 10.99.0.1:7503
: >/tmp/ended
wait $appends

echo "--- a device that is removed"
timeout 120 "$ticker" exchange --listen 10.99.0.1:7400 >/tmp/output 2>/tmp/errors &
exchange=$!
sleep 3
for device in rxe0 rxe1 rxe2; do rdma link delete $device; done
wait $exchange
check $? "the RDMA device was removed: start again when it is back"

echo "--- no device"
errors "no RDMA device" "$replog" serve $own --replica 10.99.0.1:7500
errors "RDMA device" "$ticker" exchange --listen 10.99.0.1:7400
[ -z "$failed" ]
