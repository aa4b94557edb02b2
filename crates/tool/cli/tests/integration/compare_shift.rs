//! `superpage compare stream`, end to end, with arms whose rates depend on the offset of the arrays.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::Value;

use super::compare::json;
use crate::common::{run, send, stdout, superpage, wait_until};

/// Runs in place of the workload: every second rate is doubled, unless the arrays have the offset `$GOOD`.
const FAKE: &str = r#"#!/bin/sh
echo run >> "$COUNT"
[ "$(wc -l < "$COUNT")" -lt "${LAST:-1000}" ] || exec sleep 60
rate=1e9
case "$* " in
*" --offset $GOOD "*) ;;
*) if [ $(($(wc -l < "$COUNT") % 2)) = 0 ]; then rate=2e9; fi ;;
esac
sleep "$SLEEP"
echo "{\"figure\":{\"value\":1e9},\"copy\":{\"best_bytes_per_second\":$rate},"
echo "\"scale\":{\"best_bytes_per_second\":1e9},\"add\":{\"best_bytes_per_second\":1e9}}"
"#;

/// Returns the arguments of a `compare stream` with such arms, which count their runs in `directory`.
fn words(directory: &Path, good: &str, sleep: &str) -> Vec<String> {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_string();
    testkit::write_script(path("fake"), FAKE);
    let arm = |name: &str| {
        let variables = format!("COUNT={} GOOD={good} SLEEP={sleep}", path(name));
        format!("{name}: {variables} -- {}", path("fake"))
    };
    let words = ["compare", "-q", "stream", "--size", "6M", "--json", "--max-runs", "6"];
    let arms = ["--arm".into(), arm("a"), "--arm".into(), arm("b")];
    words.map(String::from).into_iter().chain(arms).collect()
}

fn compare(good: &str, sleep: &str, more: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let words = words(directory.path(), good, sleep);
    json(&words.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
}

/// Returns the table of a document.
fn table(document: &Value) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, document.to_string()).unwrap();
    stdout(&run(&["compare", "--from", file.path().to_str().unwrap()]))
}

/// The default offset, and the size of a cache line on this machine, by which the offset is shifted.
const OFFSET: u64 = 341 * 64;
fn line() -> u64 {
    host::Cpu::cache_line(&host::Root::real()).unwrap_or(128)
}

#[test]
fn arrays_are_shifted_until_equal_runs_agree() {
    let good = OFFSET + 2 * line();
    let document = compare(&good.to_string(), "0", &[]);
    let arrays = &document["arrays"];
    assert_eq!((&arrays["offset_bytes"], &arrays["line_bytes"]), (&good.into(), &line().into()));
    assert_eq!(arrays["deviation"]["share"], 0.0);
    let earlier = arrays["earlier"].as_array().unwrap();
    let offsets: Vec<&Value> = earlier.iter().map(|one| &one["offset_bytes"]).collect();
    assert_eq!(offsets, [&Value::from(OFFSET), &Value::from(OFFSET + line())]);
    for attempt in earlier {
        // Three runs at 1e9 and three at 2e9: the deviation is 0.548, the mean 1.5.
        let deviation = &attempt["deviation"];
        assert!((deviation["share"].as_f64().unwrap() - 0.365).abs() < 0.001, "{deviation}");
        assert_eq!(deviation["metric"], "copy, best");
        assert_eq!(attempt["arms"], serde_json::json!(["a", "b"]));
        assert_eq!(attempt["samples"].as_array().unwrap().len(), 2 * (1 + 6));
    }
    // The verdicts use only the runs at the last offset.
    assert_eq!(document["samples"].as_array().unwrap().len(), 2 * (1 + 6));
    assert!(document["samples"].as_array().unwrap().iter().all(|one| one["metric"] == 1e9));
    let told = table(&document);
    let after = format!("--offset {good}: 0 % (");
    assert!(told.contains("--offset 21824: 36.5 % (") && told.contains(&after), "{told}");
    assert!(told.contains(&format!("stream --offset {good} ")), "{told}");
    assert!(!told.contains("still is"), "{told}");
}

#[test]
fn shifts_have_an_end_and_the_deviation_that_is_left_is_reported() {
    let document = compare("none", "0", &[]);
    assert_eq!(document["arrays"]["earlier"].as_array().unwrap().len(), 3);
    assert_eq!(document["stopped"], "max-runs");
    let told = table(&document);
    let last = format!("--offset {}: 36.5 % (", OFFSET + 3 * line());
    assert!(told.contains("over 5 %, and still is;") && told.contains(&last), "{told}");
}

#[test]
fn arrays_stay_where_they_were_put_and_where_no_time_is_left() {
    let given = compare("none", "0", &["--offset", "21824"]);
    assert_eq!(given["arrays"], Value::Null);
    assert!(table(&given).contains("and repeat"));
    let late = compare("none", "0.05", &["--max-time", "1s"]);
    assert_eq!(late["arrays"]["earlier"], serde_json::json!([]));
    assert_eq!(late["arrays"]["offset_bytes"], OFFSET);
}

#[test]
fn each_value_of_a_series_has_arrays_of_its_own() {
    let good = (OFFSET + line()).to_string();
    let series = compare(&good, "0", &["--vary", "threads=1,2"]);
    for point in series["points"].as_array().unwrap() {
        let arrays = &point["comparison"]["arrays"];
        assert_eq!(arrays["offset_bytes"], OFFSET + line());
        assert_eq!(arrays["earlier"].as_array().unwrap().len(), 1);
    }
    let told = table(&series);
    assert!(told.contains("note: threads=2: arrays shifted"), "{told}");
    let offsets = compare("none", "0", &["--vary", "offset=64,128"]);
    assert_eq!(offsets["points"][0]["comparison"]["arrays"], Value::Null);
}

#[test]
fn interrupted_after_a_shift_the_runs_before_it_are_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let words = words(directory.path(), "none", "0.1 LAST=8");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let printed = directory.path().join("printed");
    let output = std::fs::File::create(&printed).unwrap();
    let mut child = superpage(&words).stdout(output).spawn().unwrap();
    // A warm-up and six runs have the first offset; the next run is the warm-up of the second.
    let runs = |arm: &str| std::fs::read_to_string(directory.path().join(arm)).unwrap_or_default();
    wait_until("the second offset's warm-up", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        runs("a").lines().count() >= 8
    });
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    let document: Value = serde_json::from_slice(&std::fs::read(&printed).unwrap()).unwrap();
    assert_eq!(document["stopped"], "deviation");
    assert_eq!(document["arrays"]["offset_bytes"], OFFSET);
    assert_eq!(document["samples"].as_array().unwrap().len(), 2 * (1 + 6));
    assert!(table(&document).contains("and repeat"));
}
