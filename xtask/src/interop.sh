# pair NAME PORT SERVER CLIENT: runs both commands; both must end with 0.
failed=
count=0

listening() {
    tries=0
    while [ $tries -lt 300 ]; do
        rdma resource show cm_id | grep LISTEN | grep -q ":$1 " && return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
        tries=$((tries + 1))
    done
    return 1
}

pair() {
    count=$((count + 1))
    eval "timeout 60 $3" >/tmp/server 2>&1 </dev/null &
    server=$!
    listening "$2" $server || echo "$1: the server does not listen"
    eval "timeout 60 $4" >/tmp/client 2>&1 </dev/null
    client_status=$?
    wait $server
    server_status=$?
    echo "$1: server $server_status, client $client_status"
    if [ "$server_status$client_status" != 00 ]; then
        failed="$failed, $1"
        echo "--- server: $3"
        tail -n 30 /tmp/server
        echo "--- client: $4"
        tail -n 30 /tmp/client
    fi
}

summary() {
    if [ -n "$failed" ]; then
        echo "failed${failed#,}"
        exit 1
    fi
    echo "$count pairs passed"
}
