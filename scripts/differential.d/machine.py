"""What the comparison changes on the machine, and how it is put back.

Values are written to a file before they are changed; they are put back on every exit, and after a kill -9 by the next run. Meanwhile the
lock is held that all tests take that change such settings.
"""

import contextlib
import fcntl
import json
import os
import pathlib

LOCK = pathlib.Path("/run/lock/superpage-tests")
OVERCOMMIT = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages")
# Pages beyond the limit that others hold count towards it.
SURPLUS = OVERCOMMIT.with_name("surplus_hugepages")
PAGES = 1536  # 3 GiB
# What the kernel's selftests set for themselves and do not put back.
SET_BY_TESTS = [pathlib.Path("/sys/kernel/mm/ksm/run")]


def why_not():
    """Why pages of the pool cannot be had, or None."""
    if not OVERCOMMIT.exists():
        return "the kernel has no pool of 2 MiB pages"
    if os.geteuid() != 0:
        return "the pool's overcommit can only be raised as root"
    if not os.access(OVERCOMMIT, os.W_OK):
        return f"{OVERCOMMIT} is read-only"
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    if available < 4 << 20:
        return "less than 4 GiB of memory are available"
    return None


def restore(journal):
    """Puts back what is in the journal. Only under the lock: whoever holds it may be in the midst."""
    if not journal.exists():
        return
    try:
        before = json.loads(journal.read_text())
    except ValueError:
        before = {}  # killed while it was written: nothing had been changed yet
    for path, value in before.items():
        pathlib.Path(path).write_text(value)
    journal.unlink()


@contextlib.contextmanager
def kept(journal, raises_overcommit):
    """While this is open the lock is held; at the end settings are as they were."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with open(LOCK, "a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        restore(journal)
        paths = [path for path in [OVERCOMMIT, *SET_BY_TESTS] if os.access(path, os.W_OK)]
        before = {str(path): path.read_text().strip() for path in paths}
        with open(journal, "w", encoding="ascii") as file:
            json.dump(before, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            limit = int(SURPLUS.read_text()) + PAGES if raises_overcommit else 0
            if raises_overcommit and int(before[str(OVERCOMMIT)]) < limit:
                OVERCOMMIT.write_text(str(limit))
            yield
        finally:
            restore(journal)
