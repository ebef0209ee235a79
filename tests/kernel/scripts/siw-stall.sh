# Shows a connection on which soft-iWARP never reads the first message of the client, without cmid:
#   cargo xtask softroce --transport siw --machines 2 --timeout 600 -- sh tests/kernel/scripts/siw-stall.sh
# Machine 2 is rdma-core's rping as a client, one connection after the other, and machine 1 is its server. A client that
# has not ended after 10 s has stalled: then machine 1 shows that its TCP socket has bytes which nobody reads
# (docs/semantics.md 16.2, 18).
server=10.97.0.1
rounds=${rounds:-400}

if [ "$CMID_MACHINE" = 1 ]; then
    rping -s -P -a $server -p 7960 &
    serving=$!
    # The client calls when a connection has stalled, and at the end.
    busybox nc -l -p 7961 </dev/null
    ss -tin state established sport = :7960
    busybox nc -l -p 7962 </dev/null
    kill $serving
    exit 0
fi

visit() {
    tries=0
    until busybox nc $server "$1" </dev/null 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || exit 1
        sleep 0.1
    done
}

tries=0
until timeout 10 rping -c -a $server -p 7960 -C 1; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] || exit 1
    sleep 1
done
round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    timeout 40 rping -c -a $server -p 7960 -C 1 &
    client=$!
    tries=0
    while kill -0 $client 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || break
        sleep 0.1
    done
    if [ $tries -ge 100 ]; then
        echo "connection $round has stalled"
        ss -tin state established dport = :7960
        break
    fi
done
visit 7961
wait
visit 7962
