# cmid-check ($ours) in one machine, or between two: machine 1 serves, machine 2 is the client. The report goes to $report, and has
# the outcomes of $recorded. TCP makes the order: machine 1 listens for it once it serves, and machine 2 calls it at the end.
server=10.97.0.1
port=7310
listen() { busybox nc -l -p "$1" </dev/null; }
visit() {
    # The server may not listen yet.
    tries=0
    until busybox nc $server "$1" </dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 0.1
    done
}

# checked ARGUMENT...
checked() {
    "$ours" --backend "$CMID_BACKEND" --verbose --json "$report" "$@" || return
    # With the name of the behaviour.
    grep -B 1 '"outcome"' "$recorded" >/tmp/recorded
    grep -B 1 '"outcome"' "$report" | diff /tmp/recorded -
}

if [ -z "$CMID_MACHINE" ]; then
    checked --address 10.99.0.1 --connections 50
elif [ "$CMID_MACHINE" = 1 ]; then
    "$ours" --serve --address $server --backend "$CMID_BACKEND" &
    serving=$!
    tries=0
    until rdma resource show cm_id | grep LISTEN | grep -q ":7475 "; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] && kill -0 $serving || exit 1
        sleep 0.1
    done
    listen $port
    listen $((port + 1))
    kill -0 $serving || exit 1
    kill $serving
else
    visit $port || exit 1
    checked --peer $server --address "10.97.0.$CMID_MACHINE"
    status=$?
    visit $((port + 1))
    exit $status
fi
