//! `superpage design`: lists, shows, checks, compares and explains designs; needs no machine.

use crate::common::{NO_LAB, has_lab, run, stderr, stdout};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert_eq!(stderr(&output), "", "{arguments:?}");
    let text = stdout(&output);
    assert!(text.starts_with("{\n  \"schema\": \"superpage.design"), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn lists_are_the_same_for_people_and_programs() {
    let table = stdout(&run(&["design"]));
    assert_eq!(table, stdout(&run(&["design", "list"])));
    let document = json(&["design", "--json"]);
    assert_eq!(document["schema"], "superpage.designs/1");
    let designs = document["designs"].as_array().unwrap();
    let (rows, choices) = table.split_once("\n\n").unwrap();
    assert_eq!(rows.lines().count(), designs.len() + 1);
    let kept = |name: &str| designs.iter().find(|it| it["name"] == name).unwrap()["manage"].clone();
    assert_eq!(["hugetlb", "hawkeye-g", "freebsd", "ingens"].map(kept), [false, false, true, true]);
    for name in ["sync-64", "freebsd", "ingens"] {
        assert!(choices.contains(&format!(": {name}, ")), "{choices}");
    }
    assert!(designs.len() > 10, "{table}");
    for (line, design) in rows.lines().skip(1).zip(designs) {
        assert_eq!(line.contains("  yes  "), design["manage"] == true, "{line}");
        assert!(line.trim_start().starts_with(design["name"].as_str().unwrap()), "{line}");
        assert!(line.ends_with(design["summary"].as_str().unwrap()), "{line}");
    }
}

#[test]
fn every_design_is_shown_checked_and_equal_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    for design in json(&["design", "list", "--json"])["designs"].as_array().unwrap() {
        let name = design["name"].as_str().unwrap();
        for (how, ending) in [(&[][..], "short"), (&["--all"][..], "all")] {
            let text = stdout(&run(&[&["design", "show", name], how].concat()));
            let path = dir.path().join(format!("{name}-{ending}.toml"));
            std::fs::write(&path, text).unwrap();
            let path = path.to_str().unwrap();
            let checked = run(&["design", "check", path]);
            assert_eq!(stdout(&checked), format!("{path}: ok: {name}\n"), "{}", stderr(&checked));
            let same = stdout(&run(&["design", "diff", name, path]));
            assert_eq!(same, format!("{name} and {path} have the same rules\n"));
        }
    }
}

#[test]
fn a_design_is_explained_to_people_and_programs() {
    let text = stdout(&run(&["design", "explain", "sync-64"]));
    let rest = "    prepare the rest of the reservation\n";
    assert!(text.contains(&format!("  a region gets its page number 64\n{rest}")), "{text}");
    let document = json(&["design", "explain", "sync-64", "--json"]);
    assert_eq!(document["schema"], "superpage.design-explain/1");
    assert_eq!(document["name"], "quicksilver-sync-64");
    for line in document["events"].as_array().unwrap() {
        let event = format!("  {}\n", line["event"].as_str().unwrap());
        assert!(text.contains(&event), "{event}{text}");
    }
}

