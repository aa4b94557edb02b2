"""Runs jobs natively and under modes, and compares the verdicts of their tests.

A job is one command that gives verdicts of one or many tests. Every result is appended to a file before the next job starts, so
that a run that was interrupted goes on where it was. A verdict that differs is looked at again: the job runs twice more
natively and twice more under the mode, alone. Natively not the same three times: flaky. Under the mode the same as natively in
both: seen once. Else it is a difference, and must be explained or it counts.
"""

import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from typing import Callable

THP = {"SUPERPAGE_MEMORY": "heap,mmap", "SUPERPAGE_PAGES": "thp"}
POOL = {"SUPERPAGE_MEMORY": "heap,mmap", "SUPERPAGE_PAGES": "hugetlb"}
NATIVE = "native"
MODES = {
    "T": THP,
    "P": THP | {"SUPERPAGE_PREZERO": "67108864", "SUPERPAGE_PREFAULT": "67108864"},
    "F": THP | {"SUPERPAGE_MEMORY": "heap,mmap,files=2097152"},
    "H": POOL,
    "S": POOL | {"SUPERPAGE_MEMORY": "heap,mmap,shm"},
    "D": {},
    "I": {},
}
ON_POOL = ("H", "S")
# Carried out by the launcher while the program runs. With D no library is in it.
DESIGN = ["-q", "--design", "quicksilver-sync-64"]
BY_LAUNCHER = {"D": DESIGN, "I": [*DESIGN, "--executor", "in-place"]}


@dataclasses.dataclass
class Finished:
    """How a command ended."""

    status: int  # negative: killed by this signal
    timed_out: bool
    output: str

    def verdict(self):
        """For a command that is one test: exit status 0 passed, 4 and 77 skipped, as kernel selftests and automake have it."""
        if self.timed_out:
            return "hang"
        if self.status < 0:
            return "killed " + signal.Signals(-self.status).name
        return {0: "pass", 4: "skip", 77: "skip"}.get(self.status, "fail")


@dataclasses.dataclass
class Job:
    suite: str
    name: str
    command: list
    timeout: int = 120
    # (how it ended, the job's directory) to (verdict by test, calls made)
    read: Callable = None
    # Whether the command is to run again after it died within a test: (how it ended, directory) to bool.
    again: Callable = None
    alone: bool = False  # nothing runs beside it
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Result:
    suite: str
    job: str
    mode: str
    round: int
    verdicts: dict
    calls: int
    seconds: float


def environment_of(mode, job, library, launcher=None):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("SUPERPAGE_", "LD_PRELOAD", "PYTHON"))}
    base |= {"LC_ALL": "C.UTF-8"} | job.environment
    if mode == NATIVE or mode in BY_LAUNCHER or launcher:
        return base
    return base | MODES[mode] | {"LD_PRELOAD": str(library)}


def launcher_of(library):
    return library.with_name("superpage")


def command_of(mode, job, library, launcher=None):
    """What is executed: the job, or `superpage run` with the job."""
    if mode in BY_LAUNCHER:
        return [launcher or launcher_of(library), "run", *BY_LAUNCHER[mode], "--", *job.command]
    if mode == NATIVE or not launcher:
        return job.command
    flags = {
        "T": ["--heap", "--mmap", "--pages", "thp"],
        "P": ["--heap", "--mmap", "--pages", "thp", "--prezero=64M", "--prefault=64M"],
        "F": ["--heap", "--mmap", "--files=2M", "--pages", "thp"],
        "H": ["--heap", "--mmap", "--pages", "hugetlb"],
        "S": ["--heap", "--mmap", "--shm", "--pages", "hugetlb"],
    }[mode]
    return [launcher, "run", *flags, "--", *job.command]


def reproduction(mode, job, library, launcher=None):
    """The command a person types."""
    words = [f"{k}={v}" for k, v in job.environment.items()]
    if mode != NATIVE and mode not in BY_LAUNCHER and not launcher:
        words += [f"{k}={v}" for k, v in MODES[mode].items()] + [f"LD_PRELOAD={library}"]
    return " ".join((["env", *words] if words else []) + [str(w) for w in command_of(mode, job, library, launcher)])


def end_marked(mark):
    """Ends what a job left behind in other sessions: processes whose environment has the job's mark."""
    needle = f"DIFFERENTIAL_JOB={mark}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if needle in pathlib.Path(entry.path, "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


RUNNING = set()  # process groups, so that an interrupted run need not wait for them


def end_all():
    for group in list(RUNNING):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass


