//! `superpage lab validate`: the table and the exit code of a made-up document, and a live run of a small workload.

use std::fs;
use std::path::Path;

use lab::validation::{AsLive, Compared, Pair, Row, SCHEMA, Side, Step, Validation};

use crate::common::{lab, stderr};
use crate::{fine, json, path};

fn side(seconds: f64, superpages: f64) -> Side {
    let steps = vec![Step { at: 0.25, superpages }];
    let (faults, kernel_seconds) = (Some(512.0), Some(0.0));
    Side { seconds, faults, kernel_seconds, superpages: Some(superpages), steps, ..Side::default() }
}

fn row(design: &str, live: f64, lab: f64, as_live: Option<f64>) -> Row {
    Row {
        design: design.to_string(),
        live: side(live, 8.0),
        lab: side(lab, 9.0),
        as_live: as_live.map(|seconds| AsLive {
            summary: "copies".to_string(),
            design: String::new(),
            lab: side(seconds, 7.0),
        }),
        rules: Vec::new(),
        notes: vec!["made late".to_string()],
    }
}

/// The laboratory predicts that `slow` is 20 % faster than base pages, but live `slow` is slower. `fast` is off by 15
/// %.
fn validation() -> Validation {
    let pair = |than, design, ratio: f64| Pair {
        than,
        design,
        ratio,
        interval: Some([ratio * 0.95, ratio * 1.05]),
    };
    let designs = vec![
        row("base", 4.0, 4.0, None),
        row("fast", 2.0, 1.5, Some(2.0 / 1.15)),
        row("slow", 5.0, 4.0 / 1.2, None),
    ];
    Validation {
        schema: SCHEMA.to_string(),
        computer: "live: a computer".to_string(),
        machine: "this".to_string(),
        memory_bytes: 8 << 30,
        fragmentation: "none".to_string(),
        seed: 1,
        confidence: 0.99,
        workloads: vec![Compared {
            workload: "gups:size=1GiB".to_string(),
            fragmentation: Some("frag-50".to_string()),
            command: vec!["superpage".to_string()],
            runs: 6,
            designs,
            pairs: vec![pair(0, 1, 2.0), pair(0, 2, 0.8), pair(1, 2, 0.4)],
        }],
    }
}

#[test]
fn a_document_is_printed_drawn_and_judged_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "v.json");
    fs::write(&file, serde_json::to_string(&validation()).unwrap()).unwrap();
    let [picture, page] = ["v.svg", "v.html"].map(|name| path(&directory, name));
    let text = fine(&["validate", "--from", &file, "--plot", &picture]);
    let lines = |wanted: &str| text.lines().filter(|line| line.contains(wanted)).count();
    assert_eq!((lines("lab as live"), lines("made late"), lines("as live: copies")), (1, 3, 1));
    let line = |wanted: &str| text.lines().find(|line| line.contains(wanted)).unwrap();
    assert!(
        line("lab as live").contains("2.30x") && line("lab as live").contains("+15.0 %"),
        "{text}"
    );
    assert!(
        line("as carried out live:").contains("2 of 3 pairs in the live order, 1 in the other"),
        "{text}"
    );
    let causes =
        text.lines().find(|line| line.trim_start().starts_with("gups ") && line.contains("fast"));
    assert!(
        causes.is_some_and(|line| line.contains("2.30x") && line.contains("+15.0 %")),
        "{text}"
    );
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains(">fast</text>") && drawn.contains("gups:size=1GiB, frag-50:"));
    fine(&["validate", "--from", &file, "--plot", &page, "-o", &path(&directory, "t.txt")]);
    assert!(fs::read_to_string(&page).unwrap().contains("pairs in the live order"));
    let again = json(&["validate", "--from", &file, "--json"]);
    assert_eq!(again["workloads"], serde_json::to_value(validation().workloads).unwrap());

    let csv = fine(&["validate", "--from", &file, "--csv"]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.rsplit(',').collect()).collect();
    let of_sides = lines.iter().filter(|line| line.len() == lines[0].len()).count();
    assert_eq!(of_sides, 1 + 3 * 2 + 1, "live and lab of three, one as carried out live: {csv}");
    let as_live =
        csv.lines().find(|line| line.contains(",\"frag-50\",\"fast\",\"lab as live\",")).unwrap();
    let error = as_live.rsplit(',').nth(6).unwrap().parse::<f64>().unwrap();
    assert!((error - 0.15).abs() < 1e-9, "{as_live}");

    let code = |more: &[&str]| {
        let output = lab(&[&["validate", "--from", &file], more].concat());
        output.status.code().unwrap()
    };
    assert_eq!(code(&["--fail-if", "order"]), 1);
    // `slow` is off by half: 1.2 was simulated, of as long a time on base pages, and 0.8 measured.
    assert_eq!(code(&["--fail-if", "off"]), 1);
    assert_eq!(code(&["--fail-if", "off", "--within", "49%"]), 1);
    assert_eq!(code(&["--fail-if", "off", "--within", "51%"]), 0);
    let strange = path(&directory, "other.json");
    let other = Validation { schema: "superpage.validate/9".to_string(), ..validation() };
    fs::write(&strange, serde_json::to_string(&other).unwrap()).unwrap();
    let output = lab(&["validate", "--from", &strange]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("superpage.validate/9"), "{}", stderr(&output));
}

