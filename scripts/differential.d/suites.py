"""The suites: what they need, how they are got, which jobs they have.

A suite has `name`, `packages` (what `--install` asks apt for), `prepare(work, selection)` that builds what is to be built and gives None or the reason
why the suite cannot run, `jobs(selection)`, and `absent`: tests left out and why.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import time

from engine import Job

HERE = pathlib.Path(__file__).resolve().parent


def newer(target, *sources):
    return target.exists() and all(target.stat().st_mtime >= s.stat().st_mtime for s in sources)


def compile_c(target, sources, *flags):
    """None, or the compiler's first error."""
    command = ["cc", "-O2", "-g", "-pthread", *flags, "-o", str(target), *map(str, sources)]
    if "-c" not in flags:
        command += [f for f in flags if f.startswith("-l")]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line]
    return (lines or ["the compiler failed"])[0]


class Fuzz:
    """Our own fuzzers, each seed a test: its verdict is the hash over all results, or the number of differences from the model."""

    name = "fuzz"
    packages = ["gcc", "libc6-dev"]
    # (program, threads, calls of a job, jobs of the whole suite, jobs of the selection)
    PLAN = [
        ("memory_calls", 1, 20000, 100, 3),
        ("memory_calls", 3, 20000, 20, 2),
        ("malloc_calls", 1, 20000, 10, 1),
        ("malloc_calls", 4, 20000, 6, 1),
        ("shared_counters", 4, 3000, 6, 1),
        ("fork_calls", 3, 20000, 10, 1),
    ]

    def __init__(self):
        self.absent = {}

    def prepare(self, work, _selection):
        if not shutil.which("cc"):
            return "there is no C compiler"
        self.directory = work / "fuzz"
        self.directory.mkdir(parents=True, exist_ok=True)
        for program in {plan[0] for plan in self.PLAN}:
            target, source = self.directory / program, HERE / f"{program}.c"
            if newer(target, source, HERE / "fuzz.h", HERE / "model.h"):
                continue
            error = compile_c(target, [source], "-Wno-use-after-free", "-Wno-free-nonheap-object")
            if error:
                return f"{program}.c: {error}"
        return None

    def jobs(self, selection):
        for program, threads, calls, many, few in self.PLAN:
            for seed in range(1, (few if selection else many) + 1):
                if selection:
                    calls = min(calls, 5000)
                command = [self.directory / program, "--seed", seed, "--calls", calls, "--threads", threads]
                yield Job(
                    self.name,
                    f"{program} {threads} {seed}",
                    [str(word) for word in command],
                    timeout=120,
                    read=self.read(f"{program} threads {threads} seed {seed}"),
                )

    @staticmethod
    def read(test):
        def of(finished, _directory):
            said = re.search(r"^calls (\d+) (?:hash|differences) (\w+)$", finished.output, re.M)
            verdict = finished.verdict()
            if verdict == "pass":
                verdict = f"pass {said[2]}" if said else "pass without a hash"
            elif verdict == "fail":
                wrong = re.search(r"^mismatch\b.*", finished.output, re.M)
                verdict = wrong[0][:200] if wrong else f"exit {finished.status}"
            return {test: verdict}, int(said[1]) if said else 0

        return of