def execute(command, environment, directory, timeout):
    """Runs a command in a session of its own; nothing of it is left when this returns."""
    mark = uuid.uuid4().hex
    with open(pathlib.Path(directory, "output"), "w+b") as output:
        child = subprocess.Popen(
            command,
            env=environment | {"DIFFERENTIAL_JOB": mark, "TMPDIR": str(directory)},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        RUNNING.add(child.pid)
        timed_out = False
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:  # also when this run is interrupted
            for end in (lambda: os.killpg(child.pid, signal.SIGKILL), child.wait):
                try:
                    end()
                except ProcessLookupError:
                    pass
            RUNNING.discard(child.pid)
            end_marked(mark)
        output.seek(max(0, output.seek(0, os.SEEK_END) - (1 << 20)))
        text = output.read().decode("utf-8", "replace")
    return Finished(child.returncode, timed_out, text)


class Engine:
    """Keeps results in a directory."""

    def __init__(self, directory, scratch, library, launcher, workers, deadline=None, say=print):
        self.file = pathlib.Path(directory, "results.jsonl")
        self.scratch = pathlib.Path(scratch)
        self.library, self.launcher = library, launcher
        self.workers, self.deadline, self.say = workers, deadline, say
        self.lock = threading.Lock()
        self.results = {}
        self.not_run = []
        self.stopped = False
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                try:
                    result = Result(**json.loads(line))
                except (ValueError, TypeError):
                    continue  # cut off by whatever ended the run before
                self.results[result.suite, result.job, result.mode, result.round] = result

    def postpone(self, seconds):
        """Time that was spent waiting for others, not on tests."""
        if self.deadline:
            self.deadline += seconds

    def run_one(self, job, mode, round=0):
        key = (job.suite, job.name, mode, round)
        if key in self.results:
            return self.results[key]
        if self.stopped:
            return None
        # What differs is looked at again even when time is up: that is short.
        if self.deadline and not round and time.monotonic() > self.deadline:
            with self.lock:
                self.not_run.append(key)
            return None
        directory = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=self.scratch))
        start = time.monotonic()
        try:
            for _ in range(8):
                finished = execute(
                    command_of(mode, job, self.library, self.launcher),
                    environment_of(mode, job, self.library, self.launcher),
                    directory,
                    job.timeout,
                )
                if not (job.again and job.again(finished, directory)):
                    break
            verdicts, calls = job.read(finished, directory) if job.read else ({job.name: finished.verdict()}, 0)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if self.stopped:
            return None  # it was ended, not finished
        result = Result(job.suite, job.name, mode, round, verdicts, calls, round_to(time.monotonic() - start))
        with self.lock:
            self.results[key] = result
            with open(self.file, "a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(result)) + "\n")
        return result

    def run_all(self, pairs, end=None):
        """Jobs that may run beside others do, the others follow one by one. What had not begun at the time `end` is given back."""
        rest = []

        def run(job, mode):
            if end and time.monotonic() > end:
                rest.append((job, mode))
            else:
                self.run_one(job, mode)

        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            try:
                for future in [pool.submit(run, job, mode) for job, mode in pairs if not job.alone]:
                    future.result()
            except BaseException:
                self.stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()
                raise
        for job, mode in pairs:
            if job.alone:
                run(job, mode)
        return rest

    def differing(self, job, mode):
        native, other = (self.results.get((job.suite, job.name, m, 0)) for m in (NATIVE, mode))
        if not native or not other:
            return []
        tests = native.verdicts.keys() | other.verdicts.keys()
        return sorted(t for t in tests if native.verdicts.get(t, "absent") != other.verdicts.get(t, "absent"))

    def judge(self, job, mode):
        """Repeats what differs. Gives (test, kind, native verdicts, mode verdicts)."""
        tests = self.differing(job, mode)
        if not tests:
            return []
        def verdicts(test):
            return (
                [r.verdicts.get(test, "absent") for n in range(3) if (r := self.results.get((job.suite, job.name, m, n)))]
                for m in (NATIVE, mode)
            )

        for round in (1, 2):
            self.run_one(job, NATIVE, round)
            if all(len(set(native)) > 1 for native, _ in map(verdicts, tests)):
                break  # flaky, whatever comes
            self.run_one(job, mode, round)
        found = []
        for test in tests:
            native, other = verdicts(test)
            if len(set(native)) > 1:
                kind = "flaky"
            elif len(native) < 3 or len(other) < 3:
                kind = "not repeated"
            elif all(v == native[0] for v in other[1:]):
                kind = "once"
            else:
                kind = "difference"
            found.append((test, kind, native, other))
        return found


def round_to(seconds):
    return float(f"{seconds:.3f}")


@dataclasses.dataclass
class Explanation:
    suite: str
    test: str
    modes: list
    why: str
    used: int = 0

    def covers(self, suite, test, mode):
        return suite == self.suite and mode in self.modes and fnmatch.fnmatchcase(test, self.test)


def explanations(path):
    """Lines `SUITE TEST MODES WHY`; TEST may have * and ? (also for a blank), MODES is like T,P. Lines with # are comments."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split(None, 3)
        modes = words[2].split(",") if len(words) == 4 else []
        if not modes or any(mode not in MODES for mode in modes):
            raise ValueError(f"{path}:{number}: expected SUITE TEST MODES WHY, with modes of {','.join(MODES)}: {line!r}")
        found.append(Explanation(words[0], words[1], modes, words[3]))
    return found
