# Prints PostgreSQL's own figure, that of `pool plan`, and for each pool named whether the server starts on it.
# $1: superpage, $2: the user's words before a program (may be empty). Root sets the pools.
set -eu
superpage=$1
as_user=$2
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
PATH=$PATH:$bin
export LC_ALL=C
$as_user initdb -D data -A trust -U tester --no-sync --locale=C -E UTF8 > initdb.log
options="-D $PWD/data -k $PWD -c listen_addresses= -c shared_buffers=64MB"
echo "own $($as_user postgres -C shared_memory_size_in_huge_pages $options)"

await() {
    for _ in $(seq 300); do
        grep -qs ready data/postmaster.pid && return
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.02
    done
}

stop() {
    [ ! -s data/postmaster.pid ] || kill -INT "$(head -n 1 data/postmaster.pid)"
    wait "$1" || true
}

"$superpage" pool plan --json -- $as_user "$bin/postgres" $options > plan.json 2> plan.log &
await $!
stop $!
pages=$(grep '"pages"' plan.json | head -n 1 | tr -dc 0-9)
for pool in "$pages" $((pages - 1)); do
    "$superpage" pool set "2M:$pool" -q
    $as_user "$bin/postgres" $options -c huge_pages=on > "log.$pool" 2>&1 &
    await $!
    if [ -s data/postmaster.pid ]; then
        "$superpage" pool plan --json --pid "$(head -n 1 data/postmaster.pid)" > "running.json"
        echo "started on $pool"
    fi
    stop $!
done
