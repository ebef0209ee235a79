# cmtime.sh OURS BACKEND CONNECTIONS ADDRESS interop DRIVER...
# cmtime.sh OURS BACKEND CONNECTIONS ADDRESS compare PAIRS DIRECTORY: the results go into DIRECTORY/cmtime.txt.
# Runs cmid's cmtime and rdma-core's, one server and one client at a time.
ours=$1
backend=$2
connections=$3
address=$4
what=$5
shift 5
port=7700
failed=

fail() {
    echo "FAILED: $1"
    failed=yes
    tail -n 20 /tmp/server /tmp/client 2>/dev/null
}

# Starts a server with this command on a port of its own. Returns when it listens.
serve() {
    port=$((port + 1))
    # exec replaces the shell, so that kill ends the server itself.
    eval "exec timeout 120 $1" >/tmp/server 2>&1 </dev/null &
    server=$!
    tries=0
    until rdma resource show cm_id | grep LISTEN | grep -q ":$port "; do
        if [ $tries -ge 100 ] || ! kill -0 $server 2>/dev/null; then
            fail "no server: $1"
            return
        fi
        sleep 0.1
        tries=$((tries + 1))
    done
    # rdma-core's server listens for TCP after it listens for RDMA, and its client tries once.
    until [ -z "$oob" ] || ss -Hltn "sport = :$port" | grep -q LISTEN; do
        if [ $tries -ge 100 ] || ! kill -0 $server 2>/dev/null; then
            fail "no server on TCP: $1"
            return
        fi
        sleep 0.1
        tries=$((tries + 1))
    done
}

# Runs the client with this command. Its output is in /tmp/client.
visit() {
    eval "timeout 120 $1" >/tmp/client 2>&1 </dev/null || fail "the client: $1"
}

# From this version of rdma-core on, cmtime synchronizes with its peer over TCP (cmid's does with --oob).
over_tcp=52
# From this version on, the peers also exchange addresses over TCP, which cmid's does not support.
too_new=59
known() {
    version=$(dpkg-query --show --showformat='${Version}' rdmacm-utils)
    # Versions have forms like 44.0-2 and 1:44.0-2.
    major=${version#*:}
    major=${major%%.*}
    case $major in
    '' | *[!0-9]*) fail "which version of rdma-core is this cmtime of? (rdmacm-utils: \"$version\")" ;;
    *)
        if [ "$major" -ge $too_new ]; then
            fail "cmtime of rdma-core $version is not known here: one of a version before $too_new is needed"
        fi
        ;;
    esac
    oob=
    [ -z "$failed" ] && [ "$major" -ge $over_tcp ] && oob=--oob
    return 0
}

our_server='"$ours" --device verbs --backend $backend -b $address -p $port -c $connections --deadline 100'
our_client='"$ours" --device verbs --backend $backend -s $address -p $port -c $connections --deadline 100'
their_server='cmtime -b $address -p $port'
their_client='cmtime -s $address -p $port -c $connections'
# Over TCP, the last round has no QPs. Both sides are on one device, so each QP number is used once.
our_oob='--oob -q $((port * 1000))'
their_server_oob='-c $connections -q $((port * 1000 + 4194304))'
their_client_oob='-q $((port * 1000))'

# cmid's server ends by itself, with success only after all connections; rdma-core's does so only over TCP.
ours_has_served() { wait $server || fail "our server"; }
theirs_has_served() {
    if [ -n "$oob" ]; then
        wait $server || fail "their server"
    else
        kill $server
        wait $server
    fi
}

# rdma-core's client always ends with success, but prints errors.
theirs_is_content() {
    if grep -q -e "error" -e failure /tmp/client || ! grep -q '^destroy ' /tmp/client; then
        fail "their client"
    fi
}

# Waits until the ids of the last run are gone, so that they do not slow down the next.
at_rest() {
    tries=0
    while rdma resource show cm_id | grep -q .; do
        if [ $tries -ge 30 ]; then
            fail "ids are left"
            return
        fi
        sleep 0.1
        tries=$((tries + 1))
    done
}

interop() {
    if [ -n "$oob" ]; then
        our_server="$our_server $our_oob"
        our_client="$our_client $our_oob"
    fi
    for driver; do
        serve "$their_server"
        visit "$our_client --driver $driver"
        theirs_has_served
        echo "$driver as client of theirs, rdma-core $version: $(grep finished /tmp/client)"
        serve "$our_server --driver $driver"
        visit "$their_client"
        theirs_is_content
        ours_has_served
        echo "$driver as their server, rdma-core $version: $(grep 'came and went' /tmp/server)"
    done
}

ours_with_json() {
    serve "$our_server"
    visit "$our_client --json"
    ours_has_served
    at_rest
}

ours_once() {
    ours_with_json
    { echo "ours"; cat /tmp/client; } >>"$results"
}

# The table of rdma-core's cmtime for the round with QPs: the name of each phase, a colon, and the total in
# milliseconds.
table() {
    if [ -z "$oob" ]; then
        grep ' *: ' /tmp/client
        return
    fi
    # Newer versions split some phases, and have microseconds in the second of six columns.
    awk '
        BEGIN {
            is["create id"] = "create id"; is["bind addr"] = "bind addr"; is["resolve addr"] = "resolve addr"
            is["resolve route"] = "resolve route"; is["create qp"] = is["init qp"] = "create qp"
            is["cm connect"] = "connect"; is["disconnect"] = "disconnect"; is["destroy id"] = is["destroy qp"] = "destroy"
        }
        /^cm_conn/ { exit }
        NF > 6 {
            name = $1
            for (i = 2; i <= NF - 6; i++) name = name " " $i
            if (name in is) total[is[name]] += $(NF - 4)
        }
        END { for (name in total) if (total[name]) print name ": " total[name] / 1000 }
    ' /tmp/client
}

theirs_once() {
    serve "$their_server"
    visit "$their_client"
    theirs_is_content
    theirs_has_served
    at_rest
    { echo "theirs"; table; } >>"$results"
}

compare() {
    pairs=$1
    results=$2/cmtime.txt
    echo "rdma-core $version" >"$results"
    # The first run of each loads the programs and is not measured.
    connections_asked=$connections
    connections=20
    ours_with_json
    serve "$their_server"
    visit "$their_client"
    theirs_has_served
    at_rest
    connections=$connections_asked
    pair=0
    while [ $pair -lt "$pairs" ] && [ -z "$failed" ]; do
        if [ $((pair % 2)) -eq 0 ]; then ours_once && theirs_once; else theirs_once && ours_once; fi
        pair=$((pair + 1))
        echo "pair $pair of $pairs"
    done
}

known
if [ -n "$oob" ]; then
    their_server="$their_server $their_server_oob"
    their_client="$their_client $their_client_oob"
fi
[ -n "$failed" ] || "$what" "$@"
[ -z "$failed" ]
