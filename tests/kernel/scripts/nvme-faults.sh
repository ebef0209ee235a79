# cmid-nvme ($ours) while things go wrong with the kernel's target: what it tells, and that each command ends once.
start_target

# The same subsystem over the wire between veth1 and veth2, whose packets can be lost.
mkdir $config/ports/2
echo rdma >$config/ports/2/addr_trtype
echo ipv4 >$config/ports/2/addr_adrfam
echo 10.98.0.1 >$config/ports/2/addr_traddr
echo 4420 >$config/ports/2/addr_trsvcid
ln -s $config/subsystems/$nqn $config/ports/2/subsystems/$nqn || fail "the port of the wire"

# in_background COMMAND ARGUMENT...: what it tells is in /tmp/errors; it is connected for a second. ended STATUS waits for its end.
in_background() {
    "$@" >/tmp/output 2>/tmp/errors &
    process=$!
    tries=0
    until grep -q '^connected' /tmp/errors; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || fail "it does not connect"
        sleep 0.1
    done
    sleep 1
}
ended() {
    status=0
    wait $process || status=$?
    cat /tmp/output
    sed 's/^/    /' /tmp/errors
    [ $status = "$1" ] || fail "it has ended with $status"
}
told() { grep -q "$1" /tmp/errors || fail "it has not told: $1"; }
connected() { [ "$(grep -c '^connected' /tmp/errors)" -ge "$1" ] || fail "it was not connected $1 times"; }

# Long commands lend memory to the target, which may have it when the connection ends.
for kind in "" --write; do
    echo "--- the target goes and comes back while it has memory of the application $kind"
    in_background initiator bench $kind --io-size 32768 --seconds 8 --queue-depth 8 -i 4 --reactors 2 -c 1 -l 30
    unlink_port
    sleep 2
    link_port
    ended 0
    told "^lost: queue [0-9]*: "
    connected 2
done

for reactors in 0 2; do
    echo "--- the controller is reset under writes, with the queues on $reactors reactors"
    in_background "$ours" bench -a $target -n $nqn --write --io-size 32768 --seconds 8 --queue-depth 8 -i 4 --reactors $reactors
    for times in 2 3; do
        kill -HUP $process
        tries=0
        until [ "$(grep -c '^connected' /tmp/errors)" -ge $times ] || [ $((tries += 1)) -gt 40 ]; do sleep 0.1; done
    done
    ended 0
    told "^lost: the controller is reset; connects again"
    connected 3
done

echo "--- the target goes for good"
in_background initiator bench --seconds 20 -c 1 -l 3
unlink_port
ended 1
told "the time limit has passed\|the peer has refused"
link_port

echo "--- the wire loses all packets for a while"
target=10.98.0.1
in_background initiator bench --write --seconds 16 --queue-depth 4 -c 1 -l 60 -k 2 --io-timeout 3
tc qdisc add dev veth1 root netem loss 100%
tc qdisc add dev veth2 root netem loss 100%
sleep 5
tc qdisc del dev veth1 root
tc qdisc del dev veth2 root
ended 0
told "^lost: "
connected 2
target=10.99.0.1

echo "--- the target allows fewer queues, and more again"
in_background "$ours" bench -a $target -n $nqn --seconds 9 --queue-depth 8 -i 4 -c 1 -l 30
for queues in 1 3; do
    echo $queues >$config/subsystems/$nqn/attr_qid_max
    # The target of Linux 6.1 ends no connection for it.
    case $(uname -r) in 6.1.*) kill -HUP $process ;; esac
    sleep 3
done
ended 0
told "^connected: 4 I/O queues"
told "^connected: 1 I/O queues"
told "^connected: 3 I/O queues"
echo 128 >$config/subsystems/$nqn/attr_qid_max

echo "--- a namespace goes while it is written to"
in_background initiator bench --write --seconds 20 --queue-depth 8 -i 2
echo 0 >$config/subsystems/$nqn/namespaces/1/enable
ended 1
told "^cmid-nvme: .*(type [0-9], code 0x[0-9a-f]*)"
refused "there is no namespace 1" initiator write --data /tmp/back
echo 1 >$config/subsystems/$nqn/namespaces/1/enable

echo "--- a namespace goes and comes back"
in_background initiator connect --seconds 4
echo 0 >$config/subsystems/$nqn/namespaces/1/enable
sleep 1
echo 1 >$config/subsystems/$nqn/namespaces/1/enable
ended 0
told "^event: the namespaces have changed"

echo "--- the initiator is interrupted while the target has its memory"
for signal in INT TERM; do
    in_background "$ours" bench -a $target -n $nqn --write --io-size 65536 --seconds 30 --queue-depth 32
    kill -$signal $process
    ended 1
    told "interrupted"
done
# The kernel destroys QPs with bound windows.
if dmesg | grep rxe_pool; then fail "windows were left to the kernel"; fi

echo "--- the initiator is killed, and the next one connects"
in_background "$ours" bench -a $target -n $nqn --write --io-size 65536 --seconds 20 --queue-depth 32
kill -9 $process
ended 137
initiator id-ns >/dev/null 2>/tmp/errors || fail "the next one does not connect"

echo "--- a device that answers after 3 seconds, and a limit of 1 second"
modprobe null_blk nr_devices=1 gb=1 irqmode=2 completion_nsec=3000000000 || fail "the slow device"
mkdir $config/subsystems/$nqn/namespaces/2
echo /dev/nullb0 >$config/subsystems/$nqn/namespaces/2/device_path
echo 1 >$config/subsystems/$nqn/namespaces/2/enable
in_background initiator read --namespace-id 2 --data-size 4096 --io-timeout 1 -c 1 -l 30 --data /tmp/back
ended 1
told "a command was not answered within 1s"
told "^cmid-nvme: read: this command has no result, and was sent 6 times"
connected 6
echo 0 >$config/subsystems/$nqn/namespaces/2/enable
rmdir $config/subsystems/$nqn/namespaces/2

# What was written in the end is there.
head -c 1048576 /dev/urandom >/tmp/data
initiator write --data /tmp/data 2>/tmp/errors || fail "write"
cmp /tmp/data /dev/ram0 -n 1048576 || fail "the ram disk has other bytes"
rm $config/ports/2/subsystems/$nqn
rmdir $config/ports/2
stop_target
echo "the target has no connection left"