#[test]
fn a_dry_run_says_what_both_would_do() {
    testkit::require!(has_superpage(), "superpage is not beside superpage-lab");
    let arguments = ["validate", "-w", "gups:size=64M", "-m", "e3-1245v6", "--dry-run"];
    let text = fine(&[&arguments[..], &["-d", "linux-6"]].concat());
    assert!(text.contains("linux-6-as-live: this kernel's transparent"), "{text}");
    assert!(text.contains("gups:size=64MiB,operations=8388608,weight=1"), "{text}");
}

#[test]
#[ignore = "nightly: records a program under QEMU and runs it"]
fn a_program_is_recorded_once_and_simulated() {
    testkit::require!(has_superpage(), "superpage is not beside superpage-lab");
    testkit::lock_machine!(shared);
    let directory = tempfile::tempdir().unwrap();
    let traces = path(&directory, "");
    let flags = ["-m", "e3-1245v6", "--runs", "2", "--json", "-q", "--traces", &traces];
    let of = |program: &'static str| {
        [&["validate", "-d", "linux-6", "--program", program], &flags[..]].concat()
    };
    let document = json(&of("seq 1 20000"));
    let one = &document["workloads"][0];
    assert_eq!((&one["workload"], &one["fragmentation"]), (&"seq".into(), &"none".into()));
    for side in ["live", "lab"] {
        let seconds = one["designs"][0][side]["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0, "{side}: {seconds}");
    }
    let recording = path(&directory, "seq.spt");
    let made = fs::metadata(&recording).unwrap().modified().unwrap();
    json(&of("seq 1 20000"));
    assert_eq!(fs::metadata(&recording).unwrap().modified().unwrap(), made, "recorded again");
    let output = lab(&of("seq 1 20001"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("another command: seq 1 20000"), "{}", stderr(&output));
}

#[test]
fn live_runs_are_compared_with_another_simulation() {
    let example =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schemas/examples/validate-1.json");
    let before: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(example).unwrap()).unwrap();
    let flags = ["validate", "--live", example, "-m", "zen4", "--memory", "1G", "--json", "-q"];
    let workload = ["-w", "gups:size=64M,operations=2M"];
    let document = json(&[&flags[..], &workload, &["-d", "freebsd"]].concat());
    let row = |document: &serde_json::Value, side: &str| {
        document["workloads"][0]["designs"][1][side].clone()
    };
    assert_eq!(row(&document, "live"), row(&before, "live"));
    let wall =
        |document: &serde_json::Value| document["live"][0]["samples"][0]["wall_seconds"].clone();
    assert_eq!(wall(&document), wall(&before), "the live runs are kept");
    assert_ne!(row(&document, "lab"), row(&before, "lab"), "another machine");
    for (words, lacks) in [
        ([&workload[..], &["-d", "linux-6"]].concat(), "under base, linux-6"),
        (vec!["-w", "gups:size=32M", "-d", "freebsd"], "gups:size=32MiB"),
        ([&workload[..], &["-d", "freebsd", "-f", "frag-50"]].concat(), "frag-50"),
    ] {
        let output = lab(&[&flags[..], &words].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(lacks), "{}", stderr(&output));
    }
    let output = lab(&[&flags[..], &workload, &["-d", "freebsd", "--runs", "4"]].concat());
    assert_eq!(output.status.code(), Some(2), "nothing is run live");
}

