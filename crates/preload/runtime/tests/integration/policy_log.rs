//! The decision logs of real programs are replayed: `advisor` must give all the same actions again.
//!
//! Kernel tier: needs THP of 2 MiB. Privileged tier: needs a pool.

use crate::api_calls;
use crate::programs;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use advisor::{Action, Outcome};
use advisor::{Advisor, Begin, Event, Facts, Kind, Record};

const THP: Asked = Asked { pages: "thp", memory: "heap,mmap", fallback: "base", children: "base" };
const LOG: &str = "SUPERPAGE_POLICY_LOG";

/// The log of one process.
struct Process {
    begin: Begin,
    records: Vec<Record>,
}

/// Returns all processes of a log. A process that executes another program begins again.
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

/// Repeats all decisions, from the state at the start of the process. Returns their number.
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
        let mut decider = Advisor { state: record.state.unwrap_or(policy.state), ..policy };
        let before = decider.state;
        assert_eq!(decider.on(record.event, &record.facts), record.action, "{record}");
        if record.state.is_none() && decider.state != before {
            assert!(next.replace(decider).is_none(), "changed twice: {record}");
        }
        count += 1;
    }
    count
}

/// Returns the actions of a log, and the number of replayed decisions.
fn replayed(path: &Path) -> (Vec<Action>, usize) {
    let processes = read(path);
    let actions = processes.iter().flat_map(|it| &it.records).map(|it| it.action).collect();
    let count = processes.into_iter().map(replay).sum();
    println!("{}: {count} decisions", path.display());
    (actions, count)
}

/// Returns the successful actions with their facts: an action and its outcome are one line of a log.
fn done(path: &Path) -> Vec<(Action, Facts)> {
    let records = read(path).into_iter().flat_map(|it| it.records);
    let done = records.filter_map(|record| match record.event {
        Event::Outcome { action, result: Outcome::Done { .. }, .. } => Some((action, record.facts)),
        _ => None,
    });
    done.collect()
}

/// Returns the KiB of advised memory for which `is` holds.
fn advised_kib(path: &Path, is: impl Fn(&Facts) -> bool) -> u64 {
    let bytes = |(action, facts): &(Action, Facts)| match action {
        Action::Advise { bytes, .. } if is(facts) => *bytes,
        _ => 0,
    };
    done(path).iter().map(bytes).sum::<u64>() >> 10
}

/// Runs a C program under the library; returns its output and log.
fn logged_program(
    source: &str,
    arguments: &[&str],
    memory: &str,
) -> (String, tempfile::TempDir, std::path::PathBuf) {
    let name = format!("{}_logged", source.trim_end_matches(".c"));
    let program = programs::build(source, &name, "cc", &["-O1", "-pthread", "-ldl"]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let mut command = Command::new(&program);
    command.args(arguments).envs(programs::under("thp", memory, "base")).env(LOG, &path);
    (programs::run(command), dir, path)
}

fn has(actions: &[Action], is: impl Fn(&Action) -> bool) -> bool {
    actions.iter().any(is)
}

/// Returns a child of this test with a separate log.
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
    let (mut command, _dir, path) = logged("policy_log::child_prepares");
    command.env("SUPERPAGE_PREZERO", (64 * MIB).to_string());
    command.env("SUPERPAGE_PREFAULT", (32 * MIB).to_string());
    assert!(succeeds(command));
    let (actions, count) = replayed(&path);
    assert!(count >= 100, "{count}");
    assert!(has(&actions, |it| matches!(it, Action::Advise { .. } | Action::GiveUp)));
    // Without free superpages or memory, some of these actions do not occur.
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
    let (command, _dir, path) = logged("policy_log::child_of_threads");
    assert!(succeeds(command));
    let processes = read(&path);
    assert!(processes.len() > CHILDREN, "a parent and its children");
    assert!(processes.iter().any(|it| it.begin.seq > 0), "a child goes on as its parent was");
    let (_, count) = replayed(&path);
    assert!(count >= THREADS * PIECES, "{count}");
}

#[test]
fn a_c_program_is_advised_as_it_is_logged() {
    testkit::lock_machine!(shared);
    testkit::require!(programs::has("cc") && programs::has_thp(), "needs a C compiler and THP");
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    for pieces in [["64", "4", "0", ""], ["256", "1", "0", "remapped"]] {
        let (report, _dir, path) = logged_program("touch.c", &pieces, "mmap");
        assert!(programs::number(&report, "huge_kib") <= advised_kib(&path, |_| true), "{report}");
        assert!(replayed(&path).1 > 0);
    }
}

#[test]
fn segments_lie_on_superpages_as_it_is_logged() {
    testkit::lock_machine!(shared);
    testkit::require!(programs::has("cc") && programs::has_thp(), "needs a C compiler and THP");
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
    for memory in ["text=copy,data", "text,data"] {
        let (report, _dir, path) = logged_program("segments.c", &["parts"], memory);
        let kib = |part| programs::number(&report, part);
        let made = |(action, facts): &(Action, Facts)| match (action, facts.kind) {
            (Action::Copy { .. }, Kind::Segment) => facts.length,
            _ => 0,
        };
        let made = done(&path).iter().map(made).sum::<u64>() >> 10;
        assert!(0 < kib("data") && kib("text") + kib("data") <= made, "{made}: {report}");
        // The rest of the same mapping is counted, too.
        let bss = advised_kib(&path, |facts| facts.kind == Kind::Bss);
        assert!(0 < kib("bss") && kib("bss") <= bss + made, "{bss} and {made}: {report}");
        assert!(replayed(&path).1 > 0);
    }
}

