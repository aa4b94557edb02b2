# A cluster is made, served, filled, worked on by several clients, and dumped.
set -eu
scale=$1
PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
export LC_ALL=C PGHOST=$PWD PGUSER=tester PGDATABASE=postgres
here=$PWD
pid=
initdb -D data -A trust -U tester --no-sync --locale=C -E UTF8 > initdb.log
postgres -D data -k "$here" -c listen_addresses= -c fsync=off -c huge_pages=off -c shared_buffers=64MB \
    -c max_parallel_workers=2 > log 2>&1 &
pid=$!
trap '[ -z "$pid" ] || kill -INT "$pid"' EXIT
for _ in $(seq 200); do pg_isready -q && break; sleep 0.05; done
pgbench -i -q -s "$scale" > /dev/null 2>&1
pgbench -n -c 4 -j 2 -t 100 --random-seed=42 > pgbench.log 2>&1
grep -c 'number of transactions actually processed: 400/400' pgbench.log
psql -qAt <<SQL
create table item as select i as id, md5(i::text) as name, i * 31 % 1009 as amount
    from generate_series(1, $((40000 * scale))) i;
create index on item(name);
set work_mem = '64MB'; set max_parallel_workers_per_gather = 2; set min_parallel_table_scan_size = 0;
set parallel_setup_cost = 0;
select count(*), sum(amount), md5(string_agg(name, ',' order by name)) from item;
select a.amount, count(*) from item a join item b on a.amount = b.amount group by 1 order by 2 desc, 1 limit 3;
select md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts;
select count(*), sum(delta) from pgbench_history;
SQL
pg_dump -t item | grep -v restrict | cksum
# The kernel's word on what lies under the shared buffers: of the pool, or mapped by THP in any process.
awk '/^[0-9a-f]+-[0-9a-f]+ / { shared = $2 ~ /s$/ } /^Size:/ { size = $2 }
    /^KernelPageSize:/ && shared && $2 > 1024 { sum += size } END { print "pool", sum + 0 }' \
    "/proc/$pid/smaps" > facts
for process in "$pid" $(cat "/proc/$pid/task/$pid/children"); do cat "/proc/$process/smaps"; done |
    awk '/^ShmemPmdMapped/ { sum += $2 } END { print "thp", sum + 0 }' >> facts
kill -INT "$pid"
status=0; wait "$pid" || status=$?
pid=
echo "the server ended with $status"
grep -cE 'PANIC|terminated by' log || :
exit 6