class CPython:
    """The tests of Debian's python3.11, module by module; each test has its verdict."""

    name = "cpython"
    packages = ["python3.11", "libpython3.11-testsuite"]
    PYTHON = pathlib.Path("/usr/bin/python3.11")
    LIMIT = 100  # seconds for one test
    # Each module is named once, the slow ones first, so that none is alone at the end.
    MODULES = """
        test_multiprocessing_spawn test_multiprocessing_forkserver test_multiprocessing_fork test_concurrent_futures test_asyncio
        test_socket test_subprocess test_io test_threading test_signal test_ssl test_tarfile test_zipfile test_pickle test_lzma
        test_bz2 test_venv test_tracemalloc test_faulthandler test_asyncgen test_unicode test_bytes test_tokenize
        test_os test_posix test_mmap test_fork1 test_thread test_gc test_ctypes test_resource test_select test_selectors test_poll
        test_epoll test_pty test_openpty test_bigmem test_bigaddrspace test_zlib test_gzip test_json test_hashlib
        test_decimal test_array test_memoryio test_memoryview test_buffer test_struct test_re test_sort test_set test_dict test_list
        test_deque test_collections test_heapq test_itertools test_functools test_weakref test_descr test_class test_exceptions
        test_generators test_coroutines test_contextlib test_fileio test_file test_tempfile test_shutil test_pathlib test_glob
        test_logging test_queue test_sched test_threadsignals test_threading_local test_threadedtempfile test_timeout test_wait3
        test_wait4 test_popen test_eintr test_fcntl test_ioctl test_atexit test_sys test_sys_settrace test_code test_compile
        test_ast test_import test_importlib test_pkgutil test_zipimport test_marshal test_copy test_copyreg test_long test_float
        test_math test_cmath test_random test_statistics test_string test_format test_fstring test_codecs test_unicodedata
        test_xml_etree test_xml_etree_c test_pyexpat test_minidom test_csv test_configparser test_datetime test_time
        test_locale test_email test_mailbox test_http_cookies test_httplib test_httpservers test_urllib test_urlparse test_smtplib
        test_ftplib test_socketserver test_largefile test_shelve test_dbm test_crypt test_hmac test_binascii test_base64 test_audit
        test_embed test_cmd_line test_cmd_line_script test_runpy test_repl test_regrtest test_peepholer test_trace test_profile
        test_cprofile test_doctest test_unittest test_typing test_dataclasses test_enum test_inspect test_argparse
    """
    SELECTED = ["test_mmap", "test_gc", "test_json"]
    ABSENT = {
        "test_capi, test_sqlite3": "Debian's package lacks the modules that they import, or the tests",
        "test_gdb": "stops its program in a debugger that is not installed",
        "test_idle, test_tk, test_turtle": "want a display",
        "test_urllibnet, test_smtpnet": "want the internet",
        "AF_VSOCK in test_socket": "has one port for the whole machine, and waits for an end that may not be there",
    }

    def __init__(self):
        self.absent = dict(self.ABSENT)

    def prepare(self, _work, _selection):
        if not self.PYTHON.exists():
            return f"{self.PYTHON} is not installed (apt-get install {' '.join(self.packages)})"
        if not pathlib.Path("/usr/lib/python3.11/test/test_mmap.py").exists():
            return "its tests are not installed (apt-get install libpython3.11-testsuite)"
        return None

    def jobs(self, selection):
        for module in self.SELECTED if selection else dict.fromkeys(self.MODULES.split()):
            yield Job(
                self.name,
                module,
                [str(self.PYTHON), str(HERE / "cpython_tests.py"), module, "results", str(self.LIMIT)],
                timeout=900,
                read=self.read,
                again=lambda finished, directory: not finished.timed_out and not self.is_done(directory),
            )

    @staticmethod
    def lines(directory):
        path = pathlib.Path(directory, "results")
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def is_done(self, directory):
        """Nothing to run again: it came to its end, or no test began since the last start."""
        lines = self.lines(directory)
        if not lines or lines[-1] == "done":
            return True
        if not lines[-1].startswith("start "):
            return True
        # Which test it died in is noted, and that test is not started again.
        started, test = int(lines[-1].split(" ", 2)[1]), lines[-1].split(" ", 2)[2]
        verdict = "hang" if time.time() - started >= self.LIMIT - 1 else "killed"
        with open(pathlib.Path(directory, "results"), "a", encoding="utf-8") as file:
            file.write(f"{verdict} {test}\n")
        return False

    def read(self, finished, directory):
        self.is_done(directory)
        verdicts = {}
        lines = self.lines(directory)
        for line in lines:
            word, _, test = line.partition(" ")
            if word in ("pass", "fail", "skip", "hang", "killed"):
                verdicts[test] = word
        if "done" not in lines:
            verdicts["(the module)"] = finished.verdict() if finished.status or finished.timed_out else "cut off"
        return verdicts, 0


