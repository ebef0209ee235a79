# talk NAME READY FIRST SECOND: runs FIRST, SECOND as soon as the shell command READY succeeds; both must end with 0.
failed=
count=0

# A listener on this port, and a member of the group 239.1.1.N.
listening() { rdma resource show cm_id | grep LISTEN | grep -q ":$1 "; }
joined() { grep -qi "$(printf '%02x0101ef' "$1")" /proc/net/igmp; }

talk() {
    count=$((count + 1))
    eval "timeout 60 $3" >/tmp/first 2>&1 </dev/null &
    first=$!
    tries=0
    until eval "$2" || [ $tries -ge 300 ]; do
        kill -0 $first 2>/dev/null || break
        sleep 0.1
        tries=$((tries + 1))
    done
    eval "timeout 60 $4" >/tmp/second 2>&1 </dev/null
    second_status=$?
    wait $first
    first_status=$?
    echo "$1: $first_status and $second_status"
    if [ "$first_status$second_status" != 00 ]; then
        failed="$failed, $1"
        echo "--- $3"
        tail -n 30 /tmp/first
        echo "--- $4"
        tail -n 30 /tmp/second
    fi
}

# A port and a group of its own for every pair: the last may not have ended at the peer.
number=1
for driver in mio epoll blocking; do
    us="\"\$ours\" --driver $driver"
    talk "$driver, datagrams" "listening $((7300 + number))" \
        "$us serve 10.99.0.2:$((7300 + number))" "$us ping 10.99.0.2:$((7300 + number))"
    talk "$driver, multicast" "joined $number" \
        "$us receive 239.1.1.$number -b 10.99.0.2" "$us send 239.1.1.$number -b 10.99.0.1"
    number=$((number + 1))
    # The other way round mckey ends without waiting for what it has posted, so that some of it is never sent.
    talk "$driver, multicast to mckey" "joined $number" \
        "mckey -m 239.1.1.$number -b 10.99.0.2" "$us send 239.1.1.$number -b 10.99.0.1"
    number=$((number + 1))
done

if [ -n "$failed" ]; then
    echo "failed${failed#,}"
    exit 1
fi
echo "$count pairs passed"
