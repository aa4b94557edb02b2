//! `superpage tlb` as a command: what it prints and writes, its exit codes. Times are never asserted, and
//! what this machine is found to be neither.

use crate::common::{run, stderr, stdout, superpage};
use serde_json::Value;

/// With a data directory of its own.
fn tlb(directory: &tempfile::TempDir, arguments: &[&str]) -> std::process::Output {
    let mut command = superpage(arguments);
    command.env("XDG_DATA_HOME", directory.path());
    command.output().expect("the command starts")
}

#[test]
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
    assert!(std::fs::read_to_string(svg).unwrap().contains("</svg>"));

    let again = tlb(&directory, &["tlb", "--quick", "--page-size", "4K", "--svg", svg]);
    assert_eq!(again.status.code(), Some(2), "the picture exists");
    let listed = tlb(&directory, &["lab", "machines"]);
    assert!(stdout(&listed).contains("this machine: "), "{}", stdout(&listed));
    let shown = stdout(&tlb(&directory, &["lab", "machines", "this"]));
    assert!(shown.contains("name = \"this\"") && shown.contains("(measured)"), "{shown}");
    let workload = "gups:size=8M,operations=1K";
    let ran = tlb(
        &directory,
        &["lab", "run", "-d", "base", "-w", workload, "--memory", "256M", "--machine", "this"],
    );
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));

    // What was found prices misses that were counted.
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

#[test]
fn a_machine_that_was_not_measured_says_how_it_would_be() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["lab", "run", "-d", "base", "-w", "gups:size=8M", "--machine", "this"];
    let output = tlb(&directory, &arguments);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("superpage tlb --save"), "{}", stderr(&output));
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
    for (arguments, code) in [
        (vec!["tlb", "--page-size", "3K"], 2),
        (vec!["tlb", "--page-size", "much"], 2),
        (vec!["tlb", "--page-size", "1K"], 3),
        (vec!["tlb", "--format", "xml"], 2),
        (vec!["tlb", "--json", "--format", "env"], 2),
        (vec!["tlb", "-o", "/nowhere/at/all", "--quick"], 2),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{arguments:?}: {}", stderr(&output));
    }
}
