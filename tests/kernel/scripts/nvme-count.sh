# What a command costs cmid-nvme ($ours) and fio with io_uring on the kernel's initiator, beside the same target, one queue each: the
# instructions in user space (callgrind), the system calls (strace), and the instructions of the process in both (its processor
# time, in a machine whose clock counts them: the shell tells milliseconds, so these are more commands). Each is the difference of two
# runs, so that the start is subtracted.
# Writes the table to $report.
start_target
start_kernel_initiator 1 128
# Symbols are bound at the start.
export LD_BIND_NOW=1

# kernel and own COMMANDS: a run with so many, of the row's kind, size and depth, under the tool in $tool.
kernel() {
    $tool fio --name=x --filename=/dev/nvme0n1 --direct=1 --ioengine=io_uring --thread --rw="rand$kind" --bs="$size" \
        --iodepth="$depth" --norandommap --io_size=$(($1 * size))
}
own() {
    $tool "$ours" bench -a $target -n $nqn --io-size "$size" --queue-depth "$depth" --seconds 600 --commands "$1" \
        $([ "$kind" = read ] || echo --write)
}

# instructions, calls and all PROGRAM COMMANDS: what the run has cost.
instructions() {
    tool="valgrind -q --tool=callgrind --callgrind-out-file=/tmp/figures"
    "$@" >/tmp/output 2>/tmp/errors && awk '$1 == "summary:" { print $2 }' /tmp/figures
}
calls() {
    tool="strace -f -c -o /tmp/figures"
    "$@" >/tmp/output 2>/tmp/errors && awk '$NF == "total" { print $4 }' /tmp/figures
}
all() {
    tool="bash /tmp/timed"
    "$@" >/tmp/output 2>/tmp/errors && awk '{ printf "%.0f", ($1 + $2) * 1e9 }' /tmp/errors
}
printf '%s\n' 'TIMEFORMAT="%3U %3S"' 'time "$@" 2>/dev/null' >/tmp/timed

# each FIGURE PROGRAM: the figure of one command.
each() {
    less=$("$@" $few) && more=$("$@" $many) || return 1
    format=$([ "$1" = calls ] && echo %.1f || echo %.0f)
    awk -v less="$less" -v more="$more" -v commands=$((many - few)) \
        "BEGIN { if (more - less < 1) exit 1; printf \"$format\", (more - less) / commands }"
}

# tell LINE: prints it, and adds it to the report.
tell() { echo "$1" && echo "$1" >>"$report"; }

: >"$report"
tell "kind bytes depth | cmid-nvme: instructions in user space, system calls, instructions in both | fio: the same"
size=4096 few=300
for kind in read write; do
    for depth in 1 32; do
        row="$kind $size $depth"
        for program in own kernel; do
            row="$row |"
            for figure in instructions calls all; do
                many=$([ $figure = all ] && echo 12300 || echo 3300)
                value=$(each $figure $program) || fail "$figure of $program: $row"
                row="$row $value"
            done
        done
        tell "$row"
    done
done
echo 1 >/sys/class/nvme/nvme0/delete_controller
stop_target
