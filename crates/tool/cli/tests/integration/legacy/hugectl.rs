//! hugectl: the environment that it prints, its errors, and the pages that a program gets.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::{command, tool};
use crate::common::{NO_POOL, has_pool, has_thp, stderr, stdout, thp_fallbacks};

/// Returns the lines of a dry run, without those about the verbosity.
fn dry_run(words: &[&str]) -> Vec<String> {
    let output = tool("hugectl", &[&["--dry-run"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    let text = stdout(&output);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("HUGETLB_VERBOSE='2'"));
    lines.map(str::to_string).collect()
}

/// The expected lines are those of libhugetlbfs' own hugectl, without those about the path of its library.
#[test]
fn a_dry_run_prints_the_old_lines_and_what_is_really_set() {
    for (words, old) in [
        (&[][..], &[][..]),
        (&["--heap"], &["HUGETLB_MORECORE='yes'"]),
        (&["--heap=2M", "--shm"], &["HUGETLB_MORECORE='2M'", "HUGETLB_SHM='yes'"]),
        (&["--text=2M", "--data"], &["HUGETLB_ELFMAP='R=2M:W'"]),
        (&["--bss"], &["HUGETLB_ELFMAP='W'"]),
        (&["--text", "--disable"], &["HUGETLB_ELFMAP='no'"]),
        (&["--shm", "--no-reserve"], &["HUGETLB_SHM='yes'", "HUGETLB_NO_RESERVE='yes'"]),
        (&["--text", "--share-text"], &["HUGETLB_ELFMAP='R'", "HUGETLB_SHARE='1'"]),
        (&["--thp"], &["HUGETLB_MORECORE='thp'"]),
    ] {
        let lines = dry_run(words);
        let found: Vec<&String> = lines.iter().filter(|l| l.starts_with("HUGETLB_")).collect();
        assert_eq!(found, old, "{words:?}");
    }
    if has_pool() {
        let lines = dry_run(&["--heap", "--shm"]).join("\n");
        for part in ["SUPERPAGE_PAGES='hugetlb:", "SUPERPAGE_MEMORY='heap,shm'", "libsuperpage.so'"]
        {
            assert!(lines.contains(part), "{lines}");
        }
    } else {
        testkit::skipped!("{NO_POOL}");
    }
    let loud = stdout(&tool("hugectl", &["--dry-run", "--verbose", "99"]));
    assert!(loud.starts_with("HUGETLB_DEBUG='yes'\nHUGETLB_VERBOSE='99'\n"), "{loud}");
    for (words, level) in [(&["-v"][..], 3), (&["-q", "-q"], 0), (&["-v", "7"], 7), (&["-vv"], 4)] {
        let text = stdout(&tool("hugectl", &[words, &["--dry-run"]].concat()));
        assert!(text.starts_with(&format!("HUGETLB_VERBOSE='{level}'")), "{words:?}: {text}");
    }
}

#[test]
fn the_programs_end_is_ours() {
    // No part of the program's memory is requested, which gives a warning.
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 9", Some(9), None),
        ("kill -9 $$", None, Some(libc::SIGKILL)),
    ] {
        let status = tool("hugectl", &["sh", "-c", script]).status;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
    // There is no process between the caller and the program, so the program has the pid that was started.
    let mut child = command("hugectl");
    child.args(["-q", "sh", "-c", "echo $$"]).stdout(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    let pid = child.id();
    assert_eq!(stdout(&child.wait_with_output().unwrap()).trim(), pid.to_string());
    let output = tool("hugectl", &["--disable", "sh", "-c", "echo $HUGETLB_ELFMAP $0", "--heap"]);
    assert_eq!(stdout(&output), "no --heap\n");
}

/// A program that fills memory and prints how much of it is on superpages, in kB.
const FILLS: &str = "import re\n\
    x = bytearray(40 << 20)\n\
    x[::4096] = b'1' * len(x[::4096])\n\
    s = open('/proc/self/smaps').read()\n\
    print(sum(map(int, re.findall('(?:AnonHugePages|Private_Hugetlb): *([0-9]+)', s))))";

/// The same with 80 objects of 512 KiB, none of which contains a superpage.
fn fills_in_pieces() -> String {
    FILLS.replace(
        "bytearray(40 << 20)\nx[::4096] = b'1' * len(x[::4096])",
        "[bytearray(512 << 10) for _ in range(80)]",
    )
}

/// Returns the KiB of a program's heap on superpages, and hugectl's messages.
fn heap(words: &[&str]) -> (u64, String) {
    filled(words, FILLS)
}

fn filled(words: &[&str], program: &str) -> (u64, String) {
    let output = tool("hugectl", &[words, &["python3", "-c", program]].concat());
    assert!(output.status.success(), "{output:?}");
    let kib: u64 = stdout(&output).trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    (kib, stderr(&output))
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_heap_lies_on_thp() {
    testkit::require!(has_python(), "no python3 to fill a heap with");
    testkit::require!(has_thp(), "THP are off");
    testkit::lock_machine!(shared);
    let before = thp_fallbacks();
    let (kib, said) = heap(&["--thp"]);
    let was_short = thp_fallbacks() > before;
    testkit::require!(!was_short || kib >= 36 << 10, "superpages were short: {kib} kB");
    assert!(kib >= 36 << 10, "{kib} kB on superpages: {said}");
}

mod exclusive {
    use super::*;

    #[test]
    fn the_heap_lies_on_pages_of_the_pool() {
        testkit::require!(has_python(), "no python3 to fill a heap with");
        testkit::require!(testkit::is_root(), "not root: no pool can be filled");
        testkit::lock_machine!();
        let _pools = testkit::PoolsAsFound::note();
        testkit::require!(testkit::leave_free(60), "this machine has no 60 free superpages");
        let (kib, said) = heap(&["--heap"]);
        assert!(kib >= 36 << 10, "{kib} kB on superpages: {said}");
        assert_eq!(said, "", "nothing to say of a run that got all");
        let pieces = fills_in_pieces();
        assert_ne!(pieces, FILLS);
        let (kib, said) = filled(&["--heap"], &pieces);
        assert!(kib >= 36 << 10, "pieces: {kib} kB on superpages: {said}");
        assert!(testkit::leave_free(4), "fewer than before");
        let said = heap(&["--heap"]).1;
        // There is one line for each process that ran short; python3 may be a script, which is another process.
        let pages = |line: &str, words: &str| -> Option<u64> {
            line.split_once(words)?.0.split_whitespace().next_back()?.parse().ok()
        };
        let told = said.lines().filter_map(|line| {
            Some((pages(line, " pages of 2 MiB wanted")?, pages(line, " had; ")?))
        });
        let (wanted, had) = told.max().unwrap_or_else(|| panic!("{said}"));
        assert!(wanted >= 20 && had <= 4, "{said}");
        assert_eq!(heap(&["-q", "--heap"]).1, "");
        // An empty pool gives a warning, and the program runs.
        assert!(testkit::leave_free(0), "fewer than before");
        let (kib, said) = heap(&["--heap"]);
        assert!(kib == 0 && said.contains("hugeadm --pool-pages-min 2M:+N"), "{kib} kB: {said}");
        assert_eq!(heap(&["-q", "--heap"]).1, "");
    }
}
