//! hugectl: the environment it prints, what it refuses, and what a program then has.

use std::fs;
use std::process::Command;

use super::{command, refuses, tool};
use crate::common::{has_thp, stderr, stdout};

/// The lines of a dry run, without those of the verbosity.
fn dry_run(words: &[&str]) -> Vec<String> {
    let output = tool("hugectl", &[&["--dry-run"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    let text = stdout(&output);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("HUGETLB_VERBOSE='2'"));
    lines.map(str::to_string).collect()
}

/// The lines that libhugetlbfs' own hugectl prints, without those about where its library is.
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
    let lines = dry_run(&["--heap", "--shm"]).join("\n");
    for part in ["SUPERPAGE_PAGES='hugetlb:", "SUPERPAGE_MEMORY='heap,shm'", "libsuperpage.so'"] {
        assert!(lines.contains(part), "{lines}");
    }
    let loud = stdout(&tool("hugectl", &["--dry-run", "--verbose", "99"]));
    assert!(loud.starts_with("HUGETLB_DEBUG='yes'\nHUGETLB_VERBOSE='99'\n"), "{loud}");
    for (words, level) in [(&["-v"][..], 3), (&["-q", "-q"], 0), (&["-v", "7"], 7), (&["-vv"], 4)] {
        let text = stdout(&tool("hugectl", &[words, &["--dry-run"]].concat()));
        assert!(text.starts_with(&format!("HUGETLB_VERBOSE='{level}'")), "{words:?}: {text}");
    }
}

#[test]
fn what_cannot_be_is_said_before_the_program_starts() {
    refuses(
        "hugectl",
        &[
            (&[], 2, &["name a program"]),
            (&["--heap"], 2, &["name a program"]),
            (&["--heap=banana", "true"], 2, &["`banana` is no page size"]),
            (&["--heap=10Q", "true"], 2, &["`10Q`"]),
            (&["--text=33M", "true"], 2, &["`33M`"]),
            (&["--disable=stack", "true"], 2, &["`stack` cannot be disabled"]),
            (&["--verbose", "100", "true"], 2, &["0-99"]),
            (&["--banana", "true"], 2, &["'--banana'"]),
            (&["--lib", "true"], 2, &["ambiguous"]),
            (&["--heap=8T", "true"], 3, &["no hugetlb pool of 8 TiB"]),
            (&["--share-text", "true"], 3, &["--share-text"]),
            (&["no-such-program"], 127, &["`no-such-program` was not found"]),
            (&["/etc/passwd"], 126, &["execute permission"]),
        ],
    );
}

#[test]
fn the_programs_end_is_ours() {
    // No part that this program would heed is asked for, which is a warning.
    for (script, code) in [("exit 0", Some(0)), ("exit 9", Some(9)), ("kill -9 $$", None)] {
        let output = tool("hugectl", &["sh", "-c", script]);
        assert_eq!(output.status.code(), code, "{script}");
    }
    // No process between the caller and the program: it has the pid that was started.
    let mut child = command("hugectl");
    child.args(["-q", "sh", "-c", "echo $$"]).stdout(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    let pid = child.id();
    assert_eq!(stdout(&child.wait_with_output().unwrap()).trim(), pid.to_string());
    let output = tool("hugectl", &["--disable", "sh", "-c", "echo $HUGETLB_ELFMAP $0", "--heap"]);
    assert_eq!(stdout(&output), "no --heap\n");
}

#[test]
fn a_static_program_is_refused_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x.c");
    fs::write(&source, "int main(void) { return 4; }\n").unwrap();
    let program = dir.path().join("x");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    testkit::require!(built.is_ok_and(|o| o.status.success()), "no C compiler with a static libc");
    testkit::require!(has_thp(), "THP are off");
    let program = program.to_str().unwrap();
    let output = tool("hugectl", &["--thp", program]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("linked statically"), "{}", stderr(&output));
    let output = tool("hugectl", &["--thp", "--force-preload", program]);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("WARNING"), "{}", stderr(&output));
}

/// A program that fills memory and prints the part of it that lies on superpages, in kB.
const FILLS: &str = "import re\n\
    x = bytearray(40 << 20)\n\
    x[::4096] = b'1' * len(x[::4096])\n\
    s = open('/proc/self/smaps').read()\n\
    print(sum(map(int, re.findall('(?:AnonHugePages|Private_Hugetlb): *([0-9]+)', s))))";

#[test]
fn the_heap_lies_on_superpages() {
    let python = Command::new("python3").arg("--version").output();
    testkit::require!(python.is_ok(), "no python3 to fill a heap with");
    testkit::require!(has_thp(), "THP are off");
    let output = tool("hugectl", &["--thp", "python3", "-c", FILLS]);
    let kib: u64 = stdout(&output).trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert!(kib >= 36 << 10, "{kib} kB on superpages: {}", stderr(&output));
    testkit::require!(testkit::is_root(), "not root: no pool can be filled");
    let Some(_lock) = testkit::machine_lock() else { return };
    testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
    let _pools = testkit::PoolsAsFound::note();
    fs::write("/proc/sys/vm/nr_hugepages", "60").unwrap();
    let output = tool("hugectl", &["--heap", "python3", "-c", FILLS]);
    let kib: u64 = stdout(&output).trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert!(kib >= 36 << 10, "{kib} kB on superpages: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "nothing to say of a run that got all");
    fs::write("/proc/sys/vm/nr_hugepages", "4").unwrap();
    fs::write("/proc/sys/vm/nr_overcommit_hugepages", "0").unwrap();
    let output = tool("hugectl", &["--heap", "python3", "-c", FILLS]);
    assert!(output.status.success() && stderr(&output).contains("are not: "), "{output:?}");
    let output = tool("hugectl", &["-q", "--heap", "python3", "-c", FILLS]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    fs::write("/proc/sys/vm/nr_hugepages", "0").unwrap();
    fs::write("/proc/sys/vm/nr_overcommit_hugepages", "0").unwrap();
    let output = tool("hugectl", &["--heap", "true"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("hugeadm --pool-pages-min"), "{}", stderr(&output));
}
