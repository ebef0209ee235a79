# cmid-nvme ($ours) beside fio with io_uring on the kernel's initiator: the same target, one queue each, one after the other.
# The best of three rounds each, because the host has other work. Writes the table to $report.
start_target
start_kernel_initiator 1 128

# kernel KIND SIZE DEPTH: IOPS, p50 and p99 in us, and processor time per command in us, user and system.
kernel() {
    fio --name=x --filename=/dev/nvme0n1 --direct=1 --ioengine=io_uring --thread --rw="rand$1" --bs="$2" --iodepth="$3" \
        --runtime=$seconds --time_based --percentile_list=50:99 --output-format=terse --terse-version=3 >/tmp/figures 2>/tmp/errors || return
    awk -F';' -v at=$([ "$1" = read ] && echo 8 || echo 49) '{
        iops = $at; sub(/.*=/, "", $(at + 10)); sub(/.*=/, "", $(at + 11)); sub(/%/, "", $88); sub(/%/, "", $89)
        printf "%d %d %d %.0f\n", iops, $(at + 10), $(at + 11), ($88 + $89) * 10000 / iops }' /tmp/figures
}

# ours KIND SIZE DEPTH: the same.
own() {
    initiator bench --io-size "$2" --queue-depth "$3" --seconds $seconds $([ "$1" = read ] || echo --write) --table \
        2>/tmp/errors
}

# best FILE: its line with the most IOPS.
best() { sort -n "$1" | tail -n 1; }

# tell LINE: prints it, and adds it to the report. A pipe to tee would lose the failure of a row.
tell() { echo "$1" && echo "$1" >>"$report"; }

seconds=2
: >"$report"
tell "kind bytes depth | cmid-nvme: IOPS p50/us p99/us processor/us | kernel: IOPS p50/us p99/us processor/us | ratio"
for kind in read write; do
    for size in 4096 131072; do
        for depth in 1 32; do
            : >/tmp/mine
            : >/tmp/theirs
            for _round in 1 2 3; do
                own $kind $size $depth >>/tmp/mine || fail "cmid-nvme"
                kernel $kind $size $depth >>/tmp/theirs || fail "fio"
            done
            [ "$(cat /tmp/mine /tmp/theirs | wc -l)" = 6 ] || fail "a round has no figures"
            mine=$(best /tmp/mine) theirs=$(best /tmp/theirs)
            ratio=$(echo "${mine%% *} ${theirs%% *}" | awk '{ printf "%.2f", $1 / $2 }')
            tell "$kind $size $depth | $mine | $theirs | $ratio"
        done
    done
done
echo 1 >/sys/class/nvme/nvme0/delete_controller
stop_target
