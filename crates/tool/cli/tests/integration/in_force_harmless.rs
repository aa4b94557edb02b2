//! A program under a design in force behaves as without one: in storms of forks, with many threads, across exec, under
//! limits, and with a stopped launcher. It also takes little memory that it does not use.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::ControlGroup;

use crate::common::{run, send, stderr, stdout, superpage};
use crate::in_force::{Bench, bench};

const DESIGN: [&str; 5] = ["run", "--json", "--design", "quicksilver-sync-64", "--"];

/// Runs a command in a control group.
fn run_in(group: &ControlGroup, words: &[&str]) -> Output {
    let mut command = Command::new("sh");
    group.join(&mut command).args(words).env_remove("LD_PRELOAD").output().expect("sh")
}

/// Checks that the program prints `ok` and ends with 0, without the design and under it. Returns its other output.
fn is_same(words: &[&str]) -> String {
    let plain = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let ours = run(&[&DESIGN[..], words].concat());
    let said = stderr(&ours);
    assert_eq!((stdout(&ours), ours.status), (stdout(&plain), plain.status), "{words:?}: {said}");
    assert_eq!(stdout(&ours), "ok\n", "{words:?}: {said}");
    said
}

fn with_program() -> Option<(Bench, String)> {
    let bench = bench()?;
    let program = bench.build("in_force.c", &["-pthread"]);
    Some((bench, program))
}

#[test]
#[ignore = "nightly: live designs"]
fn storms_of_forks_and_a_thousand_threads_end_as_without() {
    let Some((_bench, program)) = with_program() else { return };
    testkit::lock_machine!(shared);
    is_same(&[&program, "storm", "600", "400"]);
    is_same(&[&program, "threads", "1000"]);
}

/// There are more processes than the launcher may open files.
#[test]
fn few_descriptors_are_enough() {
    let Some((_bench, program)) = with_program() else { return };
    testkit::lock_machine!(shared);
    let script = "ulimit -n 32; exec \"$@\"";
    let words = ["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_superpage")];
    let words = [&words[..], &DESIGN, &[&program, "storm", "200", "100"]].concat();
    let ended = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert_eq!((stdout(&ended).as_str(), ended.status.code()), ("ok\n", Some(0)), "{ended:?}");
}

#[test]
fn programs_that_are_executed_meanwhile_end_as_without() {
    use std::os::unix::fs::PermissionsExt;
    let Some((bench, program)) = with_program() else { return };
    testkit::lock_machine!(shared);
    is_same(&[&program, "exec", "20"]);
    // Without address randomization, every program image has the same addresses.
    is_same(&["setarch", "-R", &program, "exec", "20"]);
    is_same(&[&bench.build("in_force.c", &["-pthread", "-static"]), "exec", "20"]);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    is_same(&[&program, "exec", "20"]);
}

/// If no thread can be started, the program runs without the design or is not started; superpage does not panic.
#[test]
fn a_group_of_few_processes_is_no_reason_to_panic() {
    let Some(_bench) = bench() else { return };
    for limit in 1..8 {
        let Some(group) = ControlGroup::new("pids", ["pids.max"; 2], limit, &limit.to_string())
        else {
            testkit::skipped!("no control group of few processes can be made here");
            return;
        };
        let words = [&[env!("CARGO_BIN_EXE_superpage")], &DESIGN[..], &["echo", "ok"]].concat();
        let ended = run_in(&group, &words);
        let said = stderr(&ended);
        assert!(!said.contains("panicked"), "{limit}: {said}");
        match ended.status.code() {
            Some(0) => assert_eq!(stdout(&ended), "ok\n", "{limit}: {said}"),
            // The code is the shell's, or that of the launcher's error.
            code => assert!(matches!(code, Some(2 | 3 | 125..=127)), "{limit}: {ended:?}"),
        }
    }
}

/// On base pages the program needs 105 of 128 MiB: 25 MiB in scattered pages, and later 80 MiB.
#[test]
#[ignore = "nightly: live designs"]
fn what_is_filled_does_not_get_a_program_killed_in_its_group() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let Some(group) = ControlGroup::of_memory(128 << 20, "in-force") else {
        testkit::skipped!("no memory control group can be made here");
        return;
    };
    let (program, sparse) = (bench.program(), ["100", "64", "0", "more", "80"]);
    let plain = run_in(&group, &[&[program.as_str()], &sparse[..]].concat());
    assert_eq!(stdout(&plain), "ok\n", "{plain:?}");
    let ours = [env!("CARGO_BIN_EXE_superpage")];
    let ours = run_in(&group, &[&ours, &DESIGN[..], &[&program], &sparse].concat());
    assert_eq!((stdout(&ours).as_str(), ours.status.code()), ("ok\n", Some(0)), "{ours:?}");
}

