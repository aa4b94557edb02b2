//! `superpage compare` with several figures and several values, end to end.

use serde_json::Value;

use super::compare::{json, refused};
use crate::common::{run, send, stderr, stdout, superpage, wait_until};

#[test]
fn each_metric_gets_verdicts_of_its_own() {
    let arms = ["--arm", "a: X=1 Y=30", "--arm", "b: X=30 Y=1"];
    let metrics = ["--metric", "x=([0-9]+)", "--metric", "y=([0-9]+)", "--metric-name", "up"];
    let script = ["--", "sh", "-c", "echo x=$X y=$Y"];
    let six = ["compare", "-q", "--max-runs", "6"];
    let table = stdout(&run(&[&six[..], &arms, &metrics, &script].concat()));
    assert!(table.contains("up: 30.0x faster"), "{table}");
    assert!(table.contains("metric 2: 30.0x slower"), "{table}");
    let lower = ["--metric-better", "higher", "--metric-better", "lower", "--json"];
    let document = json(&[&six[..], &arms, &metrics, &lower, &script].concat());
    assert_eq!(document["metric"]["name"], "up");
    assert_eq!(document["more_metrics"][0]["better"], "lower");
    let sample = &document["samples"][0];
    assert_eq!((&sample["metric"], &sample["more_metrics"][0]), (&1.0.into(), &30.0.into()));
    let twice = ["--metric-name", "up"];
    let (code, said) = refused(&[&arms[..], &metrics, &twice, &script].concat());
    assert!(code == Some(2) && said.contains("two metrics are named `up`"), "{said}");
    let taken = ["--metric-name", "wall"];
    let (code, said) = refused(&[&arms[..], &metrics[..2], &taken, &script].concat());
    assert!(code == Some(2) && said.contains("cannot be named `wall`"), "{said}");
}

#[test]
fn a_figure_of_one_digit_is_known_no_better_than_that() {
    let arms = ["--arm", "a: X=1", "--arm", "b: X=2", "--metric-better", "lower"];
    let words = ["compare", "-q", "--max-runs", "6", "--metric", "([0-9]+)", "--json"];
    let document = json(&[&words[..], &arms, &["--", "sh", "-c", "echo $X"]].concat());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let table = stdout(&run(&["compare", "--from", path.to_str().unwrap()]));
    // Rounded to one digit, both figures may really be 1.5.
    assert!(table.contains("metric: undecided at 0.500x (99 % interval 0.200–1.000"), "{table}");
}

#[test]
fn stream_is_judged_by_its_four_rates() {
    let words = ["compare", "-q", "stream", "--size", "6M", "--arm", "system", "--arm", "base"];
    let document = json(&[&words[..], &["--max-runs", "2", "--json"]].concat());
    let more: Vec<&Value> = document["more_metrics"].as_array().unwrap().iter().collect();
    let names: Vec<&str> = more.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["copy, best", "scale, best", "add, best"]);
    let rates = document["samples"][0]["more_metrics"].as_array().unwrap();
    assert!(rates.len() == 3 && rates.iter().all(|rate| rate.as_f64().unwrap() > 1e6), "{rates:?}");
}

#[test]
fn rates_of_stream_that_differ_too_much_ask_for_another_offset() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let words = ["compare", "-q", "stream", "--size", "6M", "--arm", "system", "--arm", "base"];
    let mut document = json(&[&words[..], &["--max-runs", "2", "--json"]].concat());
    let mut table = |second: f64, offset: Option<&str>| {
        for (index, sample) in document["samples"].as_array_mut().unwrap().iter_mut().enumerate() {
            sample["metric"] = if index % 4 < 2 { 1e9 } else { second }.into();
            sample["more_metrics"] = vec![1e9; 3].into();
        }
        let command = document["command"].as_array_mut().unwrap();
        command.extend(offset.into_iter().flat_map(|offset| ["--offset".into(), offset.into()]));
        std::fs::write(&path, document.to_string()).unwrap();
        stdout(&run(&["compare", "--from", path.to_str().unwrap()]))
    };
    assert!(!table(1.01e9, None).contains("standard deviation"));
    // The default offset is 341 cache lines.
    let told = table(1.3e9, None);
    assert!(
        told.contains("triad, best has a standard deviation") && told.contains("--offset 21888"),
        "{told}"
    );
    assert!(table(1.3e9, Some("128")).contains("--offset 192"));
}