class StressNg:
    """Memory stressors with --verify, two seconds each."""

    name = "stress-ng"
    packages = ["stress-ng"]
    SIZES = {
        "bigheap": ["--bigheap-growth", "1M"],
        "malloc": ["--malloc-bytes", "16M"],
        "memfd": ["--memfd-bytes", "32M"],
        "memrate": ["--memrate-bytes", "32M"],
        "mmap": ["--mmap-bytes", "64M"],
        "mremap": ["--mremap-bytes", "32M"],
        "msync": ["--msync-bytes", "16M"],
        "shm": ["--shm-bytes", "8M"],
        "shm-sysv": ["--shm-sysv-bytes", "8M"],
        "stream": ["--stream-l3-size", "4M"],
        "userfaultfd": ["--userfaultfd-bytes", "16M"],
        "vm": ["--vm-bytes", "64M"],
        "vm-rw": ["--vm-rw-bytes", "32M"],
        "vm-splice": ["--vm-splice-bytes", "16M"],
        "fork": ["--fork-max", "4"],
        "vfork": ["--vfork-max", "4"],
        "mlockmany": ["--mlockmany-procs", "16"],
    }
    STRESSORS = """
        bad-altstack bigheap brk clone context dev-shm env fault fork getrandom heapsort hsearch judy lockbus lsearch madvise malloc
        matrix matrix-3d mcontend membarrier memcpy memfd memrate memthrash mergesort mincore misaligned mlock mlockmany mmap
        mmapaddr mmapfixed mmapfork mmaphuge mmapmany mprotect mremap msync msyncmany munmap opcode pageswap physpage pipe pkey
        prefetch pthread qsort radixsort randlist remap resources rmap sem shellsort shm shm-sysv sigsegv skiplist sparsematrix
        splice stack stackmmap str stream switch sysinval tlb-shootdown tmpfs tree tsearch userfaultfd vfork vm vm-addr vm-rw
        vm-segv vm-splice wcs zero zlib vdso set shellsort secretmem ptrace procfs list bsearch atomic
    """
    LEFT_OUT = {
        "full, numa, oom-pipe, null, pipeherd": "no memory of the program's, or made to disturb the machine",
        "swap, memhotplug, ramfs, drop-caches, idle-page, ksm": "change the machine",
        "resources, sysinval, procfs, opcode, pageswap, physpage": "take what the machine has, or touch what is not the program's",
    }

    def __init__(self):
        self.absent = dict(self.LEFT_OUT)

    def prepare(self, _work, _selection):
        if not shutil.which("stress-ng"):
            return "it is not installed (apt-get install stress-ng)"
        return None

    def jobs(self, selection):
        out = {name for names in self.LEFT_OUT for name in names.split(", ")}
        few = ["mremap", "malloc"]
        for name in few if selection else [n for n in dict.fromkeys(self.STRESSORS.split()) if n not in out]:
            command = ["stress-ng", f"--{name}", "1", "--timeout", "1" if selection else "2", "--verify", "--seed", "1"]
            yield Job(
                self.name,
                name,
                command + ["--temp-path", ".", *self.SIZES.get(name, [])],
                timeout=60,
                read=self.read(name),
            )

    @staticmethod
    def read(name):
        def of(finished, _directory):
            verdict = finished.verdict()
            if finished.status in (3, 4) and not finished.timed_out:
                verdict = "skip"
            elif re.search(r"\bfail: ", finished.output):
                verdict = "fail"
            elif re.search("unrecognized option|Unknown option|No stress workers invoked", finished.output):
                verdict = "skip"
            elif re.search(r"terminated on signal: (\d+)", finished.output):
                verdict = "killed"
            return {name: verdict}, 0

        return of


