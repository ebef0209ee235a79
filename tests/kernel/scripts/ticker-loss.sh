# ticker ($ours) between two devices, over a wire that loses packets: no gap is left, every order has an answer.
set -e
for loss in 0 1 20; do
    for end in veth1 veth2; do tc qdisc replace dev $end root netem loss $loss%; done
    echo "--- $loss % of the packets are lost"
    "$ours" demo --device verbs --venue 10.98.0.1 --local 10.98.0.2 --ticks 500 >/tmp/output || { cat /tmp/output; exit 1; }
    cat /tmp/output
    # The loss is real: ticks were replayed. Without it none is.
    case $loss in
    20) grep -q "^gaps: .* 0 of them replayed, 0 by" /tmp/output && { echo "nothing was lost"; exit 1; } ;;
    esac
done
true
