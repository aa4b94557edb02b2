//! Fake Slurm and Ray: scripts in a directory that fail like the real programs. `scripts/cluster-test` runs the real
//! ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fake `sbatch`: runs all parts at once. A file `fail-N` makes part N fail once; `cut-N` truncates its output once.
/// `refuse` refuses every call, `refuse-N` the Nth call, `refuse-later` all calls but the first.
const SBATCH: &str = r#"#!/bin/bash
echo "$*" >> "$FAKE/sbatch.calls"
call=$(wc -l < "$FAKE/sbatch.calls")
if [ -e "$FAKE/refuse" ] || [ -e "$FAKE/refuse-$call" ] || { [ -e "$FAKE/refuse-later" ] && [ $call -gt 1 ]; }; then
  echo "sbatch: error: Batch job submission failed: Invalid partition name specified" >&2; exit 1
fi
if [ -e "$FAKE/babble" ]; then echo "thank you"; exit 0; fi
for word; do
  case $word in --array=*) array=${word#*=} ;; --output=*) log=${word#*=} ;; esac
done
cat > "$FAKE/script"
for range in ${array//,/ }; do
  for part in $(seq "${range%-*}" "${range#*-}"); do
    if [ -e "$FAKE/fail-$part" ]; then rm "$FAKE/fail-$part"; continue; fi
    SLURM_ARRAY_TASK_ID=$part bash "$FAKE/script" >> "${log//%a/$part}" 2>&1
    if [ -e "$FAKE/cut-$part" ]; then
      rm "$FAKE/cut-$part"; truncate -s 100 "$(ls -t "${log%/logs/*}"/groups/*.jsonl | head -1)"
    fi
  done
done
echo "4711;here"
"#;

/// Fake `squeue`: prints the files `queue.1`, `queue.2`, … one per call, and then the file `queue`, if it exists, at
/// every call. The recorded calls of `squeue` and `scancel` include their environment variables.
const SQUEUE: &str = r#"#!/bin/bash
echo "$*" $(env | grep ^SQUEUE_) >> "$FAKE/squeue.calls"
next=$(ls "$FAKE"/queue.* 2> /dev/null | head -1)
if [ -z "$next" ]; then cat "$FAKE/queue" 2> /dev/null; exit 0; fi
answer=$(< "$next"); rm "$next"
if [ "$answer" = error ]; then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
echo "$answer"
"#;

const SCANCEL: &str =
    "#!/bin/bash\necho \"$*\" $(env | grep ^SCANCEL_) >> \"$FAKE/scancel.calls\"\n";

/// Fake Ray: runs a task when its result is requested. A file `fail-N` makes the worker of part N
/// die once.
const RAY: &str = r#"
import os, pathlib, sys, types
def init(address, **_):
    if address == "nowhere": raise ConnectionError("Could not find any running Ray instance.")
def nodes():
    return [{"NodeID": "a", "Alive": True, "Resources": {"CPU": 2.0}}, {"NodeID": "b", "Alive": False, "Resources": {"CPU": 8.0}}]
strategies = types.ModuleType("ray.util.scheduling_strategies")
strategies.NodeAffinitySchedulingStrategy = lambda **there: there["node_id"]
sys.modules[strategies.__name__] = strategies
def put(what): return what
class Task:
    def __init__(self, run): self.run = run
    def remote(self, *told): return Call(self.run, told)
class Call:
    def __init__(self, run, told): self.run, self.told = run, told
def remote(**options):
    with open(pathlib.Path(os.environ["FAKE"], "ray.calls"), "a") as calls: print(options, file=calls)
    return Task
def wait(calls, num_returns, timeout): return calls[-1:], calls[:-1]
def get(call):
    fails = pathlib.Path(os.environ["FAKE"], f"fail-{call.told[2]}")
    if fails.exists():
        fails.unlink()
        raise RuntimeError("Worker unexpectedly exits\n\n  with a connection error code 2.\n")
    return call.run(*call.told)
"#;

/// The directory of the fake programs. It also holds the files that request failures, and the recorded calls.
#[derive(Debug)]
pub struct FakeCluster {
    place: PathBuf,
}

impl FakeCluster {
    /// Makes the fake programs in `place`, which must exist.
    pub fn new(place: &Path) -> Self {
        let cluster = Self { place: place.to_path_buf() };
        // The command runs Python as root with `-I`, which ignores PYTHONPATH and so the fake Ray.
        // Drop the flag.
        let real = search("python3").unwrap_or_default();
        let python =
            format!("#!/bin/sh\n[ \"$1\" = -I ] && shift\nexec '{}' \"$@\"\n", real.display());
        let programs =
            [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("python3", &python)];
        for (name, text) in programs {
            // Let another process write the file: otherwise a child of another test may inherit our descriptor, and
            // executing the file fails.
            let plain = format!("{name}.text");
            cluster.put(&plain, text);
            let files = [cluster.file(&plain), cluster.file(name)];
            let copied = Command::new("install").args(["-m", "755"]).args(files).status();
            assert!(copied.unwrap().success());
        }
        cluster.put("ray.py", RAY);
        cluster
    }

    /// The path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Writes a file in the directory.
    pub fn put(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// Returns the recorded calls of a program, each as its arguments in one line.
    pub fn calls(&self, of: &str) -> Vec<String> {
        let calls = fs::read_to_string(self.file(&format!("{of}.calls"))).unwrap_or_default();
        calls.lines().map(str::to_string).collect()
    }

    /// Makes `command` find the fake programs.
    pub fn around<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let search = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{search}", self.place.display()));
        command.env("FAKE", &self.place).env("PYTHONPATH", &self.place);
        command.env("TMPDIR", &self.place).env("PYTHONDONTWRITEBYTECODE", "1")
    }
}

/// Finds a program on PATH.
fn search(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}
