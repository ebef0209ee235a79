# cmid's rping ($ours) against rdma-core's, with every driver, in both roles. Every pair has a port of its own, because
# a port may stay in use for a while after its connection.
port=7200
for driver in mio epoll blocking; do
    for role in server client; do
        rest="-a 10.99.0.1 -p $port -C 100 -S 4096 -V"
        us="\"\$ours\" --driver $driver --device verbs --backend \$CMID_BACKEND $rest"
        them="rping $rest"
        case $role in
            server) pair "$driver as server" "listening $port" "$us -s" "$them -c" ;;
            client) pair "$driver as client" "listening $port" "$them -s" "$us -c" ;;
        esac
        port=$((port + 1))
    done
done
summary
