//! The log of decisions of real programs, replayed: `policy` gives the same actions again, all of them.
//!
//! Kernel ring: needs THP of 2 MiB.

mod common;
mod programs;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::*;
use policy::live::{Begin, Event, Policy, Record};
use policy::{Action, Result};

const THP: Asked = Asked { pages: "thp", memory: "heap,mmap", fallback: "base", children: "base" };
const LOG: &str = "SUPERPAGE_POLICY_LOG";

/// What a process logged.
struct Process {
    begin: Begin,
    records: Vec<Record>,
}

/// All processes of a log; one that becomes another program begins again.
fn read(path: &Path) -> Vec<Process> {
    let text = std::fs::read_to_string(path).expect("a log");
    let mut running: BTreeMap<u64, Process> = BTreeMap::new();
    let mut ended = Vec::new();
    for line in text.lines() {
        if let Ok(begin) = line.parse::<Begin>() {
            assert_eq!(begin.to_string(), line);
            ended.extend(running.insert(begin.pid, Process { begin, records: Vec::new() }));
            continue;
        }
        let record: Record = line.parse().unwrap_or_else(|_| panic!("not understood: {line}"));
        assert_eq!(record.to_string(), line);
        running.get_mut(&record.pid).expect("it began").records.push(record);
    }
    ended.extend(running.into_values());
    ended
}

/// Decides all of it again, from the state the process began with; how many decisions that were.
fn replay(mut process: Process) -> usize {
    let Begin { seq, policy, .. } = process.begin;
    let (mut seq, mut policy) = (seq, policy);
    process.records.sort_by_key(|record| record.seq);
    let (mut next, mut count) = (None, 0);
    for record in &process.records {
        if record.seq != seq {
            policy = next.take().expect("a state that nobody changed");
            seq += 1;
            assert_eq!(record.seq, seq, "a line is missing before: {record}");
        }
        let mut decider = Policy { state: record.state.unwrap_or(policy.state), ..policy };
        let before = decider.state;
        assert_eq!(decider.on(record.event, &record.facts), record.action, "{record}");
        if record.state.is_none() && decider.state != before {
            assert!(next.replace(decider).is_none(), "changed twice: {record}");
        }
        count += 1;
    }
    count
}

/// The actions of a log, and how many decisions were replayed.
fn replayed(path: &Path) -> (Vec<Action>, usize) {
    let processes = read(path);
    let actions = processes.iter().flat_map(|it| &it.records).map(|it| it.action).collect();
    let count = processes.into_iter().map(replay).sum();
    println!("{}: {count} decisions", path.display());
    (actions, count)
}

fn has(actions: &[Action], is: impl Fn(&Action) -> bool) -> bool {
    actions.iter().any(is)
}

/// A child of this test with a log of its own.
fn logged(test: &str) -> (Command, tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let mut command = child(test, THP);
    command.env(LOG, &path);
    (command, dir, path)
}

#[test]
fn what_a_program_with_prepared_memory_did_is_decided_again() {
    testkit::require!(programs::has_thp(), "needs transparent superpages of 2 MiB");
    let (mut command, _dir, path) = logged("child_prepares");
    command.env("SUPERPAGE_PREZERO", (64 * MIB).to_string());
    command.env("SUPERPAGE_PREFAULT", (32 * MIB).to_string());
    assert!(succeeds(command));
    let (actions, count) = replayed(&path);
    assert!(count >= 100, "{count}");
    assert!(has(&actions, |it| matches!(it, Action::Advise { .. } | Action::GiveUp)));
    // What there is none of where superpages or the memory for them are not to be had.
    for (what, is_there) in [
        ("populated", has(&actions, |it| matches!(it, Action::Populate { .. }))),
        ("kept", has(&actions, |it| *it == Action::Keep)),
        ("handed out", has(&actions, |it| *it == Action::HandOut)),
        ("released", has(&actions, |it| *it == Action::Release)),
    ] {
        println!("{what}: {is_there}");
    }
}

#[test]
fn what_threads_and_forked_children_did_is_decided_again() {
    testkit::require!(programs::has_thp(), "needs transparent superpages of 2 MiB");
    let (command, _dir, path) = logged("child_of_threads");
    assert!(succeeds(command));
    let processes = read(&path);
    assert!(processes.len() > CHILDREN, "a parent and its children");
    assert!(processes.iter().any(|it| it.begin.seq > 0), "a child goes on as its parent was");
    let (_, count) = replayed(&path);
    assert!(count >= THREADS * PIECES, "{count}");
}

#[test]
fn a_c_program_is_advised_as_it_is_logged() {
    testkit::require!(programs::has("cc") && programs::has_thp(), "needs a C compiler and THP");
    let program = programs::build("touch.c", "touch_logged", "cc", &["-O2"]);
    for pieces in [["64", "4", "0", ""], ["256", "1", "0", "remapped"]] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut command = Command::new(&program);
        command.args(pieces).envs(programs::under("thp", "mmap", "base")).env(LOG, &path);
        let report = programs::run(command);
        let processes = read(&path);
        let advised = |record: &Record| match record.event {
            Event::Outcome {
                action: Action::Advise { bytes, .. },
                result: Result::Done { .. },
                ..
            } => bytes,
            _ => 0,
        };
        let advised: u64 = processes.iter().flat_map(|it| &it.records).map(advised).sum();
        assert!(programs::number(&report, "huge_kib") <= advised >> 10, "{report}");
        assert!(replayed(&path).1 > 0);
    }
}

#[test]
fn a_log_that_cannot_be_written_disturbs_nothing() {
    for path in ["/nonexistent/log", "/dev/full", ""] {
        let mut command = child("child_of_threads", THP);
        command.env(LOG, path);
        assert!(succeeds(command), "{path}");
    }
}

fn unmap(start: *mut u8, length: usize) {
    // SAFETY: callers map it and use it no more.
    assert_eq!(unsafe { libc::munmap(start.cast(), length) }, 0);
}

fn touch(start: *mut u8, length: usize) {
    for at in (0..length).step_by(4096) {
        // SAFETY: memory of the caller's mapping.
        unsafe { start.add(at).write(1) };
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_prepares() {
    // So much memory that a tenth of it is worth keeping.
    let ballast = map(400 * MIB);
    touch(ballast, 400 * MIB);
    for round in 0..24 {
        let length = [8, 24, 2, 16][round % 4] * MIB;
        let start = map(length);
        touch(start, length);
        unmap(start, length);
    }
    // Nobody asks for what is kept.
    for _ in 0..12 {
        let length = 34 * MIB;
        unmap(map(length), length);
    }
    let mut object = vec![1u8; 8 * MIB];
    object.resize(48 * MIB, 2);
    assert_eq!(object[40 * MIB], 2);
}

const THREADS: usize = 4;
const PIECES: usize = 40;
const CHILDREN: usize = 3;

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_of_threads() {
    let work = |seed: usize| {
        for at in 0..PIECES {
            let length = (1 + (seed * 7 + at * 5) % 24) * MIB;
            let start = map(length);
            touch(start, length.min(2 * MIB));
            unmap(start, length);
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn(move || work(seed));
        }
        for _ in 0..CHILDREN {
            // SAFETY: the child maps memory and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let start = map(8 * MIB);
                touch(start, 8 * MIB);
                unmap(start, 8 * MIB);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: a child of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    });
}