#[test]
#[ignore = "nightly: designs in force, and how many superpages they get"]
fn a_small_workload_is_run_live_and_simulated() {
    testkit::require!(has_superpage(), "superpage is not beside superpage-lab");
    testkit::lock_machine!(shared);
    if let Err(why) = sys::pidfd::may_collapse() {
        return testkit::skipped!("superpages cannot be made in another process: {why}");
    }
    let workload = "gups:size=64M,operations=2M";
    let designs = ["-d", "freebsd", "-d", "linux-6"];
    let flags = ["-m", "e3-1245v6", "--runs", "2", "--json", "-q"];
    let run = || json(&[&["validate", "-w", workload], &designs[..], &flags].concat());
    // On a busy machine, the executor may get no CPU time during so short a run.
    let is_seen = |document: &serde_json::Value| {
        let rows = document["workloads"][0]["designs"].as_array().unwrap();
        rows.iter().all(|row| row["live"]["superpages"].is_number())
            && rows[1]["live"]["steps"].as_array().is_some_and(|steps| !steps.is_empty())
    };
    let document = (0..5).map(|_| run()).find(is_seen).expect("a turn in five runs");
    assert_eq!(document["schema"], SCHEMA);
    assert_eq!(document["live"][0]["schema"], "superpage.compare/1");
    let rows = &document["workloads"][0]["designs"];
    let names: Vec<&str> = (0..3).map(|row| rows[row]["design"].as_str().unwrap()).collect();
    assert_eq!(names, ["base", "freebsd", "linux-6"]);
    let of = |row: usize, side: &str, figure: &str| rows[row][side][figure].as_f64().unwrap();
    for row in 0..3 {
        for side in ["live", "lab"] {
            assert!(of(row, side, "seconds") >= of(row, side, "timed_seconds"), "{row} {side}");
        }
    }
    // The simulated program takes one fault per page. The live program also takes faults at its start.
    assert_eq!(of(0, "lab", "faults"), 16384.0);
    assert!(of(0, "live", "faults") >= 16384.0 && of(0, "live", "superpages") == 0.0);
    assert!(of(2, "live", "faults") < of(0, "live", "faults"));
    // In the laboratory superpages are made in place, and no daemon works. Live they are made by copying, which a
    // daemon does.
    assert_eq!(of(1, "lab", "superpages"), 32.0);
    assert_eq!(of(1, "lab", "beside_seconds"), 0.0);
    assert!(rows[1]["as_live"]["lab"]["beside_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(rows[1]["live"]["steps"].as_array().map(Vec::is_empty), Some(false));
    assert_eq!(document["workloads"][0]["pairs"].as_array().map(Vec::len), Some(3));
}

/// Returns whether the program `superpage`, which runs the live workloads, is built.
fn has_superpage() -> bool {
    Path::new(env!("CARGO_BIN_EXE_superpage-lab")).with_file_name("superpage").is_file()
}
