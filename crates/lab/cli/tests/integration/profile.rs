//! `superpage lab profile`, and designs that need a profile.

use std::fs;

use crate::common::{lab, stderr, stdout};
use crate::{json, path, with};

#[test]
fn a_profile_is_written_for_designs_that_weigh_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "gups.toml");
    let gups = ["--workload", "gups:size=8M,operations=4M", "--memory", "256M"];
    let profile = |more: &[&str]| lab(&[&["profile", "--quiet"], &gups[..], more].concat());
    let dry = profile(&["--dry-run", "-o", &file]);
    assert!(stdout(&dry).contains(&format!("writes   {file}")), "{}", stdout(&dry));
    assert!(fs::metadata(&file).is_err(), "nothing is run");
    assert!(profile(&["-o", &file]).status.success());
    let document: serde_json::Value =
        serde_json::from_str(&stdout(&profile(&["--json"]))).expect("JSON");
    assert_eq!(document["schema"], "superpage.lab.profile/1");
    let base = [&["run", "-d", "base", "--json", "--quiet"], &gups[..]].concat();
    let counters = &json(&base)["counters"];
    // Walks that find no page are counted as faults.
    let found = counters["walks_base"].as_u64().zip(counters["faults"].as_u64());
    assert_eq!(document["walks"].as_u64(), found.map(|(walks, faults)| walks - faults));
    assert!(document["spans"].as_array().is_some_and(|spans| !spans.is_empty()));
    let cbmm = [&["run", "-d", "cbmm", "--json", "--quiet", "--profile", &file], &gups[..]];
    assert_eq!(json(&cbmm.concat())["counters"]["made_at_fault"], 4);
    let cases: [(&[&str], &str); 3] = [
        (&["-o", &file], "exists; choose another name, or use --force"),
        (&["--profile", &file], "a profile is made by a run on base pages, which needs none"),
        (&["--memory", "16M"], "no profile: "),
    ];
    for (more, says) in cases {
        let output = match more[0] {
            "--memory" => lab(&[&["profile", "--quiet", "-w", "gups:size=64M"], more].concat()),
            _ => profile(more),
        };
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
    assert!(profile(&["-o", &file, "--force"]).status.success());
}

#[test]
fn a_design_that_weighs_misses_wants_a_profile() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "hot.toml");
    let without = lab(&with(&["run", "-d", "cbmm"]));
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("--profile FILE"), "{}", stderr(&without));
    fs::write(&file, "spans = [\"0 1G 40000\"]\n").unwrap();
    let report = json(&with(&["run", "-d", "cbmm", "--profile", &file, "--json", "--quiet"]));
    assert_eq!(report["counters"]["made_at_fault"], 4);
    for (text, says) in [
        ("spans = [\"1G 0 5\"]", "hot.toml:1: spans: must be in ascending order"),
        ("spans = [\"all\"]", "hot.toml:1: spans: \"all\": must be"),
        ("span = []", "hot.toml:1: span: unknown key: did you mean `spans`?"),
    ] {
        fs::write(&file, text).unwrap();
        let output = lab(&with(&["run", "-d", "cbmm", "--profile", &file]));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}
