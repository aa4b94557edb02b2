//! `superpage tlb` as a command: its output, files and exit codes. Neither times nor the properties found of this
//! machine are asserted.

use std::process::Stdio;

use crate::common::{NO_LAB, has_lab, refused, run, send, stderr, stdout, superpage, wait_until};
use serde_json::Value;
use testkit::require;

/// Runs `superpage tlb` with its own data directory.
fn tlb(directory: &tempfile::TempDir, arguments: &[&str]) -> std::process::Output {
    let mut command = superpage(arguments);
    command.env("XDG_DATA_HOME", directory.path());
    command.output().expect("the command starts")
}

#[test]
#[ignore = "nightly: misses are timed"]
fn it_measures_prints_draws_and_keeps_what_it_found() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("staircase.svg");
    let svg = svg.to_str().unwrap();
    let output = tlb(
        &directory,
        &["tlb", "--quick", "--page-size", "4K", "--json", "--svg", svg, "--save", "--quiet"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert!(stdout(&output).starts_with("{\n  \"schema\": \"superpage.tlb/1\""));
    assert_eq!(document["sizes"].as_array().unwrap().len(), 1);
    assert!(document["sizes"][0]["curve"].as_array().unwrap().len() > 30);
    assert!(document["clock"]["core_mhz"].as_f64().unwrap() > 100.0);
    assert!(stderr(&output).contains("saved as the machine `this`"), "{}", stderr(&output));
    let notes = document["notes"].to_string();
    match document["accesses"]["independent"]["superpage_ns"].as_f64() {
        Some(ns) => assert!(ns > 0.0, "{ns} {notes}"),
        None => assert!(notes.contains("accesses far beyond the caches: "), "{notes}"),
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("</svg>"));

    let again = tlb(&directory, &["tlb", "--quick", "--page-size", "4K", "--svg", svg]);
    refused(&again, 2, "exists");
    if has_lab() {
        the_laboratory_has_it(&directory);
    } else {
        testkit::skipped!("{NO_LAB}");
    }

    // The measured costs can be used to price counted misses.
    let Some(miss) = document["sizes"][0]["miss"]["cycles"].as_f64() else {
        testkit::skipped!("too much went on beside to find a miss's cost in a hurry");
        return;
    };
    let counted = ["measure", "--misses", "1000", "--cycles", "1e9", "--cost", "this", "--json"];
    let output = tlb(&directory, &counted);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let measured: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let share = measured["estimate"]["share"]["mid"].as_f64().unwrap();
    assert!((share - 1000.0 * miss / 1e9).abs() < 1e-9, "{share} {miss}");
}

fn the_laboratory_has_it(directory: &tempfile::TempDir) {
    let listed = tlb(directory, &["lab", "machines"]);
    assert!(stdout(&listed).contains("this machine: "), "{}", stdout(&listed));
    let shown = stdout(&tlb(directory, &["lab", "machines", "this"]));
    assert!(shown.contains("name = \"this\"") && shown.contains("(measured)"), "{shown}");
    let workload = "gups:size=8M,operations=1K";
    let ran = tlb(
        directory,
        &["lab", "run", "-d", "base", "-w", workload, "--memory", "256M", "--machine", "this"],
    );
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
}

#[test]
fn a_machine_that_was_not_measured_says_how_it_would_be() {
    let directory = tempfile::tempdir().unwrap();
    if has_lab() {
        let arguments = ["lab", "run", "-d", "base", "-w", "gups:size=8M", "--machine", "this"];
        let output = tlb(&directory, &arguments);
        assert_eq!(output.status.code(), Some(3));
        assert!(stderr(&output).contains("superpage tlb --save"), "{}", stderr(&output));
    } else {
        testkit::skipped!("{NO_LAB}");
    }
    let arguments = ["measure", "--misses", "1000", "--cycles", "1e9", "--cost", "this"];
    let output = tlb(&directory, &arguments);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("superpage tlb --save"), "{}", stderr(&output));
}

#[test]
fn a_dry_run_measures_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = tlb(&directory, &["tlb", "--dry-run", "--save"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("pages of ") && text.contains("would write "), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn bad_input_is_one_line() {
    for (words, code, part) in [
        (&["--page-size", "3K"][..], 2, "--page-size"),
        (&["--page-size", "much"], 2, "--page-size"),
        (&["--page-size", "1K"], 3, "1 KiB"),
        (&["--format", "xml"], 2, "--format"),
        (&["--json", "--format", "env"], 2, "cannot be used with"),
        (&["-o", "/nowhere/at/all", "--quick"], 2, "/nowhere/at/all"),
    ] {
        refused(&run(&[&["tlb"][..], words].concat()), code, part);
    }
}

const MTHP: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
const GIANT: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";

fn read(knob: &str) -> Option<String> {
    std::fs::read_to_string(knob).ok()
}

fn is_off() -> bool {
    read(MTHP).is_some_and(|set| set.contains("[never]"))
}

#[test]
fn a_dry_run_tells_what_would_be_changed_and_changes_nothing() {
    testkit::lock_machine!(shared);
    require!(is_off(), "no mTHP of 64 KiB that are switched off");
    let output = run(&["tlb", "--dry-run", "--allow", "--page-size", "64K"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let would = format!("would set {MTHP} to madvise, and restore it, to measure pages of 64 KiB");
    assert!(stdout(&output).lines().any(|line| line == would), "{}", stdout(&output));
    assert!(is_off());
    let output = run(&["tlb", "--quick", "--page-size", "64K"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("--allow"), "{}", stderr(&output));
    assert!(is_off());
}

mod exclusive {
    use super::*;

    #[test]
    #[ignore = "nightly: misses are timed"]
    fn what_is_allowed_is_measured_and_put_back() {
        testkit::lock_machine!();
        require!(testkit::is_root(), "changes the machine's settings: root");
        for (size, bytes, knob) in [("64K", 64 << 10, MTHP), ("1G", 1 << 30, GIANT)] {
            let Some(before) = read(knob) else {
                testkit::skipped!("this machine has no pages of {size}");
                continue;
            };
            let output =
                run(&["tlb", "--quick", "--allow", "--page-size", size, "--json", "--quiet"]);
            assert_eq!(read(knob).as_ref(), Some(&before), "{size}");
            if output.status.code() == Some(3) {
                // Memory has no free block of this size, which is reported in one line.
                assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
                testkit::skipped!("{}", stderr(&output).trim_end());
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
            assert_eq!(document["sizes"][1]["page"], bytes, "{size}");
        }
    }

    #[test]
    fn however_it_ends_settings_are_put_back() {
        testkit::lock_machine!();
        require!(testkit::is_root(), "changes the machine's settings: root");
        require!(is_off(), "no mTHP of 64 KiB that are switched off");
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let mut command = superpage(&["tlb", "--allow", "--page-size", "64K", "--quiet"]);
            let mut child = command.stdout(Stdio::null()).spawn().expect("the command starts");
            wait_until("it is switched on", || !is_off());
            send(&child, signal);
            let status = child.wait().expect("a child of ours");
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal));
            if signal == libc::SIGKILL {
                assert_eq!(run(&["restore"]).status.code(), Some(0));
            }
            assert!(is_off(), "after signal {signal}");
        }
    }
}
