//! `superpage bench frag`: the program's result, wrong usage, and that it leaves nothing behind. Tests of `experiment`
//! cover the effect of a level on memory.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{refused, run, send, stderr, stdout, superpage, wait_until};
use serde_json::Value;
use testkit::require;

/// Little memory, so that the machine stays usable.
const SMALL: [&str; 4] = ["bench", "frag", "--memory", "64M"];

/// Returns whether the kernel reports the size of superpages, whether or not THP are on.
fn has_superpages() -> bool {
    Path::new("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").exists()
}

const NO_SUPERPAGES: &str = "no transparent superpages in this kernel";

fn frag<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(more).copied().collect()
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    require!(has_superpages(), "{NO_SUPERPAGES}");
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
    refused(&run(&frag(&["--level", "101", "--", "true"])), 2, "0 to 100");
    refused(&run(&frag(&["--leave", "64M", "--", "true"])), 2, "cannot be used with");
    refused(&run(&frag(&["--", "/no/such/program"])), 127, "was not found");
    refused(&run(&frag(&["--", "/etc/passwd"])), 126, "cannot be executed");
    let taken = tempfile::NamedTempFile::new().unwrap();
    let taken = taken.path().to_str().unwrap();
    refused(&run(&frag(&["-o", taken, "--", "true"])), 2, "exists");
    assert_eq!(std::fs::read_to_string(taken).unwrap(), "");
    refused(&run(&["bench", "frag"]), 2, "PROGRAM");
    require!(has_superpages(), "{NO_SUPERPAGES}");
    // Dry runs only: real runs would first allocate memory.
    for (extent, code, part) in [
        (["--memory", "1M"], 2, "less than a superpage"),
        (["--memory", "900T"], 3, "give less"),
        (["--leave", "900T"], 3, "give less"),
    ] {
        let words = [&["bench", "frag", "--dry-run"][..], &extent, &["--", "true"]].concat();
        refused(&run(&words), code, part);
    }
}

/// Starts a program that prints its child's pid and waits. Returns the command and that pid; `None`: too little memory
/// is free.
fn started() -> Option<(Child, i32)> {
    let script = "sleep 3000 & echo $!; wait";
    let mut command = superpage(&frag(&["--kind", "pinned", "-q", "--", "sh", "-c", script]));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        assert_eq!(child.wait().unwrap().code(), Some(3), "it started no program");
        return None;
    }
    Some((child, line.trim().parse().unwrap()))
}

/// Returns whether the process has ended or is about to be reaped.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// As root, the command grows the pool for a moment to make free memory contiguous.
mod exclusive {
    use super::*;

    #[test]
    #[ignore = "nightly: fragments free memory"]
    fn it_ends_as_the_program_and_reports_free_memory() {
        require!(has_superpages(), "{NO_SUPERPAGES}");
        testkit::lock_machine!();
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
            let found: Value =
                serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(found["schema"], "superpage.bench/1");
            assert_eq!(
                (&found["kind"], &found["exit_code"]),
                (&Value::from(kind), &Value::from(7))
            );
            let size = found["superpage_bytes"].as_u64().unwrap();
            let fragmented = found["fragmented"].as_u64().unwrap();
            assert_eq!(found["fragmented_wanted"].as_u64().unwrap(), (32 << 20) / size);
            assert!(fragmented > 0 && fragmented <= (32 << 20) / size, "{found}");
            let page = sys::param::page_size().bytes();
            // Add the superpages that are released last.
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
    fn a_killed_one_leaves_no_process_and_a_signal_reaches_the_program() {
        require!(has_superpages(), "{NO_SUPERPAGES}");
        testkit::lock_machine!();
        let first = started();
        require!(first.is_some(), "too little is free");
        let (mut child, below) = first.unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        wait_until("what the program started is gone", || is_gone(below));
        let second = started();
        require!(second.is_some(), "too little is free");
        let (mut child, below) = second.unwrap();
        send(&child, libc::SIGTERM);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        // The program ended by itself, so processes that it left are not the command's to end.
        sys::signal::send(units::Pid(below), libc::SIGKILL).unwrap();
        let mut rest = String::new();
        child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}
