//! `superpage lab sweep run --on`: with a Slurm and a Ray that are scripts here, which fail as the real ones do.
//! `scripts/cluster-test` starts the real ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{stderr, stdout, superpage_lab};
use crate::sweep::{merged, plan};
use crate::{fine, path};

/// Runs all parts at once, as nodes would; `fail-N` and `cut-N` are what once happens to part N.
const SBATCH: &str = r#"#!/bin/bash
echo "$*" >> "$FAKE/sbatch.calls"
if [ -e "$FAKE/refuse" ]; then
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

/// Answers `queue.1`, `queue.2`, … in turn, then nothing; `queue` for ever.
const SQUEUE: &str = r#"#!/bin/bash
echo "$*" >> "$FAKE/squeue.calls"
next=$(ls "$FAKE"/queue.* 2> /dev/null | head -1)
if [ -z "$next" ]; then cat "$FAKE/queue" 2> /dev/null; exit 0; fi
answer=$(< "$next"); rm "$next"
if [ "$answer" = error ]; then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
echo "$answer"
"#;

const SCANCEL: &str = "#!/bin/bash\necho \"$*\" >> \"$FAKE/scancel.calls\"\n";

/// Tasks are run when they are asked for; the worker of part N dies once if `fail-N` is there.
const RAY: &str = r#"
import os, pathlib
def init(address, **_):
    if address == "nowhere": raise ConnectionError("Could not find any running Ray instance.")
def nodes(): return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}]
def put(what): return what
class Task:
    def __init__(self, run): self.run = run
    def remote(self, *told): return Call(self.run, told)
class Call:
    def __init__(self, run, told): self.run, self.told = run, told
def remote(**_): return Task
def wait(calls, num_returns): return calls[-1:], calls[:-1]
def get(call):
    fails = pathlib.Path(os.environ["FAKE"], f"fail-{call.told[2]}")
    if fails.exists():
        fails.unlink()
        raise RuntimeError("Worker unexpectedly exits\n\n  with a connection error code 2.\n")
    return call.run(*call.told)
"#;

/// A planned sweep of 8 passes with 24 cells, a cluster, and the bytes of one machine.
struct Cluster {
    place: TempDir,
    sweep: String,
    expected: (Vec<u8>, Vec<u8>),
}

impl Cluster {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let [sweep, alone] = ["it's a sweep", "alone"].map(|name| path(&place, name));
        let plan = plan(place.path());
        for directory in [&sweep, &alone] {
            fine(&["sweep", "plan", &plan, "-o", directory]);
        }
        fine(&["sweep", "run", &alone, "--jobs", "1"]);
        let expected = merged(&[&alone], &place, "expected");
        let cluster = Self { place, sweep, expected };
        for (name, text) in [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)] {
            let program = cluster.file(name);
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(cluster.file("ray.py"), RAY).unwrap();
        cluster
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    fn calls(&self, of: &str) -> Vec<String> {
        let calls = fs::read_to_string(self.file(&format!("{of}.calls"))).unwrap_or_default();
        calls.lines().map(str::to_string).collect()
    }

    fn command(&self, on: &str, more: &[&str]) -> Command {
        let search = std::env::var("PATH").unwrap();
        let mut command = superpage_lab(&["sweep", "run", &self.sweep, "--on", on]);
        command.args(["--poll", "0.02"]).args(more);
        command.env("PATH", format!("{}:{search}", self.place.path().display()));
        command.env("FAKE", self.place.path()).env("PYTHONPATH", self.place.path());
        command.env("TMPDIR", self.place.path()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn run(&self, on: &str, more: &[&str]) -> Output {
        self.command(on, more).output().unwrap()
    }

    /// Runs it to a whole that is merged, and compares that with one machine's.
    fn whole(&self, on: &str, more: &[&str]) -> Value {
        let output = path(&self.place, "merged");
        let ran = self.run(on, &[&["-o", &output, "--json"], more].concat());
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        let bytes = |ending: &str| fs::read(format!("{output}.{ending}")).unwrap();
        assert!((bytes("parquet"), bytes("json")) == self.expected, "other bytes than alone");
        let document: Value = serde_json::from_str(&stdout(&ran)).unwrap();
        assert_eq!(document["schema"], "superpage.lab.sweep-run/1");
        assert_eq!((&document["cells"], &document["left"]), (&24.into(), &0.into()));
        document
    }

    /// The line that it fails with.
    fn refused(&self, on: &str, more: &[&str], code: i32) -> String {
        let ran = self.run(on, more);
        assert_eq!(ran.status.code(), Some(code), "{}", stderr(&ran));
        stderr(&ran)
    }

    fn job_name(&self) -> String {
        let planned = stdout(&self.run("slurm", &["--dry-run", "--json"]));
        let planned: Value = serde_json::from_str(&planned).unwrap();
        assert_eq!(planned["schema"], "superpage.lab.sweep-run-plan/1");
        let words = planned["command"].as_array().unwrap().iter();
        let name = words.filter_map(|word| word.as_str()?.strip_prefix("--job-name="));
        name.map(str::to_string).next().unwrap()
    }
}

fn array_of(call: &str) -> &str {
    call.split_once("--array=").unwrap().1.split(' ').next().unwrap()
}

#[test]
fn slurm_makes_the_same_bytes_and_the_same_command_goes_on() {
    let cluster = Cluster::new();
    let planned = stdout(&cluster.run("slurm", &["--dry-run", "--slurm-option=--partition=x"]));
    assert!(planned.contains("part 7/8: 3 of 3 cells to run, in 1 passes"), "{planned}");
    assert!(
        planned.contains("$ sbatch --parsable") && planned.contains("#!/bin/bash"),
        "{planned}"
    );
    assert!(planned.contains(r"it'\''s a sweep") && cluster.calls("sbatch").is_empty());

    let ran = cluster.whole("slurm", &["--slurm-option=--partition=x", "--jobs", "2"]);
    assert_eq!((&ran["done"], &ran["parts_submitted"]), (&24.into(), &8.into()));
    let calls = cluster.calls("sbatch");
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].contains("--cpus-per-task=2") && calls[0].contains("--partition=x"));
    let again = cluster.whole("slurm", &[]);
    assert_eq!((&again["present"], &again["parts_submitted"]), (&24.into(), &0.into()));
    assert_eq!(cluster.calls("sbatch").len(), 1);
}

