create table t (k integer primary key, a integer, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 150000)
insert into t select i, (i * 7919) % 100003, printf('value %d', i) from n;
create index t_a on t (a);
select count(*) from (select a, count(*), max(b) from t group by a);
select sum(length(x.b)) from t x join t y on x.a = y.a and x.k < y.k;
