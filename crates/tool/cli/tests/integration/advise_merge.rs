//! `superpage advise merge` on the documents of many nodes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{run, stderr, stdout};

/// Nodes of the large fleet.
const NODES: usize = 10_000;

/// One process of a document. Fields that the table does not need are those of the example in docs/schemas.
fn process(example: &Value, unit: &str, command: &str, verdict: Value, cpus: f64) -> Value {
    let mut one = example["processes"][0].clone();
    one["process"]["unit"] = unit.into();
    one["process"]["cgroup"] = format!("/system.slice/{unit}").into();
    one["process"]["command"] = json!([command]);
    one["verdict"] = verdict;
    one["extra_bytes"] = (1 << 20).into();
    one["on_base_pages"] = (1 << 30).into();
    one["look"]["seconds"] = 20.0.into();
    one["look"]["cpu_seconds"] = (20.0 * cpus).into();
    one
}

fn gain(share: f64) -> Value {
    let kind = if share < 0.01 { "none" } else { "gain" };
    json!({"kind": kind, "low": share - 0.02, "mid": share, "high": share + 0.02})
}

/// Writes the documents of `nodes` machines: of each a database that gains 5 to 15 %, a web server that gains nothing and
/// loses on each hundredth node, a service without load, and the example's process that could not be sampled.
fn write_fleet(directory: &Path, nodes: usize) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schemas/examples/advise-1.json");
    let example: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for node in 0..nodes {
        let mut document = example.clone();
        document["machine"]["name"] = format!("node-{node}").into();
        let web = if node % 100 == 0 { -0.03 } else { 0.0 };
        document["processes"] = json!([
            process(
                &example,
                "db.service",
                "db",
                gain(0.05 + 0.1 * (node % 11) as f64 / 10.0),
                2.0
            ),
            process(&example, "web.service", "web", gain(web), 1.0),
            process(
                &example,
                "idle.service",
                "idle",
                json!({"kind": "unknown", "why": "few-samples"}),
                0.0
            ),
        ]);
        fs::write(directory.join(format!("{node}.json")), document.to_string()).unwrap();
    }
}

fn merged(words: &[&str]) -> Value {
    let output = run(&[&["advise", "merge"], words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn ten_thousand_nodes_are_one_table() {
    let place = tempfile::tempdir().unwrap();
    write_fleet(place.path(), NODES);
    let directory = place.path().to_str().unwrap();
    let merged = merged(&[directory]);
    assert_eq!(merged["nodes"], NODES);
    let names: Vec<&str> = merged["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["service"].as_str().unwrap())
        .collect();
    // Saved CPUs decide: those of a database, none, fewer than none.
    assert_eq!(names, ["db.service", "idle.service", "old", "web.service"]);
    let [db, idle, old, web] = [0, 1, 2, 3].map(|at| &merged["services"][at]);
    let of = |one: &Value, name: &str| one["nodes"][name].as_u64().unwrap() as usize;
    assert_eq!((of(db, "all"), of(db, "gain"), of(db, "lose")), (NODES, NODES, 0));
    let known = db["gain"]["mid"].as_f64().unwrap();
    assert!((known - 0.1).abs() < 0.002, "{db}");
    // The nodes' own intervals are ± 2 points, and 10,000 nodes say the mean to 0.1.
    let (low, high) = (db["gain"]["low"].as_f64().unwrap(), db["gain"]["high"].as_f64().unwrap());
    assert!((0.075..0.082).contains(&low) && (0.117..0.125).contains(&high), "{db}");
    let spread = |name: &str| (db["spread"][name].as_f64().unwrap() * 1e3).round();
    assert_eq!((spread("low"), spread("high")), (50.0, 150.0));
    assert_eq!(db["on_base_pages"], NODES as u64 * (1 << 30));
    assert_eq!(
        (of(web, "none"), of(web, "lose"), of(web, "memory_only")),
        (NODES, NODES / 100, NODES)
    );
    assert_eq!(web["losing_nodes"].as_array().unwrap().len(), 5);
    assert_eq!((of(idle, "unknown"), &idle["gain"]), (NODES, &Value::Null));
    assert_eq!(idle["unknown_processes"]["few_samples"], NODES);
    assert_eq!((of(old, "unknown"), &old["unknown_processes"]["failed"]), (NODES, &json!(NODES)));
    let table = run(&["advise", "merge", directory, "--by", "program"]);
    let text = stdout(&table);
    assert!(text.contains("000 nodes, ") && text.contains(" db "), "{text}");
    assert!(text.contains("web would lose on node-0, "), "{text}");
}

#[test]
fn files_that_are_no_documents_are_counted_and_named() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    let refused = |expected: &str| {
        let output = run(&["advise", "merge", directory]);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    };
    refused("no files");
    fs::write(place.path().join("a-empty"), "").unwrap();
    refused("none of 1 file is a document of superpage.advise/1; a-empty: empty");
    write_fleet(place.path(), 3);
    let good = fs::read_to_string(place.path().join("0.json")).unwrap();
    let put = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    put("b-truncated", &good[..good.len() / 2]);
    put("c-version", &good.replace("superpage.advise/1", "superpage.advise/99"));
    put("d-words", "superpage: no process has pid 7");
    put("e-map", r#"{"schema":"superpage.map/1"}"#);
    put("f-invalid", &good.replace("\"on_base_pages\"", "\"other\""));
    put("g-again.json", &good);
    put(".hidden", "x");
    fs::create_dir(place.path().join("h-directory")).unwrap();
    std::os::unix::fs::symlink("/nowhere", place.path().join("i-dangling")).unwrap();
    let merged = merged(&[directory]);
    assert_eq!((&merged["nodes"], &merged["replaced"]), (&json!(3), &json!(1)));
    let named = merged["files"]["named"].as_array().unwrap();
    let kinds: Vec<(&str, &str)> = named
        .iter()
        .map(|one| (one["file"].as_str().unwrap(), one["kind"].as_str().unwrap()))
        .collect();
    let expected = [
        ("a-empty", "empty"),
        ("b-truncated", "truncated"),
        ("c-version", "other-version"),
        ("d-words", "not-json"),
        ("e-map", "other-document"),
        ("f-invalid", "invalid"),
        ("i-dangling", "unreadable"),
    ];
    assert_eq!(kinds, expected);
    let text = stdout(&run(&["advise", "merge", directory]));
    assert!(text.contains("7 files not used: 1 empty, 1 truncated"), "{text}");
    let csv = stdout(&run(&["advise", "merge", directory, "--csv"]));
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [25; 5], "{csv}");
    assert!(csv.lines().nth(1).unwrap().starts_with("\"db.service\",3,"), "{csv}");
}
