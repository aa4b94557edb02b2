"""Runs parts of a sweep or an evaluation as tasks of a Ray cluster, for `--on ray`.

Standard input: a line of JSON that says what to run. When it is closed, who started this is gone, and it ends, with its
tasks. Standard output: a line of JSON for each event. It neither measures nor judges: a task runs the program in a
directory of its own, with the files that it is sent; who started this checks what comes back.
"""
import sys

if not sys.flags.isolated:
    # The directory of this file, which has logs: no module is there.
    del sys.path[0]

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
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


def run_part(shared, files, part, words, want):
    """On a node: (results that are new, names that are gone, why something is left)."""
    host = os.uname().nodename
    program = next(filter(None, map(shutil.which, want["programs"])), None)
    if program is None:
        return {}, [], f"{host}: {want['program']} is neither {want['programs'][0]} nor along PATH; install it there"
    # Of the same name for each try: what a killed one left is gone on with.
    own = pathlib.Path(tempfile.gettempdir(), f"superpage-{want['kind']}-{os.getuid()}-{want['name']}")
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        return {}, [], f"{host}: {own} is somebody else's; remove it"
    place = own / f"{part}-of-{want['of']}"
    results = place / want["folder"]
    results.mkdir(parents=True, exist_ok=True)
    for name, content in shared.items():
        (place / name).write_bytes(content)
    sent = {name: zlib.decompress(packed) for name, packed in files.items()}
    for name, content in sent.items():
        (results / name).write_bytes(content)
    command = [program] + [str(place / word["place"]) if isinstance(word, dict) else word for word in words]

    def alone():
        # A worker that is killed takes it along: another one gets the part.
        ctypes.CDLL(None).prctl(1, want["ends_by"])  # PR_SET_PDEATHSIG
        if want["cpus"] is None:
            # Ray's workers give way to others; what is measured does not, where that is allowed.
            try:
                os.setpriority(os.PRIO_PROCESS, 0, 0)
            except PermissionError:
                pass

    # Set by Ray, and heeded by programs.
    ours = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=environment, preexec_fn=alone)
    named = re.compile(want["results"])
    there = {path.name: path.read_bytes() for path in results.iterdir() if named.fullmatch(path.name)}
    new = {name: zlib.compress(content) for name, content in there.items() if sent.get(name) != content}
    gone = [name for name in sent if name not in there]
    why = None
    if ran.returncode != 0:
        why = f"{host}: " + last_line(ran.stdout + ran.stderr, f"{want['program']} ended with {ran.returncode}")
    shutil.rmtree(place, ignore_errors=True)
    return new, gone, why


def keep(folder, results, new, gone):
    """Each file appears whole or not at all, and only such as are results."""
    named = re.compile(results)
    for name, packed in new.items():
        if named.fullmatch(name):
            beside = folder / f"{name}.launch.tmp"
            beside.write_bytes(zlib.decompress(packed))
            os.replace(beside, folder / name)
    for name in gone:
        if named.fullmatch(name):
            (folder / name).unlink(missing_ok=True)


class Nodes:
    """Whole nodes, each for one task at a time: all its CPUs, and of those that others use it waits for the end."""

    def __init__(self, ray):
        self.ray, self.busy = ray, {}

    def free(self):
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        return [node for node in nodes if node["NodeID"] not in self.busy.values()]

    def options(self, node):
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        return {"num_cpus": node["Resources"]["CPU"], "scheduling_strategy": there}


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
    folder = directory / want["folder"]
    shared = ray.put({name: (directory / name).read_bytes() for name in want["shared"]})
    told = {key: want[key] for key in ("kind", "name", "program", "programs", "folder", "results", "ends_by", "of", "cpus")}
    nodes = Nodes(ray) if want["cpus"] is None else None
    waiting, under_way = list(want["parts"]), {}

    def submit(one, **options):
        files = {name: zlib.compress((folder / name).read_bytes()) for name in one["files"]}
        task = ray.remote(max_retries=want["retries"], **options)(run_part)
        reference = task.remote(shared, files, one["part"], one["words"], told)
        under_way[reference] = one["part"]
        return reference

    while waiting or under_way:
        if nodes is None:
            while waiting:
                submit(waiting.pop(0), num_cpus=want["cpus"])
        else:
            for node in nodes.free():
                if waiting:
                    nodes.busy[submit(waiting.pop(0), **nodes.options(node))] = node["NodeID"]
        if not under_way:
            time.sleep(1)
            continue
        # A node that joins gets the next part.
        done, _ = ray.wait(list(under_way), num_returns=1, timeout=2 if waiting else None)
        for reference in done:
            part = under_way.pop(reference)
            if nodes is not None:
                nodes.busy.pop(reference)
            try:
                new, gone, why = ray.get(reference)
                keep(folder, want["results"], new, gone)
            except Exception as error:
                why = last_line(str(error), type(error).__name__)
            tell(ended={"part": part, "why": why})


main()
