//! `compare --predict` and `verify-cost`, end to end on this machine, with small runs. The accuracy of predictions is
//! not tested here; `verify-cost` measures it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{has_thp, run, stderr, stdout, superpage};
use serde_json::Value;

fn share(value: &Value) -> f64 {
    let share = value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    assert!((-1.0..=1.0).contains(&share), "{share} is no share");
    share
}

#[test]
#[ignore = "nightly: a prediction is timed"]
fn a_prediction_stands_beside_the_verdict_and_in_the_document() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let arguments = ["compare", "gups", "--size", "64M", "--predict", "--max-runs", "2"];
    let arms = ["--arm", "base", "--arm", "thp", "--json"];
    let output = run(&[&arguments[..], &arms].concat());
    if output.status.code() == Some(3) {
        testkit::skipped!("{}", stderr(&output).trim());
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let told = &document["predicted"];
    assert_eq!(told["of_metric"], true);
    let saved = &told["prediction"]["saved"];
    let [low, mid, high] = ["low", "mid", "high"].map(|key| share(&saved[key]));
    assert!(low <= mid && mid <= high, "{low} {mid} {high}");
    assert!(share(&told["prediction"]["translating"]["mid"]) >= 0.0);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("predicted");
    std::fs::write(&path, &output.stdout).unwrap();
    let page = path.with_extension("html");
    let [from, to] = [&path, &page].map(|path| path.to_str().unwrap());
    let again = run(&["compare", "--from", from, "--html", to]);
    let drawn = std::fs::read_to_string(&page).unwrap();
    assert!(drawn.contains("class=\"predicted\"") && drawn.contains("Dashed: "), "{drawn}");
    let text = stdout(&again);
    assert!(text.contains("predicted"), "{text}");
    assert!(text.contains("translation takes"), "{text}");
}

#[test]
#[ignore = "nightly: a prediction is timed"]
fn verify_cost_says_predicted_measured_and_the_error() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let arguments = ["verify-cost", "gups", "--size", "64M", "--max-runs", "4", "--json"];
    let output = run(&arguments);
    if output.status.code() == Some(3) {
        testkit::skipped!("{}", stderr(&output).trim());
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["schema"], "superpage.verify-cost/1");
    let row = &document["programs"][0];
    assert_eq!(row["program"], "gups");
    let [base, superpage] =
        ["base_seconds", "superpage_seconds"].map(|key| row[key].as_f64().unwrap());
    let measured = row["measured_saved"].as_f64().unwrap();
    assert!((measured - (1.0 - superpage / base)).abs() < 1e-9, "{row}");
    let between = &row["measured_saved_between"];
    if !between.is_null() {
        let [low, high] = ["low", "high"].map(|end| share(&between[end]));
        assert!(low <= measured && measured <= high, "{row}");
    }
    let [low, mid, high] =
        ["low", "mid", "high"].map(|key| share(&row["prediction"]["saved"][key]));
    assert!(low <= mid && mid <= high, "{row}");
    assert!(low < high || (low, high) == (0.0, 0.0), "no width: {row}");
    let error = row["prediction"]["saved"]["mid"].as_f64().unwrap() - measured;
    assert!((row["error"].as_f64().unwrap() - error).abs() < 1e-9, "{row}");
    let mean = document["mean_absolute_error"].as_f64().unwrap();
    assert!((mean - error.abs()).abs() < 1e-9, "{document}");
    replay_is_whole(&document, measured);
}

/// Checks the replay of the only row: a saving between its bounds and its error, or a reason.
fn replay_is_whole(document: &Value, measured: f64) {
    let replay = &document["programs"][0]["replay"];
    let mean = &document["mean_absolute_replay_error"];
    if let Some(reason) = replay["reason"].as_str() {
        assert!(mean.is_null(), "{document}");
        testkit::skipped!("no replay: {reason}");
        return;
    }
    let [low, mid, high] = ["low", "mid", "high"].map(|key| replay["saved"][key].as_f64().unwrap());
    assert!(low < mid && mid < high, "{replay}");
    let error = replay["error"].as_f64().unwrap();
    assert!((error - (mid - measured)).abs() < 1e-9, "{replay}");
    assert!((mean.as_f64().unwrap() - error.abs()).abs() < 1e-9, "{document}");
    assert!(replay["windows"].as_u64().unwrap() >= 8, "{replay}");
    assert!(share(&replay["replaced"]) < 0.5, "{replay}");
}

