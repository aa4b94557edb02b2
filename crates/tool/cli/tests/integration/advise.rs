//! `superpage advise` on live processes.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{run, stderr, stdout, superpage};

/// Prices of another machine; whatever they are, some programs gain nothing.
fn prices() -> tempfile::NamedTempFile {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../docs/schemas/examples/prices-1.json");
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    file["processor"] = Value::Null;
    let kept = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kept.path(), file.to_string()).unwrap();
    kept
}

/// A child that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn child(words: &[&str]) -> Ended {
    Ended(Command::new(words[0]).args(&words[1..]).spawn().unwrap())
}

/// Whether an error says that this machine or user cannot sample.
fn cannot(output: &std::process::Output) -> bool {
    let is = output.status.code() == Some(3);
    if is {
        testkit::skipped!("no samples here: {}", stderr(output).trim());
    }
    is
}

#[test]
fn a_program_without_memory_gains_nothing_and_a_sleeper_is_unknown() {
    let file = prices();
    let prices = file.path().to_str().unwrap();
    let busy = child(&["sh", "-c", "while :; do :; done"]);
    let idle = child(&["sleep", "1000"]);
    // However busy the machine is, the shell has its 300 samples.
    let begun = Instant::now();
    loop {
        let pid = busy.0.id().to_string();
        let output = run(&["advise", &pid, "--for", "4", "--prices", prices, "--json"]);
        if cannot(&output) {
            return;
        }
        let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let advice = &said["processes"][0];
        let look = &advice["look"];
        let kind = advice["verdict"]["kind"].as_str().unwrap();
        let count = |name: &str| look[name].as_u64().unwrap();
        let parts = ["attributed", "lost", "without", "unreadable"];
        assert_eq!(parts.map(count).iter().sum::<u64>(), count("samples"), "{said}");
        if kind == "unknown" && begun.elapsed() < Duration::from_secs(120) {
            continue;
        }
        testkit::require!(
            kind != "unknown",
            "this machine is too busy: {}",
            advice["verdict"]["why"]
        );
        assert_eq!((kind, output.status.code()), ("none", Some(0)), "{said}");
        assert!(advice["remedies"].as_array().unwrap().is_empty(), "{said}");
        break;
    }
    let pid = idle.0.id().to_string();
    let output = run(&["advise", "--pid", &pid, "--for", "1", "--prices", prices]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("unknown: it used too little CPU time"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn mistakes_are_one_line_each() {
    let ended = {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id().to_string()
    };
    let bad = std::env::temp_dir().join(format!("superpage-no-prices-{}", std::process::id()));
    std::fs::write(&bad, "{}").unwrap();
    let bad = bad.display().to_string();
    let own = std::process::id().to_string();
    for (words, code) in [
        (vec!["advise"], 2),
        (vec!["advise", ended.as_str()], 2),
        (vec!["advise", "--unit", "no-such-unit-here"], 2),
        (vec!["advise", &own, "--for", "0"], 2),
        (vec!["advise", &own, "--prices", &bad], 2),
    ] {
        let output = superpage(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?} {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{words:?} {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{words:?}");
    }
    std::fs::remove_file(&bad).unwrap();
}

#[test]
fn a_process_that_ends_meanwhile_is_told() {
    let file = prices();
    let prices = file.path().to_str().unwrap();
    let ending = child(&["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
    let pid = ending.0.id().to_string();
    let output = run(&["advise", &pid, "--for", "40", "--prices", prices]);
    if cannot(&output) {
        return;
    }
    assert!(stdout(&output).contains("the process ended during sampling"), "{}", stdout(&output));
}
