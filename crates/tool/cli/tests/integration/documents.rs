//! Documents that are made quickly are checked against their schemas, and counted; older documents are read back.

use testkit::schemas::check_output;

use crate::common::{has_thp, run, stderr, stdout, superpage};

/// Commands that change nothing and are fast. Other tests make the other documents, and check them there
/// (`common::run`).
const QUICK: [&str; 23] = [
    "workload --json",
    "workload touch --size 4M --json",
    "design list --json",
    "design show base --json",
    "design explain base --json",
    "design diff base linux-4.3 --json",
    "design check ../../../designs/base.toml --json",
    "doctor --for vm --json",
    "pool list --json",
    "pool users --json",
    "pool mounts list --json",
    "pool mounts create --dry-run --json",
    "pool overcommit 2M:0 --dry-run --json",
    "pool set 2M:+1 --dry-run --force --json",
    "pool shm --json",
    "pool min-free --json",
    "pool min-free --set 70M --dry-run --json",
    "pool plan --json -- sleep 0.2",
    "run --dry-run --json -- sleep 1",
    "run --json -- sleep 0.1",
    "measure --json --misses 1000 --cycles 1e9 --cost 30",
    "bench frag --dry-run --json -- true",
    "compare -q --json --max-runs 2 --arm base --arm system -- true",
];

#[test]
fn what_quick_commands_print_is_as_the_schemas_say() {
    let mut count = 0;
    for line in QUICK {
        let words: Vec<&str> = line.split(' ').collect();
        if line.starts_with("run ") && !has_thp() {
            testkit::skipped!("{line}: THP are off on this machine");
            continue;
        }
        let output = superpage(&words).output().unwrap();
        let met = check_output(&words, &output);
        // Exit code 3: this machine has no pools, or too little free memory to fragment.
        let may_lack = line.starts_with("pool ") || line.starts_with("bench frag ");
        if may_lack && output.status.code() == Some(3) {
            testkit::skipped!("{line}: {}", stderr(&output).trim());
            continue;
        }
        assert_eq!(met, 1, "{line}: {}{}", stdout(&output), stderr(&output));
        count += met;
    }
    assert!(count >= 9, "only {count} documents were looked at");
    println!("{count} documents against their schemas");
}

/// The files are as version 0.1.0 wrote them, and are never regenerated.
#[test]
fn documents_of_the_last_version_are_read() {
    for (words, file, says) in [
        (&["compare", "--from"][..], "compare-1.json", "sleep 0.02"),
        (&["compare", "--from"], "compare-series-1.json", "2 values of size"),
        (&["evaluate", "--from"], "evaluation-1.json", "figures"),
    ] {
        let path = format!("{}/tests/documents/0.1.0/{file}", env!("CARGO_MANIFEST_DIR"));
        let output = run(&[words, &[path.as_str()]].concat());
        assert!(output.status.success(), "{file}: {}", stderr(&output));
        assert!(stdout(&output).contains(says), "{file}: {}", stdout(&output));
    }
}

/// Replaces texts that are for people only, and no names; returns the number of replaced texts.
fn replace_words(value: &mut serde_json::Value) -> usize {
    const READ: [&str; 6] = ["notes", "why", "left_alone", "unknown", "reason", "text"];
    fn all(value: &mut serde_json::Value) -> usize {
        match value {
            serde_json::Value::String(text) => {
                *text = format!("qzx {}", text.len());
                1
            }
            serde_json::Value::Array(items) => items.iter_mut().map(all).sum(),
            _ => 0,
        }
    }
    match value {
        serde_json::Value::Array(items) => items.iter_mut().map(replace_words).sum(),
        serde_json::Value::Object(fields) => fields
            .iter_mut()
            .map(|(name, value)| match READ.contains(&name.as_str()) && !value.is_object() {
                true => all(value),
                false => replace_words(value),
            })
            .sum(),
        _ => 0,
    }
}

/// The texts decide neither whether an arm took effect nor its verdict.
#[test]
fn no_verdict_depends_on_words() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let examples = format!("{}/../../../docs/schemas/examples", env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| place.path().join(name));
    let read = |file: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(format!("{examples}/{file}")).unwrap())
            .unwrap()
    };
    // An arm that requests superpages for the heap, and gets none. Whether it gets a verdict depends on whether it may
    // have got smaller superpages.
    let file = before.to_str().unwrap();
    let words = [
        "compare",
        "-q",
        "--json",
        "--max-runs",
        "5",
        "--arm",
        "base",
        "--arm",
        "x: pages=thp memory=heap",
    ];
    let output = run(&[&words[..], &["-o", file, "--", "sleep", "0.1"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let mut compared: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&before).unwrap()).unwrap();
    compared["arms"][1]["plan"]["conditions"] = serde_json::json!([]);
    for sample in compared["samples"].as_array_mut().unwrap() {
        if sample["arm"] == 1 {
            sample["library_answered"] = true.into();
            sample["library_asked_bytes"] = (64 << 20).into();
        }
    }
    let mut fragmented = compared.clone();
    let note = serde_json::json!({ "kind": "fragmented", "rest": { "supplied": [] } });
    fragmented["arms"][1]["plan"]["conditions"] = serde_json::json!([note]);
    let mut found = Vec::new();
    for (command, document) in
        [("compare", compared), ("compare", fragmented), ("evaluate", read("evaluation-1.json"))]
    {
        let mut changed = document.clone();
        assert!(replace_words(&mut changed) > 0, "{command}: no words");
        std::fs::write(&before, document.to_string()).unwrap();
        std::fs::write(&after, changed.to_string()).unwrap();
        for verdict in ["slower", "not-faster", "undecided", "no-effect"] {
            let codes = [&before, &after].map(|file| {
                let file = file.to_str().unwrap();
                let output = run(&[command, "--from", file, "--fail-if", verdict]);
                // If no arm took effect, the command reports only that.
                (output.status.code(), stderr(&output))
            });
            assert_eq!(codes[0], codes[1], "{command}, {verdict}");
            found.push(codes[0].0);
        }
    }
    // The first two documents give different results for `no-effect`, which types decide.
    assert_eq!((found[3], found[7]), (Some(1), Some(0)));
}

/// Results of an older `tlb --save` can be used to price misses.
#[test]
fn a_machine_that_the_last_version_measured_is_read() {
    let data = tempfile::tempdir().unwrap();
    let machines = data.path().join("superpage/machines");
    std::fs::create_dir_all(&machines).unwrap();
    let kept = format!("{}/tests/documents/0.1.0/tlb-1.json", env!("CARGO_MANIFEST_DIR"));
    let kept = std::fs::read_to_string(kept).unwrap();
    let mut kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let words = ["measure", "--json", "--misses", "1000", "--cycles", "1e9", "--cost", "this"];
    let mut measure_on = |model: serde_json::Value| {
        kept["processor"]["model"] = model;
        std::fs::write(machines.join("this.json"), kept.to_string()).unwrap();
        superpage(&words).env("XDG_DATA_HOME", data.path()).output().unwrap()
    };
    // The saved results are first of another machine, with other costs, and then of a machine without a name, which may
    // be this one.
    let output = measure_on("A Processor of 1999".into());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("of another machine"), "{}", stderr(&output));
    let output = measure_on(serde_json::Value::Null);
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(document["estimate"]["share"]["mid"].as_f64() > Some(0.0), "{document}");
}
