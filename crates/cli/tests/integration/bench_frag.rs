//! `superpage bench frag`: what it passes on and refuses, and that nothing is left of it. What a level does to memory is
//! tested in `experiment`.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{has_thp, refused, run, stderr, stdout, superpage};
use serde_json::Value;
use testkit::{machine_lock, require};

/// Little, so that the machine stays usable.
const SMALL: [&str; 4] = ["bench", "frag", "--memory", "64M"];

fn frag<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(more).copied().collect()
}

#[test]
fn it_ends_as_the_program_and_reports_free_memory() {
    require!(has_thp(), "no transparent superpages here");
    let _lock = machine_lock();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let file = path.to_str().unwrap();
    for (kind, held) in [("movable", 16), ("pinned", 1)] {
        let flags = ["--level", "50", "--kind", kind, "-q", "--force", "-o", file];
        let program = ["--", "sh", "-c", "echo out; exit 7"];
        let output = run(&frag(&[&flags[..], &program[..]].concat()));
        require!(output.status.code() != Some(3), "too little is free: {}", stderr(&output));
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), "out\n"));
        assert_eq!(stderr(&output), "");
        let found: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(found["schema"], "superpage.bench/1");
        assert_eq!((&found["kind"], &found["exit_code"]), (&Value::from(kind), &Value::from(7)));
        let size = found["superpage_bytes"].as_u64().unwrap();
        let fragmented = found["fragmented"].as_u64().unwrap();
        assert_eq!(found["fragmented_wanted"].as_u64().unwrap(), (32 << 20) / size);
        assert!(fragmented > 0 && fragmented <= (32 << 20) / size, "{found}");
        let page = sys::param::page_size().bytes();
        // And what is given back last.
        let last = 40 * size;
        assert_eq!(found["held_bytes"].as_u64().unwrap(), fragmented * held * page + last);
        for when in ["before", "held", "program_ended", "given_back"] {
            assert!(found[when]["free_bytes"].as_u64().unwrap() > 0, "{when}: {found}");
        }
    }
    let killed = run(&frag(&["--", "sh", "-c", "kill -TERM $$"]));
    assert_eq!(killed.status.signal(), Some(libc::SIGTERM));
    assert!(stderr(&killed).contains("given back"), "{}", stderr(&killed));
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    require!(has_thp(), "no transparent superpages here");
    let output = run(&frag(&["--kind", "pinned", "--dry-run", "--", "echo", "ran"]));
    require!(output.status.code() != Some(3), "too little is free: {}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("would fragment 32 superpages") && said.contains("pinned"), "{said}");
    assert!(said.contains("echo ran") && !said.contains("\nran"), "{said}");
    let json = stdout(&run(&frag(&["--dry-run", "--json", "--", "true"])));
    assert!(json.starts_with("{\n  \"schema\": \"superpage.fragmentation-plan/1\""), "{json}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_done() {
    require!(has_thp(), "no transparent superpages here");
    refused(&run(&frag(&["--level", "101", "--", "true"])), 2, "0 to 100");
    refused(&run(&["bench", "frag", "--memory", "1M", "--", "true"]), 2, "less than a superpage");
    refused(&run(&["bench", "frag", "--memory", "900T", "--", "true"]), 3, "give less");
    refused(&run(&["bench", "frag", "--leave", "900T", "--", "true"]), 3, "give less");
    refused(&run(&frag(&["--leave", "64M", "--", "true"])), 2, "cannot be used with");
    refused(&run(&frag(&["--", "/no/such/program"])), 127, "was not found");
    refused(&run(&frag(&["--", "/etc/passwd"])), 126, "cannot be executed");
    refused(&run(&frag(&["-o", "/etc/passwd", "--", "true"])), 2, "exists");
    refused(&run(&["bench", "frag"]), 2, "PROGRAM");
}

/// Runs with a program that prints its child's pid and waits; that pid.
fn started() -> Option<(Child, i32)> {
    let script = "sleep 300 & echo $!; wait";
    let mut command = superpage(&frag(&["--kind", "pinned", "-q", "--", "sh", "-c", script]));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    Some((child, line.trim().parse().ok()?))
}

fn is_gone(pid: i32) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_killed_one_leaves_no_process_and_a_signal_reaches_the_program() {
    require!(has_thp(), "no transparent superpages here");
    let _lock = machine_lock();
    let first = started();
    require!(first.is_some(), "too little is free");
    let (mut child, below) = first.unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(is_gone(below), "{below} outlived");
    let (mut child, below) = started().unwrap();
    sys::signal::send(units::Pid(child.id() as i32), libc::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    // What a program leaves behind when it ends by itself is its own business.
    sys::signal::send(units::Pid(below), libc::SIGKILL).unwrap();
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
