# Lists, dicts, threads, subprocesses, both kinds of worker processes, and mappings that are resized.
import hashlib, mmap, multiprocessing, subprocess, sys, threading

SCALE = int(sys.argv[1])


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def containers():
    words = {f"word{number * 7919 % 100003}": number for number in range(60_000 * SCALE)}
    rows = [[number, str(number), {number: number * 2}] for number in range(60_000 * SCALE)]
    del rows[::3]
    rows.sort(key=lambda row: row[1])
    return digest((len(words), sum(words.values()), rows[:1000], rows[-1000:]))


def in_threads():
    results = [None] * 8

    def work(at):
        text = bytearray()
        for number in range(20_000 * SCALE):
            text += str(number * (at + 1)).encode()
        results[at] = digest(bytes(text))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    # Children made while the threads allocate.
    children = [subprocess.run(["cat"], input=b"x" * 100_000, capture_output=True) for _ in range(5)]
    for thread in threads:
        thread.join()
    return digest((results, [digest(child.stdout) for child in children]))


TABLE = None


def square(number):
    # A child of fork reads what its parent made; one of spawn has it not.
    base = TABLE[number] if TABLE else number
    return base * base + sum(len(str(n)) for n in range(2000))


def in_processes(method):
    context = multiprocessing.get_context(method)
    with context.Pool(3) as pool:
        return digest(pool.map(square, range(200), chunksize=10))


def mappings():
    seen = []
    anonymous = mmap.mmap(-1, 6 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 6 << 20, 4096):
        anonymous[at : at + 8] = at.to_bytes(8, "little")
    for size in (9 << 20, (20 << 20) + 4096, 5 << 20, (3 << 20) + 8192, 8 << 20):
        anonymous.resize(size)
        anonymous[size - 4 : size] = b"end."
        seen.append((size, hashlib.sha256(anonymous).hexdigest()))
    anonymous.madvise(mmap.MADV_DONTNEED, 4096, 3 << 20)
    seen.append(hashlib.sha256(anonymous).hexdigest())
    anonymous.close()
    shared = mmap.mmap(-1, 4 << 20)
    shared[:5] = b"first"
    with open("mapped", "w+b") as file:
        file.truncate(5 << 20)
        with mmap.mmap(file.fileno(), 5 << 20) as mapped:
            mapped[1 << 20 : (1 << 20) + 4] = b"here"
            mapped.resize(7 << 20)
            mapped[-3:] = b"end"
        seen.append(hashlib.sha256(open("mapped", "rb").read()).hexdigest())
    seen.append(shared[:8])
    return digest(seen)


if __name__ == "__main__":
    print("containers", containers())
    print("threads", in_threads())
    TABLE = [number * 3 for number in range(200)]
    print("fork", in_processes("fork"))
    print("spawn", in_processes("spawn"))
    print("mappings", mappings())
    sys.exit(42)
