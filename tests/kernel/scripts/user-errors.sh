# Errors of users of replog ($replog) and ticker ($ticker) on real devices: each ends the program with one line that says
# what to do.
failed=
errors() {
    expected=$1
    shift
    timeout 60 "$@" >/tmp/output 2>/tmp/errors
    status=$?
    if [ $status = 1 ] && [ "$(wc -l </tmp/errors)" = 1 ] && grep -qF "$expected" /tmp/errors; then
        cat /tmp/errors
    else
        echo "not \"$expected\" in one line, but status $status:"
        cat /tmp/output /tmp/errors
        failed=yes
    fi
}

own="--id 0 --client 10.99.0.1:7600 --folder /tmp/replog"
# Wrong addresses.
errors "give --id the number of this replica" "$replog" serve $own --replica 192.0.2.1:7500
errors "select an address from" "$replog" serve $own --replica 172.16.0.1:7500
errors "choose one that" "$ticker" exchange --listen 192.0.2.1:7400
errors "start \`ticker feed\` first" "$ticker" trader --local 10.99.0.2 --feed 10.99.0.1:7300 --exchange 10.99.0.1:7400

# Ports in use.
"$replog" serve --id 0 --client 10.99.0.1:7601 --folder /tmp/other --replica 10.99.0.1:7500 >/dev/null &
"$ticker" exchange --listen 10.99.0.1:7400 >/dev/null &
sleep 3
errors "10.99.0.1:7500 is in use: stop the other program" "$replog" serve $own --replica 10.99.0.1:7500
errors "10.99.0.1:7601 is in use: stop the other program" \
    "$replog" serve --id 0 --client 10.99.0.1:7601 --folder /tmp/replog --replica 10.99.0.1:7501
errors "/tmp/other is in use: stop the other replica" \
    "$replog" serve --id 0 --client 10.99.0.1:7602 --folder /tmp/other --replica 10.99.0.1:7502
errors "10.99.0.1:7400 is in use: end the program" "$ticker" exchange --listen 10.99.0.1:7400
errors "another program listens there" "$ticker" trader --local 10.99.0.2 --feed 10.99.0.1:7500 --exchange 10.99.0.1:7400
kill %1 %2

# A full disk.
mkdir -p /tmp/full
mount -t tmpfs -o size=3m tmpfs /tmp/full
record=$(head -c 20000 /dev/zero | tr '\0' x)
(
    until [ -e /tmp/ended ]; do "$replog" append --client 10.99.0.1:7603 --limit 1 "$record" >/dev/null 2>&1; done
) &
errors "the disk of /tmp/full/log is full: free space" \
    "$replog" serve --id 0 --client 10.99.0.1:7603 --folder /tmp/full/log --replica 10.99.0.1:7503
: >/tmp/ended
wait

# No device.
for device in rxe0 rxe1 rxe2; do rdma link delete $device; done
errors "no RDMA device" "$replog" serve $own --replica 10.99.0.1:7500
errors "RDMA device" "$ticker" exchange --listen 10.99.0.1:7400
[ -z "$failed" ]
