//! `superpage measure`: its output for files and numbers, and its errors.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use units::Pid;

use crate::common::{refused, run, stderr, stdout, superpage};

const STREAM: &str = "misses=9492 miss_period=1000 cost=563\ncycles=599073 cycle_period=50000\n";

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn from(text: &str, more: &[&str]) -> Output {
    let file = file(text);
    let mut words = vec!["measure", "--from", file.path().to_str().unwrap()];
    words.extend(more);
    run(&words)
}

/// Returns a line of `perf stat -j`.
fn counted(event: &str, value: &str, percent: u32) -> String {
    format!(
        "{{\"counter-value\": \"{value}\", \"event\": \"{event}\", \"pcnt-running\": {percent}.00}}\n"
    )
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn lwns_worked_example_from_a_file_and_from_flags() {
    let table = from(STREAM, &[]);
    let text = stdout(&table);
    for part in ["17.8 % of the time", "at most 1.22x as fast", "given-misses-times-cost"] {
        assert!(text.contains(part), "lacks {part}: {text}");
    }
    let flags = ["--misses", "9492000", "--cost", "563", "--cycles", "29_953_650_000"];
    let by_flags = run(&[&["measure", "--json"], flags.as_slice()].concat());
    let (file, flags) = (json(&from(STREAM, &["--json"])), json(&by_flags));
    for document in [&file, &flags] {
        assert_eq!(document["schema"], "superpage.measure/1");
        assert_eq!(document["estimate"]["method"]["name"], "given-misses-times-cost");
        let share = document["estimate"]["share"]["mid"].as_f64().unwrap();
        assert_eq!(format!("{:.2}", share * 100.0), "17.84");
        assert!(document["estimate"]["dtlb"].is_null());
        assert!(document["exit_code"].is_null());
    }
    assert!(stdout(&by_flags).starts_with("{\n  \"schema\""));
}

#[test]
fn samples_of_opreport_give_the_same_as_keys() {
    let event = |name: &str, count: u32, samples: u32| {
        format!(
            "CPU: Core 2, speed 2534 MHz (estimated)\nCounted {name} events (x) with a unit mask of 0x00 (x) \
             count {count}\nsamples  %  image name  symbol name\n{samples}  100.000  stream  main\n"
        )
    };
    let report = event("DTLB_MISSES", 1000, 9492) + &event("CPU_CLK_UNHALTED", 50_000, 599_073);
    let document = json(&from(&report, &["--cost", "563", "--json"]));
    let share = document["estimate"]["dtlb"]["mid"].as_f64().unwrap();
    assert_eq!(format!("{:.2}", share * 100.0), "17.84");
}

#[test]
fn perf_stat_gives_both_parts_or_the_reason_why_not() {
    let walks = [
        counted("cycles:u", "2000000000.0", 100),
        counted("dtlb_load_misses.walk_active:u", "300000000.0", 50),
        counted("itlb_misses.walk_active:u", "20000000.0", 50),
    ];
    let document = json(&from(&walks.concat(), &["--json"]));
    assert_eq!(document["format"], "perf stat -j");
    let estimate = &document["estimate"];
    assert_eq!(estimate["method"]["name"], "pmu-walk-cycles");
    assert_eq!(estimate["dtlb"]["mid"], 0.15);
    assert_eq!(estimate["itlb"]["mid"], 0.01);
    assert_eq!(estimate["scope"], "user");
    let misses =
        [counted("cycles", "2000000000.0", 100), counted("dTLB-load-misses", "1000000.0", 100)]
            .concat();
    let unknown = from(&misses, &["--json"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", stderr(&unknown));
    let document: serde_json::Value = serde_json::from_slice(&unknown.stdout).unwrap();
    assert_eq!(document["estimate"]["method"]["name"], "unknown");
    assert!(document["estimate"]["share"].is_null() && document["estimate"]["gain"].is_null());
    let priced = json(&from(&misses, &["--json", "--cost", "30"]));
    assert_eq!(priced["estimate"]["method"]["name"], "pmu-misses-times-cost");
    assert_eq!(priced["estimate"]["share"]["mid"], 0.015);
}

#[test]
fn a_bound_is_of_what_was_counted() {
    let walks = |events: &[&str]| {
        let event = |name: &&str| counted(name, "300000000.0", 100);
        counted("cycles", "2000000000.0", 100) + &events.iter().map(event).collect::<String>()
    };
    let data = [
        "dtlb_load_misses.walk_active",
        "dtlb_store_misses.walk_active",
        "dtlb_load_misses.stlb_hit",
        "dtlb_store_misses.stlb_hit",
    ];
    let code = ["itlb_misses.walk_active", "itlb_misses.stlb_hit"];
    let bound = |events: &[&str], more: &[&str]| {
        let text = walks(events);
        let document = json(&from(&text, &[&["--json"], more].concat()));
        let most = document["estimate"]["gain"]["speedup_at_most"].clone();
        (stdout(&from(&text, more)), most)
    };
    let priced = ["--hit-cost", "0.7"];
    let (text, most) = bound(&[&data[..], &code].concat(), &priced);
    assert!(text.contains("by translation alone at most") && most.is_number(), "{text}");
    let (text, most) = bound(&data, &priced);
    assert!(text.contains("by translation of data alone at most") && most.is_number(), "{text}");
    let (text, most) = bound(&data, &[]);
    assert!(
        text.contains("no bound") && text.contains("have no price") && most.is_null(),
        "{text}"
    );
    let (text, most) = bound(&data[..2], &priced);
    assert!(text.contains("no bound") && most.is_null(), "{text}");
    assert!(
        text.contains("missing for the largest speedup: dtlb_load_misses.stlb_hit, "),
        "{text}"
    );
    assert!(
        text.contains("\ncount all: perf stat -e cycles,dtlb_load_misses.walk_active,"),
        "{text}"
    );
    let (text, most) = bound(&data[..1], &priced);
    assert!(text.contains("no bound") && most.is_null(), "{text}");
    assert!(text.contains("walks for stores were not counted"), "{text}");
}

/// The forms that reports in the field have.
#[test]
fn text_and_csv_of_perf_stat_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../walk-cost/tests/perf/");
    for (file, format) in [
        ("perf-4.4-text-repeat.txt", "perf stat"),
        ("perf-5.10-csv-repeat.txt", "perf stat -x"),
        ("perf-6.1-text-german.txt", "perf stat"),
        ("perf-6.1-json-repeat.txt", "perf stat -j"),
    ] {
        let path = format!("{folder}{file}");
        let document = json(&run(&["measure", "--from", &path, "--hit-cost", "7", "--json"]));
        let estimate = &document["estimate"];
        assert_eq!(document["format"], format);
        let mid = estimate["share"]["mid"].as_f64().unwrap();
        assert_eq!(format!("{:.3}", mid * 100.0), "14.717", "{file}");
        let most = estimate["gain"]["speedup_at_most"].as_f64().unwrap();
        assert_eq!(format!("{most:.3}"), "1.199", "{file}");
        assert_eq!(estimate["missing"].as_array().unwrap().len(), 0, "{file}");
    }
}

#[test]
fn only_what_fits_together_is_a_share() {
    let words = ["measure", "--misses", "9492000", "--cost", "5630", "--cycles", "29953650000"];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("unknown: the misses would take 178 % of all cycles"), "{text}");
    let events = [
        counted("cycles:k", "1000000000.0", 100),
        counted("cycles:u", "9000000000.0", 100),
        counted("dtlb_load_misses.walk_active:k", "600000000.0", 100),
        counted("dtlb_load_misses.walk_active:u", "900000000.0", 100),
    ];
    let document = json(&from(&events.concat(), &["--json"]));
    assert_eq!(document["estimate"]["share"]["mid"], 0.15);
    assert_eq!(document["estimate"]["scope"], "user-and-kernel");
}

#[test]
fn samples_are_shared_out_to_mappings_and_functions() {
    // Page faults of `true`, as perf wrote them to a pipe.
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../walk-cost/tests/fixtures/piped.data");
    let output = run(&["measure", "--from", data, "--top", "1"]);
    assert_eq!(output.status.code(), Some(1), "cycles were not sampled: {}", stderr(&output));
    let text = stdout(&output);
    for part in ["libc.so.6", "42 %", "(6 more)", "unknown: cycles were not counted"] {
        assert!(text.contains(part), "lacks {part}: {text}");
    }
    assert!(!text.contains("[stack]"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_one_line() {
    refused(&run(&["measure"]), 2, "nothing to measure");
    refused(&run(&["measure", "--from", "/no/such/file"]), 2, "cannot read /no/such/file");
    refused(&from("hello\n", &[]), 2, "unknown format");
    refused(&from("misses=1\nmises=2\n", &[]), 2, ":2: expected");
    refused(&from(STREAM, &["--hit-cost", "7"]), 2, "--hit-cost is for counts");
    refused(&from(STREAM, &["--method", "trace"]), 2, "needs -- PROGRAM");
    refused(&from(&counted("cycles", "9.0", 100), &["--misses", "3"]), 2, "are counts already");
    refused(&run(&["measure", "--pid", "0"]), 2, "above 0");
    refused(&run(&["measure", "--pid", "2147483646"]), 2, "no such process");
    refused(
        &run(&["measure", "--pid", "1", "--method", "trace"]),
        2,
        "cannot record a running process",
    );
    refused(&run(&["measure", "--pid", "1", "--", "true"]), 2, "cannot be used with");
    refused(&run(&["measure", "--for", "3", "--", "true"]), 2, "needs --pid");
    let taken = file("mine");
    let taken = taken.path().to_str().unwrap();
    refused(&from(STREAM, &["-o", taken]), 2, "exists");
}

/// Without counters: a recording, the other method, cannot be made of a running process.
#[test]
fn what_cannot_be_counted_of_a_running_process_is_pointed_to_its_map() {
    let own = std::process::id().to_string();
    let output = run(&["measure", "--pid", &own, "--for", "0.1"]);
    testkit::require!(output.status.code() == Some(3), "this machine has counters");
    refused(&output, 3, &format!("`superpage map {own}` shows"));
    assert!(!stderr(&output).contains("--method"), "{}", stderr(&output));
}

#[test]
fn a_measurement_goes_into_a_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("measure.json");
    let output = from(STREAM, &["--json", "-o", path.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains("superpage.measure/1"), "{text}");
}

/// With a PMU the output has a number or the reason for its absence, and without a PMU the remedy. A number always has
/// a method.
#[test]
fn the_counters_are_used_or_told_to_be_missing() {
    let output = run(&["measure", "--method", "pmu", "--json", "--", "true"]);
    if output.status.code() == Some(3) {
        let line = stderr(&output);
        assert!(output.stdout.is_empty() && line.trim_end().lines().count() == 1, "{line}");
        testkit::skipped!("no counters: {}", line.trim_end());
        return;
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let estimate = &document["estimate"];
    let method = estimate["method"]["name"].as_str().unwrap();
    assert!(method == "unknown" || method.starts_with("pmu-"), "{document}");
    assert!(estimate["share"].is_null() || method != "unknown", "{document}");
    assert_eq!(document["exit_code"], 0);
}

/// Returns whether programs can be recorded here; otherwise counts a skip.
fn records() -> bool {
    let dry = run(&["measure", "--method", "trace", "--json", "--", "sh", "-c", "exit 7"]);
    if dry.status.code() != Some(3) {
        return true;
    }
    let line = stderr(&dry);
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    testkit::skipped!("no recordings: {}", line.trim_end());
    false
}

#[test]
fn a_recorded_program_ends_as_itself_and_is_timed_without_its_standard_input() {
    if !records() {
        return;
    }
    let failing = run(&["measure", "--method", "trace", "--json", "--", "sh", "-c", "exit 7"]);
    assert_eq!(failing.status.code(), Some(7), "{}", stderr(&failing));

    let mut reading = superpage(&["measure", "--method", "trace", "--json", "--", "cat"]);
    let text = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let reading = reading.stdin(text).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&reading.stdout).unwrap();
    let reason = document["estimate"]["method"]["reason"].as_str().unwrap();
    assert!(reason.contains("standard input"), "{document}");
}

/// A signal ends the recording, and is the reason told; the program itself may end as it likes.
#[test]
fn an_interrupted_recording_ends_by_the_signal_and_says_so() {
    if !records() {
        return;
    }
    for ends in ["", "trap 'exit 0' TERM; "] {
        let endless = format!("{ends}echo begun; while :; do :; done");
        let mut command = superpage(&["measure", "--method", "trace", "--", "sh", "-c", &endless]);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        sys::signal::send(Pid(child.id() as i32), libc::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((first.as_str(), output.status.signal()), ("begun\n", Some(libc::SIGTERM)));
        let said = stderr(&output);
        let last = said.trim_end().lines().next_back();
        assert_eq!(last, Some("superpage: the recording was interrupted"), "{said}");
        let announced = said.lines().filter(|line| line.contains("under QEMU")).count();
        assert_eq!(announced, 1, "{said}");
    }
}

/// A trace gives the time that a program spends on translation; for a program that does nothing, it is too short for
/// any statement.
#[test]
#[ignore = "nightly: how long programs take decides what is said of them"]
fn a_recorded_trace_is_priced() {
    if !records() {
        return;
    }
    testkit::lock_machine!(shared);
    let brief = run(&["measure", "--method", "trace", "--json", "--", "true"]);
    assert_eq!(brief.status.code(), Some(0), "the program's own: {}", stderr(&brief));
    let document: serde_json::Value = serde_json::from_slice(&brief.stdout).unwrap();
    assert_eq!(document["estimate"]["method"]["name"], "unknown");
    assert!(document["estimate"]["share"].is_null());

    let own = env!("CARGO_BIN_EXE_superpage");
    // Dependent loads, which take enough time for a statement on any machine.
    let work = ["workload", "chase", "--size", "16M", "--operations", "3000000", "--json"];
    let arguments = ["measure", "--method", "trace", "--json", "--", own];
    let output = run(&[&arguments[..], &work].concat());
    if output.status.code() == Some(3) {
        testkit::skipped!("no prices: {}", stderr(&output).trim_end());
        return;
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let estimate = &document["estimate"];
    if output.status.code() == Some(1) {
        testkit::skipped!("no estimate: {}", estimate["method"]["reason"].as_str().unwrap());
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(estimate["method"]["name"], "recorded-trace");
    let share = |key: &str| estimate["share"][key].as_f64().unwrap();
    assert!(share("low") <= share("mid") && share("mid") <= share("high"), "{estimate}");
    assert!(!estimate["itlb"].is_null() && !estimate["dtlb"].is_null(), "{estimate}");
}