/// The limit of docs/decisions/live.md#10 is 16 MiB here. While other programs take faults, the kernel refuses for a
/// time (EAGAIN); an extent may then be neither made nor held when the program ends, and the program is run again.
#[test]
#[ignore = "nightly: how much a design in force fills, and when"]
fn little_is_filled_that_a_program_does_not_use() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let number = |of: &serde_json::Value, what: &str| of[what].as_u64().unwrap();
    let (mut ended, began) = (Vec::new(), Instant::now());
    let unused = loop {
        let unused = bench.run("quicksilver-sync-64", &["64", "64", "0"]);
        assert!(number(&unused, "filled_pages") <= (16 << 20) / 4096, "{unused}");
        testkit::require!(unused["failed"] == serde_json::json!({}), "no superpages: {unused}");
        if number(&unused, "made") + number(&unused, "held") == 64 {
            break unused;
        }
        ended.push(unused);
        assert!(began.elapsed() < Duration::from_secs(90), "{ended:?}");
    };
    assert!(number(&unused, "held") > 0, "{unused}");
    let used = bench.run("quicksilver-sync-64", &["40", "64", "40", "use"]);
    testkit::require!(used["failed"] == serde_json::json!({}), "superpages were short: {used}");
    // One more extent is mapped than is touched.
    let made = number(&used, "made");
    assert!((40..=41).contains(&made) && number(&used, "held") == 0, "{used}");
}

/// Copying memory that a fork shares into a superpage would duplicate it.
#[test]
#[ignore = "nightly: live designs"]
fn memory_that_a_fork_shares_is_not_copied() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    for design in ["freebsd", "quicksilver-sync-64"] {
        bench.run(design, &["32", "512", "0", "share"]);
    }
}

#[test]
fn a_stopped_launcher_does_not_stop_the_program() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let program = bench.program();
    let words = ["run", "-q", "--design", "quicksilver-sync-64", "--", &program, "8", "64", "0"];
    let mut launcher = superpage(&words).stdout(Stdio::piped()).spawn().unwrap();
    bench.await_program(&launcher);
    send(&launcher, libc::SIGSTOP);
    let mut line = String::new();
    let printed = launcher.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(printed), &mut line).unwrap();
    assert_eq!(line, "ok\n");
    send(&launcher, libc::SIGCONT);
    assert!(launcher.wait().unwrap().success());
}

/// Other runs would appear in the lists that are compared.
mod exclusive {
    use super::*;

    /// This also holds for a launcher that is killed during the run.
    #[test]
    fn nothing_is_left_behind() {
        let Some(bench) = bench() else { return };
        testkit::require!(testkit::is_root(), "needs root");
        testkit::lock_machine!();
        let settings = || {
            let read = |name| {
                std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"))
            };
            let thp = ["enabled", "defrag", "khugepaged/max_ptes_none"].map(|name| read(name).ok());
            let listed = ["/run/superpage", "/dev/shm"].map(|dir| {
                let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
                let mut names: Vec<_> = files.map(|file| file.file_name()).collect();
                names.retain(|name| {
                    dir != "/dev/shm" || name.to_string_lossy().contains("superpage")
                });
                names.sort();
                names
            });
            (thp, listed, crate::common::overcommit())
        };
        let before = settings();
        bench.run("quicksilver-sync-64", &["8", "64", "8"]);
        assert_eq!(settings(), before);
        let program = bench.program();
        let words =
            ["run", "-q", "--design", "quicksilver-sync-64", "--", &program, "8", "64", "0"];
        let mut launcher = superpage(&words).stdout(Stdio::piped()).spawn().unwrap();
        bench.await_program(&launcher);
        send(&launcher, libc::SIGKILL);
        launcher.wait().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut launcher.stdout.take().unwrap(), &mut text).unwrap();
        assert_eq!(text, "ok\n");
        assert!(run(&["restore"]).status.success());
        assert_eq!(settings(), before);
    }
}