/// A series over `{n}` whose ratio is known to be 2 at every value.
const SERIES: [&str; 14] = [
    "compare",
    "-q",
    "--max-runs",
    "6",
    "--arm",
    "a: X=1",
    "--arm",
    "b: X=2",
    "--vary",
    "n=1..3",
    "--metric",
    "v=([0-9]+)",
    "--metric-name",
    "v",
];
const SERIES_PROGRAM: [&str; 4] = ["--", "sh", "-c", "echo v=$(({n} * X * 1000))"];

#[test]
fn a_series_compares_at_each_value_and_redraws() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (document, svg, html) = (path("a.json"), path("a.svg"), path("a.html"));
    let files = ["--json", "-o", &document, "--svg", &svg, "--html", &html];
    let made = run(&[&SERIES[..], &files, &SERIES_PROGRAM].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    let text = std::fs::read_to_string(&document).unwrap();
    let series: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(series["schema"], "superpage.compare-series/1");
    let points = series["points"].as_array().unwrap();
    let values: Vec<&str> = points.iter().map(|one| one["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["1", "2", "3"]);
    for (point, figure) in points.iter().zip([1000.0, 2000.0, 3000.0]) {
        assert_eq!(point["comparison"]["samples"][0]["metric"], figure);
    }
    let table = stdout(&run(&["compare", "--from", &document]));
    assert_eq!(table.matches("2.00x (").count(), 3, "{table}");
    assert_eq!(stdout(&run(&["compare", "--from", &document, "--json"])), text);
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.matches("<circle").count() >= 6, "two panels of three values");
    assert!(std::fs::read_to_string(&html).unwrap().contains("Every verdict"));
    let asked = ["--from", &document, "--fail-if", "slower"];
    assert_eq!(run(&[&["compare"][..], &asked].concat()).status.code(), Some(0));
}

#[test]
fn a_series_varies_an_option_of_a_workload() {
    let words = ["compare", "-q", "gups", "--max-runs", "2", "--arm", "system", "--arm", "base"];
    let series = json(&[&words[..], &["--vary", "size=1M,2M", "--json"]].concat());
    let size = |index: usize| series["points"][index]["comparison"]["command"][4].clone();
    assert_eq!((size(0), size(1)), ("1MiB".into(), "2MiB".into()));
}

#[test]
fn a_series_that_cannot_be_is_refused_before_runs() {
    for (words, part) in [
        (&["--vary", "n=1..2", "--", "true"][..], "have no {n}"),
        (&["gups", "--vary", "nope=1..2"], "'--nope'"),
        (&["gups", "--vary", "size=1..x"], "invalid series"),
        (&["gups", "--vary", "size=1M,2M", "--format", "csv"], "--format csv"),
        (&["--svg", "x.svg", "--", "true"], "--vary"),
    ] {
        let (code, said) = refused(words);
        assert_eq!((code, said.contains(part)), (Some(2), true), "{words:?}: {said}");
    }
}

#[test]
fn an_interrupted_series_keeps_what_it_has() {
    use std::os::unix::process::ExitStatusExt;
    let directory = tempfile::tempdir().unwrap();
    let (document, made) = (directory.path().join("a.json"), directory.path().join("made"));
    let script = format!("echo {{n}} >> {}; test {{n}} -lt 2 || exec sleep 60", made.display());
    let arms = ["--arm", "a: X=1", "--arm", "b: X=2", "--json", "-o", document.to_str().unwrap()];
    let words = ["compare", "-q", "--max-runs", "2", "--vary", "n=1,2,1000"];
    let mut child =
        superpage(&[&words[..], &arms, &["--", "sh", "-c", &script]].concat()).spawn().unwrap();
    wait_until("the second value's first run", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::fs::read_to_string(&made).is_ok_and(|lines| lines.contains('2'))
    });
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    let series: Value = serde_json::from_slice(&std::fs::read(&document).unwrap()).unwrap();
    assert_eq!(series["points"][0]["value"], "1");
    let missing = series["missing"].as_array().unwrap();
    assert!(missing.contains(&"1000".into()), "{missing:?}");
}
