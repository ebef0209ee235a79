# Every pair has a port and a group of its own, because the last one may not have ended at the peer.
number=1
for driver in mio epoll blocking; do
    us="\"\$ours\" --backend \$CMID_BACKEND --driver $driver"
    pair "$driver, datagrams" "listening $((7300 + number))" \
        "$us serve 10.99.0.2:$((7300 + number))" "$us ping 10.99.0.2:$((7300 + number))"
    pair "$driver, multicast" "joined $number" \
        "$us receive 239.1.1.$number -b 10.99.0.2" "$us send 239.1.1.$number -b 10.99.0.1"
    number=$((number + 1))
    # In the other direction, mckey ends without waiting for its posted sends, so that some are never sent.
    pair "$driver, multicast to mckey" "joined $number" \
        "mckey -m 239.1.1.$number -b 10.99.0.2" "$us send 239.1.1.$number -b 10.99.0.1"
    number=$((number + 1))
    pair "$driver, bursts" "listening $((7300 + number))" \
        "$us reply 10.99.0.2:$((7300 + number)) -C 32" "$us burst 10.99.0.2:$((7300 + number)) -C 32"
    # udaddy has one port.
    pair "$driver, to udaddy" "listening 7174" "udaddy -b 10.99.0.2" "$us burst 10.99.0.2:7174 -C 10 -S 100"
    pair "$driver, from udaddy" "listening 7174" "$us reply 10.99.0.2:7174 -C 10 -S 100" "udaddy -s 10.99.0.2"
    number=$((number + 1))
done
summary