#[test]
fn what_slurm_loses_is_submitted_again() {
    let cluster = Cluster::new();
    // A node that is lost, a file that is cut, a controller that restarts.
    for (name, text) in [("fail-2", ""), ("cut-5", ""), ("queue.1", ""), ("queue.2", "error")] {
        cluster.put(name, text);
    }
    let ran = cluster.whole("slurm", &[]);
    assert_eq!(ran["parts_submitted"], 10);
    let calls = cluster.calls("sbatch");
    let mut again: Vec<&str> = calls[1..].iter().flat_map(|it| array_of(it).split(',')).collect();
    again.sort_unstable();
    assert_eq!(again, ["2", "5"]);
}

#[test]
fn jobs_in_the_queue_are_watched_and_those_that_slurm_holds_cancelled() {
    let cluster = Cluster::new();
    let name = cluster.job_name();
    let held = "launch failed requeued held";
    let queue = format!("12|0|R|None|{name}\n12|1|PD|{held}|{name}\n99|N/A|R|None|other\n");
    cluster.put("queue.1", &queue);
    let ran = cluster.whole("slurm", &[]);
    assert_eq!(ran["parts_submitted"], 8);
    let calls = cluster.calls("sbatch");
    assert_eq!(calls.iter().map(|it| array_of(it)).collect::<Vec<_>>(), ["2-7", "0-1"]);
    assert_eq!(cluster.calls("scancel"), ["12_1"]);
    cluster.put("queue.1", &queue);
    let refused = cluster.refused("slurm", &["--parts", "4"], 2);
    assert!(refused.contains("are of 8 parts; give --parts 8"), "{refused}");
}

#[test]
fn a_part_that_brings_nothing_is_given_up_with_what_its_log_says() {
    let cluster = Cluster::new();
    let ran = cluster.run("slurm", &["--program", "/no/superpage-lab", "--retries", "2"]);
    assert_eq!(ran.status.code(), Some(1));
    let said = stderr(&ran);
    let line = said.lines().find(|line| line.contains("part 3/8")).unwrap();
    assert!(line.contains("ended 3 times without a further pass"), "{line}");
    assert!(line.contains("part-3.log ends with") && line.contains("/no/superpage-lab"), "{line}");
    assert!(stdout(&ran).contains("0 cells run, 0 there before, 24 could not be run"));
    let later: Vec<bool> =
        cluster.calls("sbatch").iter().map(|it| it.contains("--begin=now+30")).collect();
    assert_eq!(later, [false, false, true]);
}

