# cmid-nvme ($ours) and the kernel's target; then Python's nvmeof (of the folder $modules, with the program $peer), and nvme-cli with the
# kernel's own initiator beside it. What was written is compared with what the backing device has.

# read_back ARGUMENT...: reads to /tmp/back, which may have the expected bytes already.
read_back() {
    rm -f /tmp/back
    initiator read "$@" --data /tmp/back
}

start_target
dd if=/dev/urandom of=/tmp/data bs=1M count=4 2>/dev/null

timeout 60 "$ours" discover -a $target >/tmp/output || fail "discover"
grep "^rdma $target 4420 $nqn (nvme subsystem)" /tmp/output || fail "the subsystem is not discovered"
# The discovery log is longer than a transfer.
for number in $(seq 200); do
    mkdir $config/subsystems/$nqn$number
    ln -s $config/subsystems/$nqn$number $config/ports/1/subsystems/
done
timeout 60 "$ours" discover -a $target >/tmp/output || fail "discover many"
[ "$(grep -c "^rdma $target 4420 $nqn[0-9]* (nvme subsystem)" /tmp/output)" = 1 ] || fail "subsystems of other hosts are told"
for number in $(seq 200); do echo 1 >$config/subsystems/$nqn$number/attr_allow_any_host; done
timeout 60 "$ours" discover -a $target >/tmp/output || fail "discover many"
[ "$(grep -c "^rdma $target 4420 $nqn[0-9]* (nvme subsystem)" /tmp/output)" = 201 ] || fail "not all are discovered"
for number in $(seq 200); do
    rm $config/ports/1/subsystems/$nqn$number
    rmdir $config/subsystems/$nqn$number
done
initiator id-ctrl >/tmp/output || fail "id-ctrl"
grep -x "subnqn $nqn" /tmp/output || fail "the identity"
initiator id-ns >/tmp/output || fail "id-ns"
grep -x "nsze 65536" /tmp/output || fail "the namespace"

# Long ones by keyed SGL, on several queues; short ones in the capsule; a range that is no power of two.
initiator write -i 3 -Q 16 --data /tmp/data 2>/tmp/errors || fail "write"
# soft-iWARP has no memory windows.
if grep -F "memory is lent" /tmp/errors; then [ $kind = rxe ]; else [ $kind = siw ]; fi || fail "memory is lent, or is not"
cmp /tmp/data /dev/ram0 -n 4194304 || fail "the ram disk has other bytes"
dd if=/tmp/data of=/tmp/short bs=512 count=3 2>/dev/null
initiator write --start-block 20001 --data /tmp/short || fail "a short write"
dd if=/dev/ram0 of=/tmp/back bs=512 skip=20001 count=3 2>/dev/null
cmp /tmp/short /tmp/back || fail "a short write has written other bytes"
read_back --start-block 1 --data-size 2000384 -i 2 || fail "read"
tail -c +513 /tmp/data | head -c 2000384 | cmp - /tmp/back || fail "other bytes were read"
initiator flush || fail "flush"
echo "written, read and flushed"

# The same over null_blk, with memory of its own.
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 || fail "null_blk"
mkdir $config/subsystems/$nqn/namespaces/2
echo /dev/nullb0 >$config/subsystems/$nqn/namespaces/2/device_path
echo 1 >$config/subsystems/$nqn/namespaces/2/enable
initiator write --namespace-id 2 -i 2 --start-block 8 --data /tmp/data || fail "write to null_blk"
dd if=/dev/nullb0 of=/tmp/back bs=4096 skip=1 count=1024 iflag=direct 2>/dev/null
cmp /tmp/data /tmp/back || fail "null_blk has other bytes"
read_back --namespace-id 2 --start-block 8 --data-size 4194304 || fail "read of null_blk"
cmp /tmp/data /tmp/back || fail "other bytes were read of null_blk"
echo 0 >$config/subsystems/$nqn/namespaces/2/enable
rmdir $config/subsystems/$nqn/namespaces/2
echo "written to null_blk and read"

# Each queue is connected by one thread, and served by another one.
dd if=/dev/urandom of=/tmp/other bs=1M count=4 2>/dev/null
initiator write -i 4 -Q 16 --reactors 2 --start-block 8192 --data /tmp/other 2>/tmp/errors || fail "write on reactors"
grep -F "4 of them on other reactors" /tmp/errors || fail "the queues are not on other reactors"
# Not from the page cache, which reads ahead.
dd if=/dev/ram0 of=/tmp/back bs=1M skip=4 count=4 iflag=direct 2>/dev/null
cmp /tmp/other /tmp/back || fail "the reactors have written other bytes"
read_back -i 3 --reactors 3 --start-block 8192 --data-size 4194304 || fail "read on reactors"
cmp /tmp/other /tmp/back || fail "the reactors have read other bytes"

