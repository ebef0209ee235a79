# The kernel's NVMe over RDMA target over a ram disk of 32 MiB, by configfs; functions for the scripts that follow.
config=/sys/kernel/config/nvmet
nqn=nqn.2014-08.org.cmid:test
target=10.99.0.1
if [ -e /sys/module/siw ]; then kind=siw; else kind=rxe; fi

fail() {
    echo "FAILED: $1"
    [ ! -s /tmp/errors ] || cat /tmp/errors
    dmesg | tail -n 20
    exit 1
}

# link_port: what the port offers, from now on. unlink_port ends its connections.
link_port() { ln -s $config/subsystems/$nqn $config/ports/1/subsystems/$nqn; }
unlink_port() { rm $config/ports/1/subsystems/$nqn; }

start_target() {
    modprobe -a configfs nvmet nvmet-rdma || fail "the modules of the target"
    modprobe brd rd_nr=1 rd_size=32768 || fail "the ram disk"
    [ -d $config ] || mount -t configfs configfs /sys/kernel/config
    mkdir $config/subsystems/$nqn
    echo 1 >$config/subsystems/$nqn/attr_allow_any_host
    mkdir $config/subsystems/$nqn/namespaces/1
    echo /dev/ram0 >$config/subsystems/$nqn/namespaces/1/device_path
    echo 1 >$config/subsystems/$nqn/namespaces/1/enable
    mkdir $config/ports/1
    echo rdma >$config/ports/1/addr_trtype
    echo ipv4 >$config/ports/1/addr_adrfam
    echo $target >$config/ports/1/addr_traddr
    echo 4420 >$config/ports/1/addr_trsvcid
    link_port || fail "the port"
}

# Fails if a connection is left: the module could not be unloaded.
stop_target() {
    unlink_port
    rmdir $config/ports/1
    echo 0 >$config/subsystems/$nqn/namespaces/1/enable
    rmdir $config/subsystems/$nqn/namespaces/1 $config/subsystems/$nqn
    tries=0
    until rmmod nvmet_rdma 2>/tmp/errors; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || fail "nvmet-rdma cannot be unloaded"
        sleep 0.2
    done
}

# initiator COMMAND ARGUMENT...: cmid-nvme, with its target.
initiator() {
    command=$1
    shift
    timeout 60 "$ours" "$command" -t rdma -a $target -s 4420 -n $nqn "$@"
}

# start_kernel_initiator QUEUES ENTRIES: nvme-cli connects the kernel's own initiator, which has the disk /dev/nvme0n1.
start_kernel_initiator() {
    modprobe -a nvme-fabrics nvme-rdma || fail "the kernel's initiator"
    nvme connect -t rdma -a $target -s 4420 -n $nqn -i "$1" -Q "$2" 2>/tmp/errors || fail "the kernel's initiator cannot connect"
    tries=0
    until [ -b /dev/nvme0n1 ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "the kernel's initiator has no disk"
        sleep 0.1
    done
}

# refused TEXT COMMAND...: it ends with 1 and this text.
refused() {
    text=$1
    shift
    if "$@" >/tmp/output 2>/tmp/errors; then fail "not refused: $*"; fi
    grep -qF "$text" /tmp/errors || fail "not \"$text\": $*"
    grep -F "$text" /tmp/errors
}
