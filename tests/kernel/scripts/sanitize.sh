# $programs: the folder of the instrumented programs; $extent: device, one-driver or all-drivers; $expect: what the kernel can re-register.
# CMID_BACKEND: the backend of cmid-verbs. ASAN_OPTIONS makes reports go to /tmp/sanitizer.PID, and a program with a report ends with status 86.
set -u
# LD_PRELOAD separates paths at blanks.
cp "$programs/libcmid_rereg_shim.so" /tmp/shim.so

# Each of these mistakes must be reported, with its kind.
reported=0
fault() {
    name=$1
    as=$2
    "$programs/kernel-faults" "$name" >/tmp/said 2>&1
    status=$?
    if [ $status -ne 86 ] || ! grep -qsF "$as" /tmp/sanitizer.*; then
        cat /tmp/said /tmp/sanitizer.* 2>/dev/null
        echo "the fault $name ended with status $status; it should have been reported as: $as"
        exit 1
    fi
    rm -f /tmp/sanitizer.*
    reported=$((reported + 1))
}

# Checks that a program succeeds without a report, of itself or of a child process.
ran=0
clean() {
    echo "== $*"
    "$@"
    status=$?
    for report in /tmp/sanitizer.*; do
        if [ -e "$report" ]; then
            cat /tmp/sanitizer.*
            echo "reported while this ran: $*"
            exit 1
        fi
    done
    if [ $status -ne 0 ]; then
        echo "status $status of: $*"
        exit 1
    fi
    ran=$((ran + 1))
}

fault data-after-ack 'AddressSanitizer: heap-use-after-free'
fault data-past-end 'AddressSanitizer: heap-buffer-overflow'
fault short-place 'AddressSanitizer: stack-buffer-overflow'
fault id-after-destroy 'AddressSanitizer: heap-use-after-free'
fault forgotten-event 'LeakSanitizer: detected memory leaks'
fault forgotten-pd 'LeakSanitizer: detected memory leaks'
# librdmacm follows a pointer in overwritten freed memory.
fault acked-twice 'AddressSanitizer: SEGV'
fault qp-under-id 'AddressSanitizer: SEGV'
clean "$programs/kernel-faults" none

clean "$programs/kernel-device"
clean "$programs/kernel-lost-wakeup"
if [ "$extent" != device ]; then
    # In this scenario librdmacm leaks an id: it destroys the id of a request that it cannot read, but on the channel that
    # the listener has moved to, where the kernel does not know it (ucma_process_conn_req, rdma_destroy_id). Its table of
    # ids keeps it until another id has the number, which never happens in a process that runs nothing else. cmid itself
    # never lets the kernel move a listener. The kernel backend leaks nothing there.
    moved_listener=behaviour_54_what_the_kernel_does_to_unread_requests
    # The two scenarios that count what glibc's allocator has given out cannot run here: it is not used.
    set -- --device verbs --skip nothing_is_left
    if [ "$CMID_BACKEND" = librdmacm ]; then
        clean "$programs/conformance" --device verbs --driver epoll "$moved_listener"
        set -- "$@" --skip "$moved_listener"
    fi
    if [ "$extent" = all-drivers ]; then
        clean "$programs/conformance" "$@"
    else
        clean "$programs/conformance" "$@" --driver epoll
    fi
fi
# Each of these removes a device permanently.
clean env LD_PRELOAD=/tmp/shim.so "$programs/kernel-rereg" --expect "$expect"
clean "$programs/kernel-device" removal
echo "$reported mistakes reported; $ran programs ran as they should"