class Selftests:
    """The kernel's tools/testing/selftests/mm, of Debian's linux-source-6.12."""

    name = "selftests"
    packages = ["linux-source-6.12", "xz-utils", "libcap-dev", "libnuma-dev", "gcc", "libc6-dev"]
    TARBALL = pathlib.Path("/usr/src/linux-source-6.12.tar.xz")
    TESTS = """
        cow droppable gup_longterm ksm_functional_tests madv_populate map_fixed_noreplace map_populate mdwe_test memfd_secret
        migration mkdirty mlock-random-test mlock2-tests mrelease_test mremap_dontunmap mremap_test mseal_test on-fault-limit
        pagemap_ioctl pkey_sighandler_tests seal_elf soft-dirty transhuge-stress uffd-stress uffd-unit-tests va_high_addr_switch
        hugepage-mremap
    """
    ARGUMENTS = {"transhuge-stress": [["-d", "1", "128"]], "uffd-stress": [["anon", "20", "16"], ["shmem", "20", "16"]]}
    LEFT_OUT = {
        "compaction_test, khugepaged, ksm_tests, split_huge_page_test": "change the machine's settings and measure it",
        "hmm-tests, gup_test": "want a module of the kernel",
        "hugetlb-*, hugepage-shm, hugepage-vmemmap, map_hugetlb, thuge-gen": "want a pool that is set up for them",
        "virtual_address_range": "takes all address space",
        "protection_keys": "wants a compiler option for xsave",
    }

    def __init__(self):
        self.absent = dict(self.LEFT_OUT)

    def prepare(self, work, selection):
        if selection:
            return "not part of the selection"
        if not self.TARBALL.exists():
            return f"{self.TARBALL} is missing (apt-get install linux-source-6.12)"
        self.directory = work / "selftests"
        if (self.directory / "built").exists():
            return self.missing()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        top = "linux-source-6.12"
        wanted = ["tools/testing/selftests/mm", "tools/testing/selftests/lib", "tools/testing/selftests/pidfd", "include/uapi", "mm/gup_test.h"]
        subprocess.run(
            ["tar", "xf", self.TARBALL, "-C", self.directory, "--wildcards", f"{top}/tools/testing/selftests/*.h"]
            + [f"{top}/{path}" for path in wanted],
            check=True,
        )
        source = self.directory / top
        # The kernel's own headers, made fit for programs as `make headers_install` does it.
        include = self.directory / "include"
        for part in ("linux", "asm-generic"):
            shutil.copytree(source / "include/uapi" / part, include / part)
        for header in include.rglob("*.h"):
            text = header.read_text(encoding="utf-8", errors="replace")
            text = re.sub(r"\b(__user|__force|__iomem)\b", "", text)
            text = re.sub(r"\b__packed\b", "__attribute__((packed))", text)
            text = re.sub(r"^#include <linux/compiler(_types)?\.h>", "", text, flags=re.M)
            header.write_text(text, encoding="utf-8")
        (include / "local_config.h").write_text("")
        mm = source / "tools/testing/selftests/mm"
        for test in self.TESTS.split():
            more = ["uffd-common.c"] if test.startswith("uffd-") else []
            error = compile_c(
                self.directory / test,
                [mm / name for name in (f"{test}.c", "vm_util.c", "thp_settings.c", *more)],
                *("-w", "-D_GNU_SOURCE", f"-I{include}", f"-I{mm.parent}", "-lpthread", "-lrt", "-lcap", "-lnuma"),
            )
            if error:
                (self.directory / f"{test}.error").write_text(error)
        (self.directory / "built").touch()
        return self.missing()

    def missing(self):
        for error in self.directory.glob("*.error"):
            self.absent[error.stem] = "does not build: " + error.read_text()
        return None

    def jobs(self, _selection):
        for test in self.TESTS.split():
            program = self.directory / test
            if not program.exists():
                continue
            for arguments in self.ARGUMENTS.get(test, [[]]):
                name = " ".join([test, *arguments])
                # Some set what is the machine's (KSM, THP sizes) while they run: one at a time.
                yield Job(self.name, name, [str(program), *arguments], timeout=60, read=self.read(name), alone=True)

    @staticmethod
    def read(name):
        def of(finished, _directory):
            verdicts = {name: finished.verdict()}
            seen = collections.Counter()
            run = ""  # what is tried is said in a line before, with the same words of outcome for each
            for line in finished.output.splitlines():
                if line.startswith("# [RUN]"):
                    run = line.removeprefix("# [RUN]").strip()
                tap = re.match(r"(ok|not ok) \d+ ?-? ?(.*)", line)
                if not tap:
                    continue
                said = re.sub(r"0x[0-9a-f]+|\s*# (SKIP|XFAIL).*", "", tap[2]).strip()
                # Outcomes that are worded differently when skipped are one test all the same; measured numbers are none.
                test = f"{name}: {run or re.sub(r'[0-9.]+', 'N', said)}"
                seen[test] += 1
                test = f"{test} ({seen[test]})" if seen[test] > 1 else test
                verdicts[test] = "skip" if "# SKIP" in tap[2] else {"ok": "pass", "not ok": "fail"}[tap[1]]
            for what, verdict in re.findall(r"^Testing (.*?)\.\.\. (done|skipped|failed)", finished.output, re.M):
                verdicts[f"{name}: {what}"] = {"done": "pass", "skipped": "skip", "failed": "fail"}[verdict]
            return verdicts, 0

        return of


