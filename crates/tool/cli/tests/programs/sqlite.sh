# Load, index, query, and the database file itself.
set -eu
scale=$1
sqlite3 data.db <<SQL
pragma cache_size=-64000; pragma mmap_size=67108864;
create table item(id integer primary key, name text, amount integer);
with recursive n(i) as (select 1 union all select i+1 from n where i < $((150000 * scale)))
insert into item select i, 'name' || (i * 7919 % 100003), i * 31 % 1009 from n;
create index by_name on item(name);
create index by_amount on item(amount, name);
select count(*), sum(amount), min(name), max(name) from item;
select amount, count(*) from item group by amount order by 2 desc, 1 limit 5;
select a.name, b.id from item a join item b on a.name = b.name and a.id < b.id order by 1, 2 limit 5;
delete from item where amount % 3 = 0;
vacuum;
pragma integrity_check;
SQL
cksum data.db
sqlite3 data.db 'select * from missing' 2>/dev/null
