# $waits: the program that reads the traces; $rping: cmid's; $conformance: the suite; $CMID_BACKEND: the backend of
# cmid-verbs; $kernel_device: the program that stands in for ibacm, which does not run without an InfiniBand port.
set -eu
cd /tmp

# The detector must report a program that waits elsewhere.
strace -f -T -o control sleep 0.3
if "$waits" control >/dev/null 2>&1; then
    echo "the detector does not see a sleep"
    exit 1
fi

port=7300
# Traces a driver's connections, and what the suite does with events that are not acked.
record() {
    driver=$1
    port=$((port + 1))
    set -- --driver "$driver" --device verbs --backend "$CMID_BACKEND" -a 10.99.0.1 -p $port -S 4096
    strace -f -T -o server "$rping" -s "$@" &
    server=$!
    tries=0
    until rdma resource show cm_id | grep LISTEN | grep -q ":$port "; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "the server does not listen"; exit 1; }
        sleep 0.1
    done
    timeout 120 strace -f -T -o client "$rping" -c "$@" -C 20 -V
    wait $server
    # Migrations and destructions that wait for acks, on ids with events pending.
    timeout 120 strace -f -T -o acks "$conformance" --device verbs --driver "$driver" _for_acks >/dev/null
    timeout 120 strace -f -T -o child "$conformance" --device verbs --driver "$driver" behaviour_58 >/dev/null
}

# Sets waited to 1 if a call in the traces of `record` has waited outside of the loop, else to 0.
check() {
    waited=0
    for trace in server client acks child; do
        printf '%s, %s: ' "$driver" $trace
        "$waits" $trace || waited=1
    done
}

# A call that blocks does so in each run. An emulated machine that stalls for 0.1 s does not, so a second run decides.
trace() {
    record "$1"
    check
    [ $waited -eq 1 ] || return 0
    echo "$driver: once more"
    record "$1"
    check
    if [ $waited -eq 1 ]; then
        echo "$driver: calls have waited outside of the loop in two runs"
        exit 1
    fi
}

if [ "$CMID_BACKEND" = librdmacm ]; then
    for driver in mio epoll; do trace $driver; done
    exit
fi

# The kernel backend never uses ibacm, whatever it does.
all_drivers() {
    for driver in mio epoll blocking; do
        trace $driver
        if grep -l ibacm server client acks child; then
            echo "this trace has a call for ibacm"
            exit 1
        fi
    done
}

# rdma-core's client, whose route librdmacm looks up with ibacm. Nobody listens, so it fails, or hangs until the limit.
lookup() {
    status=0
    timeout 10 strace -f -o lookup rping -c -a 10.99.0.1 -p 7299 -C 1 >/dev/null 2>&1 || status=$?
}

echo "no ibacm:"
all_drivers

"$kernel_device" as-ibacm &
ibacm=$!
tries=0
until [ -S /run/ibacm.sock ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "ibacm has no socket"; exit 1; }
    sleep 0.1
done
lookup
if [ $status -eq 124 ] || ! grep 'connect(.*/run/ibacm.sock' lookup | grep -q '= 0'; then
    cat lookup
    echo "librdmacm does not use ibacm: status $status"
    exit 1
fi
echo "ibacm runs:"
all_drivers

kill -STOP $ibacm
lookup
if [ $status -ne 124 ]; then
    cat lookup
    echo "librdmacm does not wait for an ibacm that hangs: status $status"
    exit 1
fi
echo "ibacm hangs:"
all_drivers
kill -KILL $ibacm
