# cmid's kernel-perftest ($ours) against perftest's ib_send_lat -R, in both roles. -n is what $ours expects.
address=10.99.0.1
peer="ib_send_lat -R -d ${CMID_TRANSPORT}0 -n 100 -F"
pair "perftest with itself" "listening 7811" "$peer -p 7811" "$peer -p 7811 $address"
pair "cmid as server" "listening 7812" "\"\$ours\" serve $address:7812" "$peer -p 7812 $address"
pair "cmid as client" "listening 7813" "$peer -p 7813" "\"\$ours\" connect $address:7813"
summary
