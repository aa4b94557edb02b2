"""Runs parts of a sweep as tasks of a Ray cluster, for `superpage lab sweep run --on ray`.

Standard input: a line of JSON that says what to run. When it is closed, who started this is gone, and it ends, with its
tasks. Standard output: a line of JSON for each event. It neither simulates nor judges: a task runs `superpage-lab sweep
run --shard` in a directory of its own, from the plan and the results that it is sent; who started this checks what comes back.
"""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zlib

# Whatever else prints, Ray too, goes to the log.
events = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def tell(**event):
    print(json.dumps(event), file=events, flush=True)


def cannot(why):
    tell(cannot=why)
    sys.exit(3)


def last_line(text, otherwise):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else otherwise


def run_part(plan, files, part, want):
    """On a node: (files that are new, names that are gone, why passes are left)."""
    host = os.uname().nodename
    program = next(filter(None, map(shutil.which, want["programs"])), None)
    if program is None:
        return {}, [], f"{host}: superpage-lab is neither {want['programs'][0]} nor along PATH; install it there"
    # Of the same name for each try: what a killed one left is gone on with.
    own = pathlib.Path(tempfile.gettempdir(), f"superpage-sweep-{os.getuid()}-{want['name']}")
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        return {}, [], f"{host}: {own} is somebody else's; remove it"
    place = own / f"{part}-of-{want['of']}"
    groups = place / "groups"
    groups.mkdir(parents=True, exist_ok=True)
    (place / "plan.json").write_bytes(plan)
    sent = {name: zlib.decompress(packed) for name, packed in files.items()}
    for name, content in sent.items():
        (groups / name).write_bytes(content)
    command = [program, "sweep", "run", place, "--quiet", "--shard", f"{part}/{want['of']}"]
    command += ["--jobs", str(want["jobs"])]
    if want["max_time"] is not None:
        command += ["--max-time", f"{want['max_time']}s"]
    # A worker that is killed takes it along: another one gets the part.
    with_us = lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    ran = subprocess.run(command, capture_output=True, text=True, preexec_fn=with_us)
    there = {path.name: path.read_bytes() for path in groups.glob("*.jsonl")}
    new = {name: zlib.compress(content) for name, content in there.items() if sent.get(name) != content}
    gone = [name for name in sent if name not in there]
    why = None
    if ran.returncode != 0:
        why = f"{host}: " + last_line(ran.stdout + ran.stderr, f"superpage-lab ended with {ran.returncode}")
    shutil.rmtree(place, ignore_errors=True)
    return new, gone, why


def keep(groups, new, gone):
    """Each file appears whole or not at all, and only such as a sweep has."""
    named = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}\.jsonl")
    for name, packed in new.items():
        if named.fullmatch(name):
            beside = groups / f"{name}.launch.tmp"
            beside.write_bytes(zlib.decompress(packed))
            os.replace(beside, groups / name)
    for name in gone:
        if named.fullmatch(name):
            (groups / name).unlink(missing_ok=True)


def main():
    want = json.loads(sys.stdin.readline())

    def end_with_who_started_this():
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=end_with_who_started_this, daemon=True).start()
    try:
        import ray
    except ImportError as error:
        cannot(f"{sys.executable} has no Ray ({error}); pip install ray, or give another Python by --python")
    try:
        ray.init(address=want["address"], log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        why = last_line(str(error), type(error).__name__)
        cannot(f"no Ray cluster at `{want['address']}` ({why}); start one by ray start --head, or give --ray-address")
    alive = [node for node in ray.nodes() if node["Alive"]]
    tell(cluster={"nodes": len(alive), "cpus": sum(node["Resources"].get("CPU", 0) for node in alive)})
    directory = pathlib.Path(want["directory"])
    groups = directory / "groups"
    plan = ray.put((directory / "plan.json").read_bytes())
    task = ray.remote(num_cpus=want["jobs"], max_retries=want["retries"])(run_part)
    told = {key: want[key] for key in ("programs", "name", "of", "jobs", "max_time")}
    under_way = {}
    for one in want["parts"]:
        files = {name: zlib.compress((groups / name).read_bytes()) for name in one["files"]}
        under_way[task.remote(plan, files, one["part"], told)] = one["part"]
    while under_way:
        done, _ = ray.wait(list(under_way), num_returns=1)
        for reference in done:
            part = under_way.pop(reference)
            try:
                new, gone, why = ray.get(reference)
                keep(groups, new, gone)
            except Exception as error:
                why = last_line(str(error), type(error).__name__)
            tell(ended={"part": part, "why": why})


main()