class Glibc:
    """glibc's tests of malloc, of Debian's glibc-source, built against the installed glibc."""

    name = "glibc"
    packages = ["glibc-source", "xz-utils", "gcc", "libc6-dev"]
    LEFT_OUT = {
        "tst-compathooks-*, tst-mallocstate": "need glibc's internal headers",
        "tst-interpose-*": "bring a malloc of their own",
        "tst-malloc-usable, tst-malloc-usable-tunables, tst-mtrace": "need the build's tunables and preloads",
    }
    SELECTED = ["tst-malloc", "tst-realloc", "tst-calloc", "tst-memalign"]
    HEADERS = """
        include/libc-diag.h include/array_length.h include/intprops.h include/scratch_buffer.h include/alloc_buffer.h
        include/allocate_once.h include/verify.h include/libc-pointer-arith.h sysdeps/generic/malloc-size.h
        sysdeps/generic/malloc-alignment.h sysdeps/x86_64/stackinfo.h
    """
    # What glibc's own build says on its command lines and in its internal headers.
    SHIM = "#include <limits.h>\n" + "".join(
        f"#define {line}\n"
        for line in ["TIMEOUTFACTOR 1", "libc_hidden_proto(x)", "libc_hidden_def(x)", "attribute_hidden"]
        + [f'{word}_PATH "/nowhere"' for word in "SRCDIR OBJDIR INSTDIR LIBDIR BINDIR SBINDIR ROOTSBINDIR COMPLOCALEDIR SYSCONFDIR SLIBDIR OBJDIR_ELF_LDSO".split()]
    )

    def __init__(self):
        self.absent = dict(self.LEFT_OUT)

    def prepare(self, work, selection):
        tarballs = sorted(pathlib.Path("/usr/src/glibc").glob("glibc-*.tar.xz"))
        if not tarballs:
            return "there is no /usr/src/glibc/glibc-*.tar.xz (apt-get install glibc-source)"
        self.directory = work / "glibc"
        if selection and not (self.directory / "built").exists():
            return "not built yet, and building it is not part of the selection"
        if (self.directory / "built").exists():
            return self.missing()
        shutil.rmtree(self.directory, ignore_errors=True)
        include = self.directory / "include"
        include.mkdir(parents=True)
        top = tarballs[0].name.removesuffix(".tar.xz")
        subprocess.run(
            ["tar", "xf", tarballs[0], "-C", self.directory]
            + [f"{top}/{part}" for part in ("malloc", "support", "include", "test-skeleton.c", "sysdeps/generic", "sysdeps/x86_64")],
            check=True,
        )
        source = self.directory / top
        for header in self.HEADERS.split():
            shutil.copy(source / header, include)
        (include / "config.h").touch()
        shim = include / "shim.h"
        shim.write_text(self.SHIM)
        flags = ["-w", "-std=gnu11", "-fgnu89-inline", "-D_GNU_SOURCE", "-include", str(shim)]
        flags += [f"-I{include}", f"-I{source}", f"-I{source}/support"]
        objects = self.directory / "support"
        objects.mkdir()
        programs = re.compile(r"(test|tst)-.*|(shell|echo|true)-container|links-dso-program.*|.*(blob|string)_main")
        for file in sorted((source / "support").glob("*.c")):
            if not programs.fullmatch(file.stem):
                compile_c(objects / f"{file.stem}.o", [file], "-c", *flags)
        library = self.directory / "libsupport.a"
        subprocess.run(["ar", "rc", library, *sorted(objects.glob("*.o"))], check=True)
        for file in sorted((source / "malloc").glob("tst-*.c")):
            error = compile_c(self.directory / file.stem, [file, library], "-fno-builtin", *flags, "-ldl")
            if error:
                (self.directory / f"{file.stem}.error").write_text(error)
        (self.directory / "built").touch()
        return self.missing()

    def missing(self):
        for error in self.directory.glob("*.error"):
            self.absent[error.stem] = "does not build: " + error.read_text()
        return None

    def jobs(self, selection):
        out = [name.strip() for names in self.LEFT_OUT for name in names.split(",")]
        for program in sorted(self.directory.glob("tst-*")):
            if program.suffix or any(pathlib.PurePath(program.name).match(pattern) for pattern in out):
                continue
            if selection and program.name not in self.SELECTED:
                continue
            yield Job(self.name, program.name, [str(program)], timeout=120)


class Ltp:
    """The Linux Test Project: named, so that its absence is counted."""

    name = "ltp"
    packages = []

    def __init__(self):
        self.absent = {}

    def prepare(self, _work, _selection):
        return "Debian has no package of it"

    def jobs(self, _selection):
        return []


SUITES = [Fuzz, CPython, StressNg, Selftests, Glibc, Ltp]


def install(names):
    """Fetches what suites need; apt says what it does."""
    packages = sorted({p for suite in SUITES if suite.name in names for p in suite.packages})
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], env=environment, check=False)
    for package in packages:
        # One by one: what cannot be had is a reason for one suite only.
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", package], env=environment, check=False)
    return True
