# cmid's kernel-cmatose ($ours) against rdma-core's ucmatose, in both roles.
address=10.99.0.1
pair "cmid as server" "listening 7801" "\"\$ours\" serve $address:7801" "ucmatose -f ip -p 7801 -s $address"
pair "cmid as client" "listening 7802" "ucmatose -f ip -p 7802 -b $address" "\"\$ours\" connect $address:7802"
summary
