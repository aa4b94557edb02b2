//! Tests `superpage lab sweep run --on` with scripts in place of Slurm and Ray. The scripts fail as the real programs
//! do.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::cluster::FakeCluster;

use crate::common::{stderr, stdout, superpage_lab};
use crate::sweep::{Merged, files_of, merged, plan};
use crate::{fine, path};

/// A planned sweep of 8 passes with 24 cells, a cluster, and the bytes of one machine.
struct Cluster {
    place: TempDir,
    fake: FakeCluster,
    sweep: String,
    expected: Merged,
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
        let fake = FakeCluster::new(place.path());
        Self { place, fake, sweep, expected }
    }

    fn command(&self, on: &str, more: &[&str]) -> Command {
        let mut command = superpage_lab(&["sweep", "run", &self.sweep, "--on", on]);
        self.fake.around(command.args(["--poll", "0.02"]).args(more));
        command
    }

    fn run(&self, on: &str, more: &[&str]) -> Output {
        self.command(on, more).output().unwrap()
    }

    /// Runs the sweep to its end, merges it, and compares the merged files with those of one machine.
    fn whole(&self, on: &str, more: &[&str]) -> Value {
        let output = path(&self.place, "merged");
        let ran = self.run(on, &[&["-o", &output, "--json"], more].concat());
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        assert!(files_of(&output) == self.expected, "other bytes than alone");
        let document: Value = serde_json::from_str(&stdout(&ran)).unwrap();
        assert_eq!(document["schema"], "superpage.lab.sweep-run/1");
        assert_eq!((&document["cells"], &document["left"]), (&24.into(), &0.into()));
        document
    }

    /// Returns the error line of a run that must fail.
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
    assert!(planned.contains(r"it'\''s a sweep") && cluster.fake.calls("sbatch").is_empty());

    let ran = cluster.whole("slurm", &["--slurm-option=--partition=x", "--jobs", "2"]);
    assert_eq!((&ran["done"], &ran["parts_submitted"]), (&24.into(), &8.into()));
    let calls = cluster.fake.calls("sbatch");
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].contains("--cpus-per-task=2") && calls[0].contains("--partition=x"));
    let again = cluster.whole("slurm", &[]);
    assert_eq!((&again["present"], &again["parts_submitted"]), (&24.into(), &0.into()));
    assert_eq!(cluster.fake.calls("sbatch").len(), 1);
}

#[test]
fn what_slurm_loses_is_submitted_again() {
    let cluster = Cluster::new();
    // A node is lost, a file is truncated, and a controller restarts.
    for (name, text) in [("fail-2", ""), ("cut-5", ""), ("queue.1", ""), ("queue.2", "error")] {
        cluster.fake.put(name, text);
    }
    let ran = cluster.whole("slurm", &[]);
    assert_eq!(ran["parts_submitted"], 10);
    let calls = cluster.fake.calls("sbatch");
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
    cluster.fake.put("queue.1", &queue);
    let ran = cluster.whole("slurm", &[]);
    assert_eq!(ran["parts_submitted"], 8);
    let calls = cluster.fake.calls("sbatch");
    assert_eq!(calls.iter().map(|it| array_of(it)).collect::<Vec<_>>(), ["2-7", "0-1"]);
    assert_eq!(cluster.fake.calls("scancel"), ["12_1"]);
    cluster.fake.put("queue.1", &queue);
    let refused = cluster.refused("slurm", &["--parts", "4"], 2);
    assert!(refused.contains("are of 8 parts; give --parts 8"), "{refused}");
}

/// The heading that squeue prints above the jobs of each cluster.
const HEADING: &str = "ARRAY_JOB_ID|ARRAY_TASK_ID|ST|REASON|NAME\n";

#[test]
fn jobs_are_found_whatever_the_user_has_squeue_list() {
    let cluster = Cluster::new();
    let name = cluster.job_name();
    let queue = format!(
        "CLUSTER: c1\n{HEADING}7|N/A|R|None|other\n\nCLUSTER: c2\n{HEADING}12|0|R|None|{name}\n\
         12|1|PD|launch failed requeued held|{name}\n"
    );
    cluster.fake.put("queue.1", &queue);
    let mut command = cluster.command("slurm", &["--slurm-option=--clusters=c1,c2"]);
    command.envs([("SQUEUE_STATES", "PD"), ("SQUEUE_FORMAT", "%i"), ("SCANCEL_STATE", "R")]);
    command.env("SQUEUE_FEDERATION", "1");
    let ran = command.output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    let looks = cluster.fake.calls("squeue");
    let is_whole = |look: &String| {
        let variables: Vec<&str> = look.split(' ').filter(|it| it.starts_with("SQUEUE_")).collect();
        look.starts_with("--clusters=c1,c2 --me --all ")
            && !look.contains("--noheader")
            && variables == ["SQUEUE_FEDERATION=1"]
    };
    assert!(!looks.is_empty() && looks.iter().all(is_whole), "{looks:?}");
    assert_eq!(cluster.fake.calls("scancel"), ["--clusters=c2 12_1"]);
    assert_eq!(array_of(&cluster.fake.calls("sbatch")[0]), "2-7");
}

