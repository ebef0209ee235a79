# pair NAME READY FIRST SECOND: runs FIRST, then SECOND as soon as the shell command READY succeeds; both must end with 0.
failed=
count=0

# Whether a listener is on this port; whether the group 239.1.1.N has a member.
listening() { rdma resource show cm_id | grep LISTEN | grep -q ":$1 "; }
joined() { grep -qi "$(printf '%02x0101ef' "$1")" /proc/net/igmp; }

pair() {
    count=$((count + 1))
    eval "timeout 60 $3" >/tmp/first 2>&1 </dev/null &
    first=$!
    tries=0
    until eval "$2"; do
        if [ $tries -ge 300 ] || ! kill -0 $first 2>/dev/null; then
            echo "$1: not ready: $2"
            break
        fi
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

summary() {
    if [ -n "$failed" ]; then
        echo "failed${failed#,}"
        exit 1
    fi
    echo "$count pairs passed"
}
