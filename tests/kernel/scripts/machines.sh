# cmid's rping ($ours) against itself and against rdma-core's, between two machines, each of which is the server in
# turn. Both machines run this list; every pair has a port of its own.
kernel=$(uname -r)
count=0
ours() { "$ours" --device verbs --backend "$CMID_BACKEND" "$@"; }
theirs() { rping "$@"; }

# pair SERVER_MACHINE SERVER CLIENT: the server's or the client's part of a pair, by the number of this machine.
pair() {
    rest="-a 10.97.0.$1 -p $((7300 + count)) -C 100 -S 4096 -V"
    count=$((count + 1))
    if [ "$CMID_MACHINE" = "$1" ]; then
        "$2" $rest -s >/tmp/output 2>&1
        status=$?
        echo "$2 as server on $kernel, for $3: $status"
    else
        # The server may not listen yet.
        tries=0
        until "$3" $rest -c >/tmp/output 2>&1; do
            status=$?
            tries=$((tries + 1))
            [ $tries -lt 60 ] || break
            sleep 0.5
        done
        [ $tries -lt 60 ] && status=0
        echo "$3 as client on $kernel, of $2: $status, after $tries attempts that failed"
    fi
    [ $status = 0 ] || { tail -n 30 /tmp/output; exit 1; }
}

for server in 1 2; do
    pair $server ours ours
    pair $server ours theirs
    pair $server theirs ours
done
echo "$count pairs passed"
