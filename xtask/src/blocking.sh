# $1: xtask, which reads the traces; $2: cmid's rping; $3: the conformance suite.
set -eu
cd /tmp

# The detector must report a program that waits elsewhere.
strace -f -T -o control sleep 0.3
if "$1" waits control >/dev/null 2>&1; then
    echo "the detector does not see a sleep"
    exit 1
fi

for driver in mio epoll; do
    strace -f -T -o server "$2" -s --driver $driver --device verbs -a 10.99.0.1 -p 7300 -S 4096 &
    server=$!
    tries=0
    until rdma resource show cm_id | grep LISTEN | grep -q ":7300 "; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "the server does not listen"; exit 1; }
        sleep 0.1
    done
    timeout 120 strace -f -T -o client "$2" -c --driver $driver --device verbs -a 10.99.0.1 -p 7300 -C 20 -S 4096 -V
    wait $server
    # Migrations and destructions that wait for acks, on ids with events pending.
    timeout 120 strace -f -T -o acks "$3" --device verbs --driver $driver _for_acks >/dev/null
    timeout 120 strace -f -T -o child "$3" --device verbs --driver $driver behaviour_58 >/dev/null
    for trace in server client acks child; do
        printf '%s, %s: ' $driver $trace
        "$1" waits $trace
    done
done
