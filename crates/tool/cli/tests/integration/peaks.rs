//! Peaks that `superpage run` reports; the report judges a program by its own peak.

use crate::common::{has_thp, run, stderr, thp_fallbacks};

/// Returns the report of `run` with these arguments.
pub fn reported(words: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let output = run(&[&["run", "-q", "-o", file.to_str().unwrap()], words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(report["schema"], "superpage.run/1");
    report
}

/// Holds 200 MB in the second of four processes for three seconds. The process writes once it has read all.
const HOLDS: &str = "head -c 200000000 /dev/zero | tail -c 200000000 | \
                     (head -c 1 >/dev/null; sleep 3; cat >/dev/null)";

#[test]
#[ignore = "nightly: a peak is seen where there is a CPU for who looks"]
fn the_peak_is_what_all_processes_held_together() {
    for words in [["--pages", "base", "--"], ["--pages", "system", "--"]] {
        // On a busy machine the peak may be missed, or known only within bounds, so take the first of five runs in
        // which it was seen.
        let mut runs = (0..5).map(|_| reported(&[&words[..], &["sh", "-c", HOLDS]].concat()));
        let is_seen = |report: &serde_json::Value| {
            report["peak_bytes"].is_u64() && report["coverage_of_peak"].is_f64()
        };
        let report = runs.find(is_seen).expect("a peak that is seen in five runs");
        let peak = report["peak_bytes"].as_f64().unwrap();
        assert!((200e6..240e6).contains(&peak), "{report:#}");
        assert!(report["coverage_of_peak"].as_f64().unwrap() > 0.95, "{report:#}");
        assert!((report["resident_bytes"].as_f64().unwrap() / peak - 1.0).abs() < 0.05);
    }
}

/// Checks that the report of a small program does not include the 200 MB of other processes.
fn is_of_the_program_alone(file: &std::path::Path) {
    let report = std::fs::read_to_string(file).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let peak = report["peak_at_least_bytes"].as_u64().or(report["peak_bytes"].as_u64());
    testkit::require!(peak.is_some(), "too much else ran to see the program");
    assert!(peak < Some(100_000_000), "{report:#}");
}

/// The first process of a container is often a shell. Its other children look like orphans of the program: they have
/// the same parent and process group.
#[test]
fn other_children_of_a_containers_shell_are_not_the_programs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report");
    let own = env!("CARGO_BIN_EXE_superpage");
    // The program runs until the others hold their memory, and the others hold it until the report is written.
    let held = directory.path().join("held");
    let waits = format!("until [ -e {} ]; do sleep 0.05; done; sleep 1", held.display());
    let until_reported = format!(
        ": > {}; n=0; until [ -e {} ] || [ $n = 900 ]; do n=$((n + 1)); sleep 0.1; done",
        held.display(),
        file.display()
    );
    let holds = HOLDS.replace("sleep 3", &until_reported);
    assert_ne!(holds, HOLDS);
    let shell = format!("\"$0\" run -q -o {} -- sh -c '{waits}' & {holds}; wait", file.display());
    let mut container = std::process::Command::new("unshare");
    container.args(["--pid", "--fork", "--mount-proc", "sh", "-c", &shell, own]);
    let made = container.output();
    let is_made = made.as_ref().is_ok_and(|made| made.status.success());
    testkit::require!(is_made, "no pid namespace can be made (root, unshare)");
    assert!(held.exists(), "the others held nothing meanwhile");
    is_of_the_program_alone(&file);
}

/// All jobs of a script are in one process group, and an orphan of any job, also of the program, has the first process
/// as its parent.
#[test]
fn orphans_of_other_jobs_of_a_script_are_not_the_programs() {
    let directory = tempfile::tempdir().unwrap();
    let [file, held] = ["report", "held"].map(|name| directory.path().join(name));
    let waits = format!("until [ -e {} ]; do sleep 0.05; done; sleep 1", held.display());
    let hold = format!(": > {}; sleep 2; cat >/dev/null", held.display());
    let holds = format!(
        "sleep 0.2; head -c 200000000 /dev/zero | tail -c 200000000 | (head -c 1 >/dev/null; {hold})"
    );
    let script = format!(
        "\"$0\" run -q -o {} -- sh -c '{waits}' & job=$!; sleep 0.7; (sh -c '{holds}' &); sleep 4 & wait $job",
        file.display()
    );
    let mut alone = std::process::Command::new("setsid");
    let ran = alone.args(["--wait", "sh", "-c", &script, env!("CARGO_BIN_EXE_superpage")]).output();
    assert!(ran.is_ok_and(|ran| ran.status.success()), "{script}");
    assert!(held.exists(), "the orphan held nothing meanwhile");
    is_of_the_program_alone(&file);
}

#[test]
fn a_program_that_grows_late_is_judged_at_its_peak() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let own = env!("CARGO_BIN_EXE_superpage");
    let script = "sleep 0.5; exec \"$0\" workload chase --size 256M";
    testkit::lock_machine!(shared);
    let before = thp_fallbacks();
    let report = reported(&["--pages", "thp", "--", "sh", "-c", script, own]);
    let peak = report["peak_bytes"].as_u64().or(report["peak_at_least_bytes"].as_u64()).unwrap();
    assert!(peak >= 256 << 20, "{report:#}");
    // On a busy machine the peak may be missed; then there is no judgement.
    let is_seen = report["coverage_of_peak"].as_f64().is_some_and(|share| share >= 0.8);
    let effect = report["outcome"].as_str().unwrap();
    let is_short = effect == "did-not-take-effect" && thp_fallbacks() > before;
    testkit::require!(!is_short, "superpages were short: {}", report["why"]);
    assert!(effect == "as-asked" || !is_seen && effect == "unknown", "{report:#}");
}