#[test]
#[ignore = "nightly: a prediction is timed"]
fn a_program_is_replayed_without_qemu() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let script = "import array\nn = array.array('q', range(1 << 22))\nprint(sum(n[i * 40503 % (1 << 22)] for i in range(1 << 22)))";
    let words = ["verify-cost", "-q", "--method", "replay", "--max-runs", "2", "--json"];
    let output = run(&[&words[..], &["--", "python3", "-c", script]].concat());
    if output.status.code() == Some(3) {
        testkit::skipped!("{}", stderr(&output).trim());
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let row = &document["programs"][0];
    for key in ["prediction", "error", "prices", "method", "source"] {
        assert!(row[key].is_null(), "{key}: {row}");
    }
    assert!(document["mean_absolute_error"].is_null());
    replay_is_whole(&document, row["measured_saved"].as_f64().unwrap());
}

/// Returns the child processes that have not been reaped yet.
fn children(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let lists: Vec<String> = tasks.filter_map(|task| of(task).ok()).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_string).collect()
}

#[test]
#[ignore = "nightly: when it is interrupted is a matter of time"]
fn an_interrupted_prediction_ends_by_the_signal_and_leaves_the_runs() {
    use std::os::unix::process::ExitStatusExt;
    testkit::require!(has_thp(), "THP are off on this machine");
    let own = std::fs::read_to_string("/proc/thread-self/children");
    testkit::require!(own.is_ok(), "this kernel lists no children");
    testkit::lock_machine!(shared);
    let words =
        ["compare", "gups", "--size", "64M", "--predict", "-q", "--max-runs", "2", "--json"];
    let arms = ["--arm", "base", "--arm", "thp"];
    let mut command = superpage(&[&words[..], &arms].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The phase is timed in a warm-up and two runs; two warm-ups and four runs follow.
    let mut seen = BTreeSet::new();
    let (mut idle, pid) = (0, child.id());
    while (seen.len() < 9 || idle < 100) && Path::new(&format!("/proc/{pid}/exe")).exists() {
        let now = children(pid);
        idle = if now.is_empty() { idle + 1 } else { 0 };
        seen.extend(now);
        std::thread::sleep(Duration::from_millis(2));
    }
    let sent = sys::signal::send(units::Pid(pid as i32), libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    if sent.is_err() || output.status.code().is_some_and(|code| code != 2) {
        testkit::skipped!("it ended before: {}", stderr(&output).trim());
        return;
    }
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).expect("the runs");
    assert_eq!(document["arms"].as_array().unwrap().len(), 2);
}

#[test]
fn plans_are_shown_and_bad_flags_refused() {
    let plan = run(&["verify-cost", "stream", "--dry-run"]);
    assert!(plan.status.success(), "{}", stderr(&plan));
    assert!(stdout(&plan).starts_with("stream\nbase\n"), "{}", stdout(&plan));
    for bad in [
        &["verify-cost", "nothing"][..],
        &["verify-cost", "--within", "2"],
        &["verify-cost", "gups", "--max-runs", "1"],
        &["verify-cost", "gups", "--max-time", "soon"],
        &["verify-cost", "gups", "--method", "guess"],
        &["verify-cost", "gups", "--size", "1K"],
        &["verify-cost", "gups", "-o", "/no/such/directory/file"],
    ] {
        let output = run(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!((1..=2).contains(&said.lines().count()), "{bad:?}: {said}");
        assert!(said.starts_with("superpage: "), "{bad:?}: {said}");
    }
}

#[test]
fn what_a_recorded_program_says_of_its_errors_is_seen() {
    let program = ["sh", "-c", "echo output; echo why it failed >&2; exit 3"];
    let output = run(&[&["verify-cost", "-q", "--"], &program[..]].concat());
    if output.status.code() == Some(3) {
        testkit::skipped!("{}", stderr(&output).trim());
        return;
    }
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    let said = stderr(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert_eq!(lines[0], "why it failed");
    assert!(lines[1].contains("failed while it was recorded: exit status: 3"), "{said}");
}
