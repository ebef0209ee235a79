# ticker ($ours) between two devices, over a wire that loses packets: no gap is left, every order has an answer.
set -e
for loss in 0 1 20; do
    for end in veth1 veth2; do tc qdisc replace dev $end root netem loss $loss%; done
    echo "--- $loss % of the packets are lost"
    "$ours" demo --device verbs --venue 10.98.0.1 --local 10.98.0.2 --ticks 500 >/tmp/output || { cat /tmp/output; exit 1; }
    cat /tmp/output
    # The loss is real.
    dropped=$(tc -s qdisc show dev veth1 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p')
    echo "$dropped packets were lost on the way to 10.98.0.2"
    [ $loss -lt 20 ] || [ "$dropped" -gt 0 ]
done