refused "invalid parameters: is the NQN right?" timeout 60 "$ours" id-ctrl -a $target -n nqn.2014-08.org.cmid:none
refused "there are [1]" initiator id-ns --namespace-id 7
refused "the namespace has only 65536 blocks" initiator write --start-block 65535 --data /tmp/short
# The length of a file is known before anything is written.
dd if=/dev/zero bs=1M count=33 2>/dev/null | tr '\0' x >/tmp/long
refused "the namespace has only 65536 blocks" initiator write --data /tmp/long
dd if=/dev/ram0 of=/tmp/back bs=1M count=4 iflag=direct 2>/dev/null
cmp /tmp/data /tmp/back || fail "a write that is refused has written"
head -c 1000 /tmp/long >/tmp/odd
refused "not a multiple of the block of 512 bytes" initiator write --data /tmp/odd
refused "an NQN has 1 to 223 bytes, and not 224" timeout 60 "$ours" id-ctrl -a $target -n "$(head -c 224 /tmp/long)"
# Outputs that are full or closed are errors. What cannot be told on standard error is not told.
for command in discover "id-ctrl -n $nqn" "id-ns -n $nqn" "read -n $nqn --data-size 1048576" "bench -n $nqn --seconds 1"; do
    refused "standard output: No space left on device" sh -c "exec timeout 60 $ours $command -a $target >/dev/full"
done
read_back --data-size 1048576 2>/dev/full || fail "standard error is full"
cmp /tmp/data /tmp/back -n 1048576 || fail "other bytes were read"
refused "10.99.0.1:4421" timeout 60 "$ours" id-ctrl -a $target -s 4421 -n $nqn

# Python's initiator reads what this one has written, and the other way round.
python_peer() { PYTHONPATH=$modules timeout 120 /usr/bin/python3 "$peer" $target $nqn "$@" || fail "Python's nvmeof"; }
python_peer read 8192 /tmp/back 1048576
head -c 1048576 /tmp/other | cmp - /tmp/back || fail "Python does not read a write"
head -c 500224 /dev/urandom >/tmp/part
python_peer write 30001 /tmp/part
read_back --start-block 30001 --data-size 500224 || fail "read"
cmp /tmp/part /tmp/back || fail "Python's write is not read"
echo "Python's initiator and this one see each other's writes"

# Both initiators at the same time, and each reads what the other one has written.
start_kernel_initiator 2 16
(
    for number in 1 2 3 4 5 6 7 8; do
        dd if=/tmp/data of=/dev/nvme0n1 bs=64K count=16 seek=$((64 + 16 * number)) oflag=direct 2>/dev/null || exit 1
    done
) &
kernel=$!
for number in 1 2 3 4; do
    dd if=/tmp/data of=/tmp/part bs=64K skip=$number count=16 2>/dev/null
    initiator write --start-block $((32768 + 2048 * number)) --data /tmp/part || fail "a write beside the kernel's"
done
wait $kernel || fail "the kernel's writes"
head -c 1048576 /tmp/data >/tmp/part
for number in 1 8; do
    read_back --start-block $((128 * (64 + 16 * number))) --data-size 1048576 || fail "read"
    cmp /tmp/part /tmp/back || fail "the kernel's write is not read"
done
for number in 1 4; do
    dd if=/dev/nvme0n1 of=/tmp/back bs=64K skip=$((256 + 16 * number)) count=16 iflag=direct 2>/dev/null
    dd if=/tmp/data bs=64K skip=$number count=16 2>/dev/null | cmp - /tmp/back || fail "the kernel does not read a write"
done
echo "both initiators see each other's writes"

# nvme-cli is told the same, and its commands meet those of this one.
nvme discover -t rdma -a $target -s 4420 >/tmp/output 2>/tmp/errors || fail "nvme discover"
grep -q "^subnqn: *$nqn\$" /tmp/output || fail "nvme-cli does not discover the subsystem"
nvme id-ns /dev/nvme0n1 >/tmp/output || fail "nvme id-ns"
grep -qi "^nsze *: 0x10000\$" /tmp/output || fail "nvme-cli has another namespace"
head -c 4096 /dev/urandom >/tmp/part
nvme write /dev/nvme0n1 -s 40000 -c 7 -z 4096 -d /tmp/part >/dev/null 2>/tmp/errors || fail "nvme write"
read_back --start-block 40000 --data-size 4096 || fail "read"
cmp /tmp/part /tmp/back || fail "the write of nvme-cli is not read"
head -c 4096 /dev/urandom >/tmp/part
initiator write --start-block 40008 --data /tmp/part || fail "write"
nvme read /dev/nvme0n1 -s 40008 -c 7 -z 4096 -d /tmp/back >/dev/null 2>/tmp/errors || fail "nvme read"
cmp /tmp/part /tmp/back || fail "nvme-cli does not read a write"
echo "nvme-cli and this one see each other's writes"
echo 1 >/sys/class/nvme/nvme0/delete_controller
stop_target
echo "the target has no connection left"
