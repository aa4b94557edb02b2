"""What tests/integration/main.rs has Python do. Each function fails by an exception."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from inspect import signature
from pathlib import Path

import superpage

BIN = Path(superpage.__file__).parent / "bin"
SMALL = {"workload": "gups:size=8M,operations=1K", "memory": "256M"}
WORDS = ["-w", SMALL["workload"], "--memory", SMALL["memory"]]


def command(*words, program="superpage-lab", code=0):
    done = subprocess.run([BIN / program, *words], capture_output=True, encoding="utf-8")
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def simulations():
    run = superpage.lab.run("linux-4.3", **SMALL)
    assert run.json == command("run", "-d", "linux-4.3", *WORDS, "--json")
    assert str(run) == command("run", "-d", "linux-4.3", *WORDS)
    assert run.figures["finished"] and run.figures["seconds"] > 0

    designs = ["base", "linux-4.3", "freebsd"]
    flags = [word for design in designs for word in ("-d", design)]
    compared = superpage.lab.compare(designs, **SMALL, seed=7)
    assert compared.json == command("compare", *flags, *WORDS, "--seed", "7", "--json")
    assert compared.document["figures"] == compared.figures
    assert [line["design"] for line in compared.figures] == designs
    assert compared.document["reports"][1]["cell"]["seed"] == 7

    assert "quicksilver-zeroing" in superpage.lab.tables()
    table = superpage.lab.table("quicksilver-zeroing")
    assert table.json == command("table", "quicksilver-zeroing", "--json", "-q")
    assert len(table._rows()) == len(table.document["rows"]) * len(table.document["columns"])

    with tempfile.TemporaryDirectory() as work:
        told = []
        ours = superpage.lab.sweep(
            os.path.join(work, "a"), designs=designs, workloads=SMALL["workload"], memory=SMALL["memory"], seeds="1-2",
            progress=lambda done, of: told.append((done, of)),
        )
        assert (ours.cells, ours.planned, ours.failed) == (6, 6, []) and told[-1] == (6, 6), told
        again = superpage.lab.sweep(os.path.join(work, "a"))
        assert again.json == ours.json
        theirs, merged = os.path.join(work, "b"), os.path.join(work, "merged")
        command("sweep", "plan", "-o", theirs, *flags, *WORDS, "--seeds", "1-2")
        command("sweep", "run", theirs, "-q")
        command("sweep", "merge", theirs, "-o", merged)
        assert ours.json == Path(merged + ".json").read_text()
        assert ours.parquet == Path(merged + ".parquet").read_bytes() and ours.parquet[:4] == b"PAR1"
    temporary = superpage.lab.sweep(designs="base", workloads=SMALL["workload"], memory=SMALL["memory"])
    assert temporary.cells == 1


def comparison():
    few = dict(min_runs=2, max_runs=2, warmup=0, warm_memory="never", pool="keep")
    made = superpage.compare(["true"], arms=["base", "system"], **few)
    assert made.document["schema"] == "superpage.compare/1" and made.document["command"] == ["true"]
    assert [arm["name"] for arm in made.arms] == ["base", "system"] and made.arms[0]["runs"] == 2
    assert made.judgement("system")["quantity"] == "wall"
    with tempfile.TemporaryDirectory() as work:
        file = Path(work, "made.json")
        file.write_text(made.json)
        assert str(made) == command("compare", "--from", str(file), program="superpage")
        assert made._csv == command("compare", "--from", str(file), "--format", "csv", program="superpage")
        command("compare", "--from", str(file), "-o", f"{work}/t", "--html", f"{work}/t.html", program="superpage")
        assert made.to_html() == Path(work, "t.html").read_text()
        assert superpage.Comparison.read(file).arms == made.arms
    workload = superpage.compare("touch", size="4M", arms="base", **few)
    assert workload.document["command"][:3] == ["superpage", "workload", "touch"]
    assert workload.arms[0]["metric"] > 0


def frames():
    from superpage import _frames

    named = {"metric": {"name": "tps"}, "more_metrics": [{"name": "coverage"}, {"name": "lag"}]}
    columns = ["arm", "coverage", "metric", "metric_2", "metric_3"]
    assert _frames.metric_names(named, columns) == {"metric": "tps", "metric_2": "metric_coverage", "metric_3": "lag"}
    assert _frames.metric_names({"metric": None}, columns) == {}
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError:
        print("skipped: no pandas")
        return
    made = _frames.to_pandas([{"p99": None, "n": 1, "on": True, "x": None}, {"p99": None, "n": 2, "on": False, "x": 2.5}])
    assert [str(kind) for kind in made.dtypes] == ["float64", "int64", "bool", "float64"], made.dtypes


def options(*words, program, every="--help"):
    text = command(*words, every, program=program)
    # Services that run already have another document; Python runs the command for them.
    text = re.sub(r"^(Running services|Processes):\n(?:(?: .*)?\n)*", "", text, flags=re.MULTILINE)
    return set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text, re.MULTILINE)) - {"help", "dry-run", "json", "output"}


def keywords():
    def taken(function, **called):
        names = (called.get(name, name) for name in signature(function).parameters)
        return {name.replace("_", "-") for name in names if name}

    asked = options("compare", program="superpage", every="--help-advanced") - {
        "help-advanced", "vary", "fail-if", "from", "format", "html", "svg", "force", "quiet",
    }
    assert taken(superpage.compare, program=None, progress=None, arms="arm", user="as") == asked
    lab = {"design", "plot", "force", "quiet"}
    experiment = dict(utilisation="no-utilisation", design=None, designs=None)
    assert taken(superpage.lab.run, **experiment) == options("run", program="superpage-lab") - lab
    assert taken(superpage.lab.compare, **experiment) == options("compare", program="superpage-lab") - lab - {"from"}
    ours = dict(directory=None, jobs=None, max_time=None, progress=None, plan=None)
    ours.update(designs="design", workloads="workload", machines="machine", fragmentations="fragmentation")
    assert taken(superpage.lab.sweep, **ours) == options("sweep", "plan", program="superpage-lab")


def fails(call):
    try:
        call()
    except superpage.Error as error:
        return f"superpage: {error}\n"
    raise AssertionError("it did not fail")


def failures():
    said = command("run", "-d", "linux-4.33", *WORDS, code=2)
    assert fails(lambda: superpage.lab.run("linux-4.33", **SMALL)) == said
    said = command("run", "-d", "base", "-w", SMALL["workload"], "--memory", "10Q", code=2)
    assert fails(lambda: superpage.lab.run("base", SMALL["workload"], memory="10Q")) == said
    said = command("compare", "gups", "--size", "10Q", program="superpage", code=2)
    assert fails(lambda: superpage.compare("gups", size="10Q")) == said
    said = command("compare", "--", "/no/such", program="superpage", code=2)
    assert fails(lambda: superpage.compare(["/no/such"])) == said
    said = command("trace", "info", "/no/such.spt", program="superpage", code=2)
    assert fails(lambda: superpage.trace.open("/no/such.spt")) == said
    assert "arms: there are none" in fails(lambda: superpage.Comparison(superpage_document(arms=[])))
    assert "no plan" in fails(lambda: superpage.lab.sweep("/no/such"))

    def bad(done, of):
        raise ValueError("of the caller")

    try:
        superpage.lab.sweep(designs="base", workloads=SMALL["workload"], memory=SMALL["memory"], progress=bad)
    except ValueError as error:
        assert str(error) == "of the caller"
    else:
        raise AssertionError("it did not fail")


def superpage_document(**changed):
    made = superpage.compare(["true"], arms="base", min_runs=2, max_runs=2, warmup=0, warm_memory="never", pool="keep")
    return json.dumps({**made.document, **changed})


def interrupted(call, ready):
    """What KeyboardInterrupt `call` ends with, which would take hours; it is raised once `ready`."""

    begun = threading.Event()

    def interrupt():
        begun.wait()
        while not ready():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        begun.set()
        call()
    except KeyboardInterrupt as stop:
        return stop
    raise AssertionError("it was not interrupted")


def interrupts():
    # Ignored where a shell started the tests in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    long = "gups:size=64M,operations=1T"
    soon = lambda: time.sleep(0.3) or True
    interrupted(lambda: superpage.lab.run("base", long, memory="1G"), soon)
    with tempfile.TemporaryDirectory() as work:
        interrupted(lambda: superpage.lab.sweep(work, designs="base", workloads=long, memory="1G"), soon)
        # Runs of a program that leaves a mark each time; two of each arm are a comparison.
        marks = Path(work, "marks")
        program = ["sh", "-c", f"echo >>{marks}; sleep 0.05"]
        many = dict(min_runs=10_000, max_runs=10_000, max_time="10h", warmup=0, warm_memory="never", pool="keep")
        stop = interrupted(
            lambda: superpage.compare(program, arms=["base", "system"], **many),
            lambda: marks.exists() and len(marks.read_bytes()) > 8,
        )
        assert stop.comparison.document["stopped"] == "interrupted", stop.comparison
        assert min(arm["runs"] for arm in stop.comparison.arms) >= 2
        there = Path(work, "there")
        waits = ["sh", "-c", f"echo >{there}; exec sleep 36000"]
        none = interrupted(lambda: superpage.compare(waits, arms="base", **many), there.exists)
        assert none.comparison is None


def trace():
    with tempfile.TemporaryDirectory() as work:
        text, file = os.path.join(work, "t.txt"), os.path.join(work, "t.spt")
        accesses = (f"{'RW'[n % 3 == 0]} {n * n * 0x777 % (64 << 20):#x}\n" for n in range(20_000))
        Path(text).write_text("".join(accesses))
        command("trace", "import", "--from", "text", text, file, program="superpage")
        same_trace(file)


def same_trace(file):
    opened = superpage.trace.open(file)
    assert opened.json == command("trace", "info", file, "--json", program="superpage")
    lines, events, records = [], 0, 0
    for batch in opened.batches(1000):
        events += len(batch.events)
        records += len(batch)
        assert len(batch.page) == len(batch.write) == len(batch.count) == len(batch.address)
        happens = {}
        for record, event in batch.events:
            happens.setdefault(record, []).append(event)
        for at, (page, write, count) in enumerate(zip(batch.page, batch.write, batch.count)):
            lines += happens.pop(at, [])
            times = f" x{count}" if count > 1 else ""
            lines.append(f"{'W' if write else 'R'} {page >> 9}:{page & 511}{times}")
        lines += happens.pop(len(batch), [])
        assert not happens, happens
        for page, address in zip(batch.page, batch.address):
            region, slot = page >> 9, page & 511
            spans = [one for one in opened.spans() if 0 <= region - one["first_region"] < one["regions"]]
            starts = {one["address"] + (region - one["first_region"]) * opened.info["region_bytes"] for one in spans}
            known = starts.pop() + slot * opened.info["base_page_bytes"]
            expected = superpage.trace.UNKNOWN_ADDRESS if starts else known
            assert address == expected, (page, address, spans)
    assert (records, events) == (opened.info["records"], opened.info["events"])
    assert lines == command("trace", "cat", file, program="superpage").splitlines()
    try:
        import numpy
    except ImportError:
        return
    batch = next(iter(opened))
    column = numpy.asarray(batch.write)
    assert column.dtype == bool and column.sum() == sum(batch.write)


def guide():
    """The examples of docs/guide/python.md, with a saved comparison in place of runs, and small workloads."""
    repository = Path(__file__).resolve().parents[5]
    page = (repository / "docs/guide/python.md").read_text()
    saved = (repository / "docs/results/compare-gups.json").read_text()
    small = re.compile(r"(gups|pagerank):size=[0-9]+G(,operations=[0-9]+M)?")
    called = []

    def compare(*words, **named):
        signature(real).bind(*words, **named)
        called.append(words)
        return superpage.Comparison(saved)

    real, superpage.compare = superpage.compare, compare
    there = os.getcwd()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        Path("saved.json").write_text(saved)
        Path("t.txt").write_text("R 0x1000\nW 0x201000\n")
        command("trace", "import", "--from", "text", "t.txt", "app.spt", program="superpage")
        names = {"superpage": superpage}
        try:
            for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
                block = small.sub(r"gups:size=16M,operations=10K", block).replace('memory="8G"', 'memory="256M"')
                exec(compile(block, "docs/guide/python.md", "exec"), names)
        except ModuleNotFoundError as missing:
            print(f"without: {missing}")
        finally:
            os.chdir(there)
            superpage.compare = real
    assert len(called) >= 3, called


if __name__ == "__main__":
    globals()[sys.argv[1]]()
