"""DuckDB in memory: a join and an aggregate of 2 million rows."""
import duckdb

database = duckdb.connect()
database.execute("create table t as select i, i * 7919 % 1000003 as k from range(2000000) r(i)")
print(database.execute("select count(*) from (select x.k, sum(y.i) from t x join t y on x.i = y.k group by 1)").fetchone())