#[test]
fn what_slurm_refuses_is_told_in_a_line() {
    let cluster = Cluster::new();
    let refused = |more: &[&str], code: i32, words: &[&str]| {
        let said = cluster.refused("slurm", more, code);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    cluster.put("queue.1", "slurm 22.05");
    refused(&[], 2, &["squeue answered `slurm 22.05`"]);
    cluster.put("queue.1", "error");
    refused(&[], 2, &["Unable to contact slurm controller"]);
    cluster.put("refuse", "");
    refused(&[], 2, &["sbatch refused", "Invalid partition name", "--slurm-option"]);
    fs::remove_file(cluster.file("refuse")).unwrap();
    cluster.put("babble", "");
    refused(&[], 2, &["sbatch answered `thank you`", "scancel --name=superpage-sweep-"]);
    fs::remove_file(cluster.file("squeue")).unwrap();
    let mut bare = cluster.command("slurm", &[]);
    let said = bare.env("PATH", "/nowhere").output().unwrap();
    assert_eq!(said.status.code(), Some(3));
    assert!(stderr(&said).contains("login node"), "{}", stderr(&said));
}

#[test]
fn jobs_go_on_without_who_submitted_them() {
    let cluster = Cluster::new();
    let name = cluster.job_name();
    let queue: String = (0..8).map(|part| format!("12|{part}|R|None|{name}\n")).collect();
    cluster.put("queue", &queue);
    let detached = cluster.run("slurm", &["--detach"]);
    assert_eq!(detached.status.code(), Some(0));
    assert!(stdout(&detached).contains("the jobs go on"), "{}", stdout(&detached));
    assert!(cluster.calls("sbatch").is_empty());

    let mut watching = cluster.command("slurm", &[]).stdout(Stdio::piped()).spawn().unwrap();
    // One look is that of `--detach`; at the next signals are heeded.
    while cluster.calls("squeue").len() < 2 && watching.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let locked = cluster.refused("slurm", &["--detach"], 2);
    assert!(locked.contains("being watched by another process"), "{locked}");
    // SIGINT is ignored where a shell started the tests in the background.
    let killed = Command::new("kill").args(["-TERM", &watching.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let said = std::io::read_to_string(watching.stdout.take().unwrap()).unwrap();
    assert_eq!(watching.wait().unwrap().signal(), Some(15));
    assert!(said.contains("interrupted, and the jobs go on"), "{said}");
    assert!(said.contains(&format!("scancel --name={name}")), "{said}");
}

#[test]
fn flags_of_another_place_are_refused() {
    let cluster = Cluster::new();
    for (on, more, why) in [
        ("local", &["--parts", "4"][..], "--parts is for --on slurm"),
        ("local", &["--detach"], "--detach is for --on slurm"),
        ("ray", &["--slurm-option=-p x"], "--slurm-option is for --on slurm"),
        ("slurm", &["--ray-address", "x"], "--ray-address is for --on ray"),
        ("slurm", &["--shard", "0/2"], "--parts"),
        ("slurm", &["--jobs", "0"], "how many CPUs"),
    ] {
        let said = cluster.refused(on, more, 2);
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn ray_makes_the_same_bytes_and_brings_only_what_is_missing() {
    testkit::require!(has_python(), "no python3");
    let cluster = Cluster::new();
    // Part 0/4 has two passes, one of which is there; a worker dies; a file was cut.
    fine(&["sweep", "run", &cluster.sweep, "--shard", "0/8"]);
    fine(&["sweep", "run", &cluster.sweep, "--shard", "1/8"]);
    let groups = Path::new(&cluster.sweep).join("groups");
    let cut = fs::read_dir(&groups).unwrap().next().unwrap().unwrap().path();
    fs::write(&cut, &fs::read(&cut).unwrap()[..100]).unwrap();
    cluster.put("fail-2", "");
    let ran = cluster.whole("ray", &["--parts", "4"]);
    assert_eq!((&ran["present"], &ran["done"]), (&3.into(), &21.into()));
    assert_eq!(ran["parts_submitted"], 5);
    let left = fs::read_dir(cluster.place.path()).unwrap().flatten();
    let left = left.filter(|file| file.file_name().to_string_lossy().starts_with("superpage-"));
    let left: usize = left.map(|file| fs::read_dir(file.path()).unwrap().count()).sum();
    assert_eq!(left, 0, "directories of tasks");
    assert_eq!(cluster.whole("ray", &[])["parts_submitted"], 0);
}

#[test]
fn what_ray_lacks_is_told_in_a_line() {
    testkit::require!(has_python(), "no python3");
    let cluster = Cluster::new();
    let said = cluster.refused("ray", &["--ray-address", "nowhere"], 3);
    assert!(said.contains("no Ray cluster at `nowhere` (Could not find"), "{said}");
    let said = cluster.refused("ray", &["--python", "/no/python"], 3);
    assert!(said.contains("--python"), "{said}");
    let ran = cluster.run("ray", &["--program", "/no/superpage-lab", "--retries", "0", "--quiet"]);
    assert_eq!(ran.status.code(), Some(1));
    let without = stderr(&ran);
    assert!(without.contains("install it there"), "{without}");
    fs::write(cluster.file("ray.py"), "raise ImportError('no ray')").unwrap();
    let said = cluster.refused("ray", &[], 3);
    assert!(said.contains("has no Ray (no ray); pip install ray"), "{said}");
    // A driver that dies says so in its log.
    fs::write(cluster.file("ray.py"), "import os\nos.write(2, b'out of memory\\n')\nos._exit(9)")
        .unwrap();
    let ran = cluster.run("ray", &["--retries", "0"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(stderr(&ran).contains("ray.log ends with: out of memory"), "{}", stderr(&ran));
}
