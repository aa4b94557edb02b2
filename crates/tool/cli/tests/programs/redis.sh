# A server under load that saves in the background meanwhile; what it saved is loaded again.
set -eu
scale=$1
here=$PWD
pid=
start() {
    redis-server --port 0 --unixsocket "$here/s" --dir "$here" --dbfilename "$1" --save '' \
        --daemonize no --loglevel warning --enable-debug-command yes > "$here/log" 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        case $(redis-cli -s s ping 2>/dev/null || :) in PONG) return 0 ;; esac
        sleep 0.05
    done
    cat "$here/log" >&2
    return 1
}
ask() { redis-cli -s s "$@"; }
stop() {
    [ -z "$pid" ] && return 0
    ask shutdown nosave 2>/dev/null || kill "$pid"
    wait "$pid" || echo "the server ended with $?"
    pid=
}
trap '[ -z "$pid" ] || kill "$pid"' EXIT
saved() {
    for _ in $(seq 600); do
        case $(ask info persistence | tr -d '\r') in *rdb_bgsave_in_progress:0*) break ;; esac
        sleep 0.05
    done
    ask info persistence | tr -d '\r' | grep rdb_last_bgsave_status
}
fixed='local sum = 0
for i = 1, tonumber(ARGV[1]) do
    local value = redis.call("get", "fixed:" .. i)
    if value == string.rep(tostring(i), 20) then sum = sum + 1 end
end
return sum'
start dump.rdb
ask eval 'for i = 1, tonumber(ARGV[1]) do redis.call("set", "fixed:" .. i, string.rep(tostring(i), 20)) end' \
    0 $((40000 * scale)) > /dev/null
redis-benchmark -s s -q -c 20 -t set,lpush,zadd -n $((10000 * scale)) -r 20000 -d 300 > "$here/benchmark" 2>&1 &
load=$!
sleep 0.1
ask bgsave > /dev/null
saved
cp dump.rdb during.rdb
wait "$load" && echo "the load ended well"
ask bgsave > /dev/null
saved
ask info stats | tr -d '\r' | grep latest_fork_usec > "$here/facts"
before=$(ask debug digest)
stop
start dump.rdb
[ "$(ask debug digest)" = "$before" ] && echo "all came back"
stop
start during.rdb
echo "fixed keys: $(ask eval "$fixed" 0 $((40000 * scale)))"
stop
exit 4