#[test]
fn a_submission_that_fails_later_is_tried_again() {
    let cluster = Cluster::new();
    for name in ["fail-2", "refuse-2", "refuse-3"] {
        cluster.fake.put(name, "");
    }
    let ran = cluster.run("slurm", &[]);
    let said = stderr(&ran);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("Invalid partition name").count(), 1, "{said}");
    assert!(said.contains("; trying again"), "{said}");
    let calls = cluster.fake.calls("sbatch");
    assert_eq!(calls.iter().map(|it| array_of(it)).collect::<Vec<_>>(), ["0-7", "2", "2", "2"]);
}

#[test]
fn a_submission_that_goes_on_failing_ends_the_watch() {
    let cluster = Cluster::new();
    for name in ["fail-2", "refuse-later"] {
        cluster.fake.put(name, "");
    }
    let said = cluster.refused("slurm", &[], 2);
    let last = said.lines().last().unwrap();
    assert!(last.contains("sbatch refused") && last.contains("scancel --name="), "{said}");
    assert!(stdout(&cluster.run("slurm", &["--dry-run"])).contains("part 2/8"));
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
        cluster.fake.calls("sbatch").iter().map(|it| it.contains("--begin=now+30")).collect();
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
    cluster.fake.put("queue.1", "slurm 22.05");
    refused(&[], 2, &["squeue answered `slurm 22.05`"]);
    cluster.fake.put("queue.1", "error");
    refused(&[], 2, &["Unable to contact slurm controller"]);
    cluster.fake.put("refuse", "");
    refused(&[], 2, &["sbatch refused", "Invalid partition name", "--slurm-option"]);
    fs::remove_file(cluster.fake.file("refuse")).unwrap();
    cluster.fake.put("babble", "");
    refused(&[], 2, &["sbatch answered `thank you`", "scancel --name=superpage-sweep-"]);
    fs::remove_file(cluster.fake.file("squeue")).unwrap();
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
    cluster.fake.put("queue", &queue);
    let detached = cluster.run("slurm", &["--detach"]);
    assert_eq!(detached.status.code(), Some(0));
    assert!(stdout(&detached).contains("the jobs go on"), "{}", stdout(&detached));
    assert!(cluster.fake.calls("sbatch").is_empty());

    let mut watching = cluster.command("slurm", &[]).stdout(Stdio::piped()).spawn().unwrap();
    // The first call of squeue is that of `--detach`. At the second call signals are handled.
    while cluster.fake.calls("squeue").len() < 2 && watching.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let locked = cluster.refused("slurm", &["--detach"], 2);
    assert!(locked.contains("being watched by another process"), "{locked}");
    // Send SIGTERM: SIGINT is ignored if a shell started the tests in the background.
    sys::signal::send(units::Pid(watching.id() as i32), 15).unwrap();
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
    // Part 0/4 has two passes, one of which is done. A worker dies, and a file is truncated.
    fine(&["sweep", "run", &cluster.sweep, "--shard", "0/8"]);
    fine(&["sweep", "run", &cluster.sweep, "--shard", "1/8"]);
    let groups = Path::new(&cluster.sweep).join("groups");
    let cut = fs::read_dir(&groups).unwrap().next().unwrap().unwrap().path();
    fs::write(&cut, &fs::read(&cut).unwrap()[..100]).unwrap();
    cluster.fake.put("fail-2", "");
    let ran = cluster.whole("ray", &["--parts", "4"]);
    assert_eq!((&ran["present"], &ran["done"]), (&3.into(), &21.into()));
    assert_eq!(ran["parts_submitted"], 5);
    let left = fs::read_dir(cluster.place.path()).unwrap().flatten();
    let left =
        left.filter(|file| file.file_name().to_string_lossy().starts_with("superpage-sweep"));
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
    fs::write(cluster.fake.file("ray.py"), "raise ImportError('no ray')").unwrap();
    let said = cluster.refused("ray", &[], 3);
    assert!(said.contains("has no Ray (no ray); pip install ray"), "{said}");
    // A driver that dies reports the failure in its log.
    fs::write(
        cluster.fake.file("ray.py"),
        "import os\nos.write(2, b'out of memory\\n')\nos._exit(9)",
    )
    .unwrap();
    let ran = cluster.run("ray", &["--retries", "0"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(stderr(&ran).contains("ray.log ends with: out of memory"), "{}", stderr(&ran));
}