#[test]
fn stacks_are_advised_as_it_is_logged() {
    testkit::lock_machine!(shared);
    testkit::require!(programs::has("cc") && programs::has_thp(), "needs a C compiler and THP");
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    // Others may be using the machine's free superpages at that moment.
    let mut runs = (0..3).map(|_| logged_program("stacks.c", &["", "3", "20"], "stack=4194304"));
    let on_superpages = |run: &(String, _, _)| programs::number(&run.0, "main") > 0;
    let (report, _dir, path) = runs.find(on_superpages).expect("superpages in one of three runs");
    let main = advised_kib(&path, |facts| facts.kind == Kind::Stack);
    let kib = programs::number(&report, "main");
    assert!(kib <= main, "{main}: {report}");
    assert!(advised_kib(&path, |facts| facts.kind == Kind::Whole) > 0, "of threads");
    assert!(replayed(&path).1 > 0);
}

#[test]
fn small_mappings_are_advised_as_it_is_logged() {
    testkit::lock_machine!(shared);
    testkit::require!(programs::has_thp(), "needs transparent superpages of 2 MiB");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    let (command, _dir, path) = logged("policy_log::child_maps_little");
    let report = output(command);
    assert!(has_passed(&report));
    let advised = programs::number(&String::from_utf8_lossy(&report.stdout), "advised_kib");
    let joined = advised_kib(&path, |facts| facts.kind == Kind::Joined);
    assert_eq!(joined, 2 * 64, "what was put into a larger mapping");
    assert!((8 << 10..=advised_kib(&path, |_| true)).contains(&advised), "{advised}");
    assert!(replayed(&path).1 > 0);
}

mod exclusive {
    use super::*;

    #[test]
    fn what_lies_beside_the_pool_is_advised_as_it_is_logged() {
        testkit::require!(programs::has_thp(), "needs transparent superpages of 2 MiB");
        let Some(pool) = Pool::of(12) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut command = child_on_pool(
            "policy_log::child_on_a_short_pool",
            Asked { fallback: "thp", ..HUGETLB },
        );
        command.env(LOG, &path);
        let report = output(command);
        assert!(has_passed(&report) && pool.is_empty());
        let advised = programs::number(&String::from_utf8_lossy(&report.stdout), "advised_kib");
        assert!(advised <= advised_kib(&path, |_| true), "{advised}");
        assert_eq!(advised_kib(&path, |facts| facts.kind == Kind::Region), REGION as u64 >> 10);
        let ends = |facts: &Facts| facts.kind == Kind::Mapping && facts.length == END as u64;
        assert_eq!(advised_kib(&path, ends), END as u64 >> 10, "what fills no superpage");
        assert_eq!(advised_kib(&path, |facts| facts.kind == Kind::Copy), 4 << 10, "the child's");
        assert!(advised_kib(&path, |facts| facts.kind == Kind::Heap) >= 16 << 10, "malloc's");
        let (actions, count) = replayed(&path);
        assert!(count > 0 && !has(&actions, |it| *it == Action::Refuse));
    }
}

#[test]
fn a_log_that_cannot_be_written_disturbs_nothing() {
    for path in ["/nonexistent/log", "/dev/full", ""] {
        let mut command = child("policy_log::child_of_threads", THP);
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
    // Enough memory that a tenth of it is worth keeping.
    let ballast = map(400 * MIB);
    touch(ballast, 400 * MIB);
    for round in 0..24 {
        let length = [8, 24, 2, 16][round % 4] * MIB;
        let start = map(length);
        touch(start, length);
        unmap(start, length);
    }
    // Requests that cannot be served from kept memory.
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
    // This comes before the first fork, whichever thread runs first.
    work(THREADS);
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
                // SAFETY: the call ends the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: a child of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    });
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_little() {
    let large = map(8 * MIB);
    const LITTLE: usize = 64 << 10;
    for flags in [0, libc::MAP_FIXED] {
        // SAFETY: a part of a mapping of this test, which is mapped again.
        let got = unsafe {
            let hole = large.add(MIB);
            unmap(hole, LITTLE);
            let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            (libc::mmap(hole.cast(), LITTLE, protection, flags, -1, 0), hole.cast())
        };
        assert_eq!(got.0, got.1);
    }
    for _ in 0..48 {
        touch(map(MIB), MIB);
    }
    touch(large, 8 * MIB);
    println!("advised_kib {}", kib_with_advice());
}

/// The part of a mapping outside whole superpages.
const END: usize = MIB / 2;
const REGION: usize = 40 * MIB;

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_on_a_short_pool() {
    let mapping = map(4 * MIB + END);
    fill(mapping, 4 * MIB + END, 1);
    let status = in_child(|| holds(mapping, 0, 4 * MIB + END, 1));
    assert_eq!(status, 0);
    // The object's first superpages are on the pool, and the memory by which it grows is not.
    let mut object = vec![1u8; 8 * MIB];
    for length in [12, 24, 40] {
        object.resize(length * MIB, 1);
    }
    assert!(object.iter().all(|byte| *byte == 1));
    let flags = api_calls::OR_THP;
    let region = api_calls::Library::loaded().map(REGION, 0, flags, -1).expect("ordinary pages");
    touch(region as *mut u8, REGION);
    println!("advised_kib {}", kib_with_advice());
}