#[test]
fn documents_are_in_base_units() {
    let shown = json(&["design", "show", "sync-64", "--json"]);
    assert_eq!(shown["schema"], "superpage.design/1");
    assert_eq!(shown["name"], "quicksilver-sync-64");
    assert_eq!(shown["file"], Value::Null);
    let key = |name: &str| {
        let keys = shown["keys"].as_array().unwrap();
        keys.iter().find(|key| key["key"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(key("deallocation.after")["value"], 5_000_000_000u64);
    assert_eq!(key("deallocation.after")["unit"], "ns");
    assert_eq!(key("preparation.bulk")["value"], 2 << 20);
    assert_eq!(key("allocation.sizes")["value"], serde_json::json!([2 << 20]));
    assert_eq!(key("allocation.sizes")["unit"], "bytes");
    assert_eq!(key("preparation.fill-at")["unit"], Value::Null);
}

#[test]
fn differences_for_people_and_programs() {
    let table = stdout(&run(&["design", "diff", "sync-1", "async-64"]));
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["quicksilver-sync-1", "quicksilver-async-64"]);
    assert_eq!(lines[1], ["preparation.fill-at", "1", "-"]);
    let document = json(&["design", "diff", "sync-1", "async-64", "--json"]);
    assert_eq!(document["schema"], "superpage.design-diff/1");
    let differences = document["differences"].as_array().unwrap();
    assert_eq!(differences.len(), lines.len() - 1);
    assert_eq!(differences[1]["key"], "preparation.bulk");
    assert_eq!(differences[1]["a"], 2 << 20);
    assert_eq!(differences[1]["unit"], "bytes");
    assert_eq!(differences[2]["a"], Value::Null);
}

#[test]
fn every_key_is_explained_to_people_and_programs() {
    let table = stdout(&run(&["design", "keys"]));
    assert!(table.contains(" preparation.fill-at "), "{table}");
    let document = json(&["design", "keys", "--json"]);
    assert_eq!(document["schema"], "superpage.design-keys/1");
    let keys = document["keys"].as_array().unwrap();
    let tables = keys.iter().filter(|key| key["kind"] == "table").count();
    assert_eq!(table.lines().count(), 1 + keys.len() - tables);
    let form = json(&["design", "keys", "allocation.form", "--json"])["keys"][0].clone();
    assert_eq!(
        (&form["default"], &form["words"][1]["word"]),
        (&"superpage".into(), &"reservation".into())
    );
    let block = stdout(&run(&["design", "keys", "allocation.form"]));
    for word in form["words"].as_array().unwrap() {
        assert!(block.contains(word["meaning"].as_str().unwrap()), "{block}");
    }
    let unknown = run(&["design", "keys", "fil-att"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("`superpage design keys` lists all"), "{}", stderr(&unknown));
}

#[test]
fn keys_in_vain_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vain.toml");
    let text = "name = \"vain\"\nallocation = {form = \"reservation\", break-reservations = true}\n\
                mapping.when = \"prepared\"\ndeallocation.when = \"when-empty\"\npreparation.grain = \"page\"\n\
                preparation.fill-at = 256\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let checked = run(&["design", "check", path]);
    assert_eq!(
        (checked.status.code(), stdout(&checked)),
        (Some(0), format!("{path}: ok, 1 warning: vain\n"))
    );
    assert!(
        stderr(&checked).contains("vain.toml:6: preparation.fill-at: 256: "),
        "{}",
        stderr(&checked)
    );
    let document = json(&["design", "check", path, "--json"]);
    assert_eq!(document["files"][0]["warnings"][0]["key"], "preparation.fill-at");
    assert_eq!(document["files"][0]["warnings"][0]["line"], 6);
    assert_eq!(document["files"][0]["problems"], serde_json::json!([]));
}

#[test]
fn a_bad_file_is_told_line_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.toml");
    let text = "name = \"bad\"\nallocation.form = \"reservation\"\npreparation.fill-at = 600\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let output = run(&["design", "check", path]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let errors = stderr(&output);
    assert!(errors.lines().count() > 2, "{errors}");
    assert!(
        errors.lines().all(|line| line.starts_with(&format!("superpage: {path}:"))),
        "{errors}"
    );
    assert!(errors.contains("bad.toml:3: preparation.fill-at: 600: must be 1 to"), "{errors}");

    let output = run(&["design", "check", path, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["schema"], "superpage.design-check/1");
    let problems = document["files"][0]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), errors.lines().count());
    assert_eq!(document["files"][0]["name"], Value::Null);

    // Commands that need a design report the same errors, one per line.
    for arguments in
        [&["design", "diff", "linux", path][..], &["lab", "run", "-w", "gups", "-d", path]]
    {
        if arguments[0] == "lab" && !has_lab() {
            testkit::skipped!("{NO_LAB}");
            continue;
        }
        let output = run(arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        assert_eq!(stderr(&output), errors, "{arguments:?}");
    }
    let lines: Vec<u32> = errors
        .lines()
        .map(|line| {
            line.split("bad.toml:").nth(1).unwrap().split(':').next().unwrap().parse().unwrap()
        })
        .collect();
    assert!(lines.is_sorted(), "{errors}");
}
