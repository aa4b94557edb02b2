"""Programs in Python for scripts/advise-check: NAME SECONDS [COUNTER], as programs.c."""
import mmap
import random
import sqlite3
import struct
import sys
import time


def dictionary():
    """Look-ups of random keys in a dictionary of three million strings."""
    table = {f"key{number}": number for number in range(3_000_000)}
    keys = random.sample(list(table), 500_000)

    def work():
        total = 0
        for key in keys:
            total += table[key]
        return len(keys)

    return work


def sqlite():
    """Rows by random keys of a table in memory."""
    base = sqlite3.connect(":memory:")
    base.execute("create table t (k integer primary key, v text)")
    rows = ((key, f"value {key} " * 4) for key in range(2_000_000))
    base.executemany("insert into t values (?, ?)", rows)

    def work():
        for _ in range(20_000):
            base.execute("select v from t where k = ?", (random.randrange(2_000_000),)).fetchone()
        return 20_000

    return work


def bytearrays():
    """Bytes at random places of 256 MiB in arrays of 64 KiB."""
    arrays = [bytearray(65536) for _ in range(4096)]
    draw = random.randrange

    def work():
        for _ in range(100_000):
            arrays[draw(4096)][draw(65536)] += 1 & draw(2)
            if arrays[draw(4096)][0] > 200:
                arrays[0][0] = 0
        return 100_000

    return work


def main():
    random.seed(1)
    work = {"dict": dictionary, "sqlite": sqlite, "bytearrays": bytearrays}[sys.argv[1]]()
    seconds = float(sys.argv[2])
    counter = bytearray(16)
    if len(sys.argv) > 3:
        with open(sys.argv[3], "r+b") as file:
            counter = mmap.mmap(file.fileno(), 16)
    work()
    print("ready", flush=True)
    begun = time.process_time()
    done = 0
    while seconds == 0 or time.process_time() - begun < seconds:
        done += work()
        counter[:16] = struct.pack("=QQ", done, int((time.process_time() - begun) * 1e9))
    print("rate", done / (time.process_time() - begun))


main()
