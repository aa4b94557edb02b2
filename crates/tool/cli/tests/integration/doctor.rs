//! `superpage doctor`: one line where all is well, exit codes, and a live finding whose commands mend it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::AsFound;

use crate::common::{refused, run, stderr, stdout, superpage};

fn document(output: &Output) -> Value {
    assert_eq!(stderr(output), "");
    serde_json::from_str(&stdout(output)).expect("JSON")
}

fn finding<'a>(document: &'a Value, id: &str) -> Option<&'a Value> {
    document["findings"].as_array().unwrap().iter().find(|one| one["id"] == id)
}

/// The number before a word in the last line; 0 if the word is not there.
fn counted(line: &str, words: [&str; 2]) -> usize {
    let parts: Vec<&str> = line.split([' ', ',']).filter(|part| !part.is_empty()).collect();
    let at = parts.windows(2).find(|two| words.contains(&two[1]));
    at.map_or(0, |two| two[0].parse().expect("a number"))
}

#[test]
fn the_last_line_counts_the_findings_and_fail_if_sets_the_exit_code() {
    for class in ["database", "jvm", "batch", "vm", "any"] {
        let text = stdout(&run(&["doctor", "--for", class]));
        let last = text.lines().last().expect("a line");
        assert!(last.contains(&format!(" for {class}: ")), "{last}");
        let mut all = 0;
        for words in [["error", "errors"], ["warning", "warnings"], ["note", "notes"]] {
            let start = format!("{} ", words[0]);
            let found = text.lines().filter(|line| line.starts_with(&start)).count();
            assert_eq!(counted(last, words), found, "{text}");
            all += found;
        }
        assert_eq!(all == 0, last.starts_with("No findings"), "{text}");
        assert_eq!(all == 0, text.lines().count() == 1, "{text}");
        for (least, counted) in [
            ("note", &["note", "warning", "error"][..]),
            ("warning", &["warning", "error"]),
            ("error", &["error"]),
        ] {
            let output = run(&["doctor", "--for", class, "--json", "--fail-if", least]);
            let document = document(&output);
            assert_eq!(document["workload"], class);
            let findings = document["findings"].as_array().unwrap();
            let is_bad =
                findings.iter().any(|it| counted.contains(&it["severity"].as_str().unwrap()));
            assert_eq!(output.status.code(), Some(i32::from(is_bad)), "{class}, {least}");
            let checks = document["checks"].as_array().unwrap();
            assert!(checks.iter().filter(|it| it["state"] == "fine").count() > 5, "{document:#}");
        }
    }
    refused(&run(&["doctor", "--for", "cobol"]), 2, "database");
    refused(&run(&["doctor", "--all", "--json"]), 2, "--json");
}

#[test]
fn commands_of_live_findings_mend_them() {
    testkit::lock_machine!();
    let proactive = "/proc/sys/vm/compaction_proactiveness";
    let scan = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap";
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    let _restored = AsFound::note([proactive, scan, enabled]);
    let made = [(enabled, "madvise"), (proactive, "0"), (scan, "511")];
    if let Some((file, _)) = made.iter().find(|(file, value)| fs::write(file, value).is_err()) {
        testkit::skipped!("{file} cannot be written");
        return;
    }
    let has_sysctl = Command::new("sysctl").arg("--version").output().is_ok();
    testkit::require!(has_sysctl, "no sysctl (procps)");
    let before = document(&run(&["doctor", "--for", "batch", "--json"]));
    for id in ["compaction-proactive-off", "khugepaged-swap"] {
        let finding = finding(&before, id).unwrap_or_else(|| panic!("no {id}: {before:#}"));
        for command in finding["now"].as_array().unwrap() {
            let output = Command::new("sh").arg("-ec").arg(command.as_str().unwrap()).output();
            let output = output.expect("a shell");
            assert!(output.status.success(), "{command}: {}", stderr(&output));
        }
    }
    let after = document(&run(&["doctor", "--for", "batch", "--json"]));
    for id in ["compaction-proactive-off", "khugepaged-swap"] {
        assert!(finding(&after, id).is_none(), "{id} stays: {after:#}");
    }
    assert_eq!(fs::read_to_string(proactive).unwrap().trim(), "20");
}

/// Another user may not read the variables of our processes.
#[test]
fn without_privilege_what_cannot_be_read_is_unknown() {
    if own_user() != 0 {
        testkit::skipped!("needs root to become another user");
        return;
    }
    let mut command = superpage(&["doctor", "--json"]);
    let Ok(output) = command.uid(65534).gid(65534).output() else {
        testkit::skipped!("another user cannot reach the command");
        return;
    };
    if output.status.code().is_none_or(|code| code == 126) || output.stdout.is_empty() {
        testkit::skipped!("another user cannot start the command: {}", stderr(&output));
        return;
    }
    let document = document(&output);
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|it| it["id"] == "program-morecore").unwrap();
    assert_eq!(check["state"], "unknown", "{check:#}");
    let unknown = check["unknown"][0]["why"].as_str().unwrap();
    assert!(unknown.contains("/environ"), "{unknown}");
}

fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").map_or(u32::MAX, |it| it.uid())
}
