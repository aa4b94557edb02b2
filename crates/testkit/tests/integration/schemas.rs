//! docs/schemas: every document that the sources can print has a schema and an example, and the checker detects errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use superpage_testkit::schemas::{Schemas, check_output};

use crate::root;
use crate::sources::files;

/// Returns names of documents in sources, such as `superpage.compare/1`, without those in tests.
fn printed() -> BTreeSet<String> {
    let root = root();
    let mut found = BTreeSet::new();
    for file in files(&root, &root.join("crates")) {
        let path = file.to_string_lossy();
        if !path.contains("/src/") || path.contains("testkit") || path.contains("/tests") {
            continue;
        }
        let text = fs::read_to_string(root.join(&file)).unwrap();
        for part in text.split("superpage.").skip(1) {
            let end = part.find(|c: char| !(c.is_ascii_lowercase() || "-./".contains(c)));
            let (name, rest) = part.split_at(end.unwrap_or(part.len()));
            let version = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            // Versions 9 and 99 occur in tests that refuse them.
            if name.ends_with('/') && !version.is_empty() && !version.starts_with('9') {
                found.insert(format!("superpage.{name}{version}"));
            }
        }
    }
    found
}

#[test]
fn every_document_has_a_schema_and_every_schema_a_document() {
    let all = Schemas::of_repository();
    let title = |schema: &Value| schema["title"].as_str().unwrap().to_string();
    let documents = all.files().filter(|(file, _)| *file != "common.json");
    let schemas: BTreeSet<String> = documents
        .map(|(file, schema)| {
            assert_eq!(
                file,
                Schemas::file_of(&title(schema)),
                "a file is named after its document"
            );
            title(schema)
        })
        .collect();
    // Schemas of earlier versions stay: documents of the last release are still described.
    let printed = printed();
    let version = |name: &str| {
        let (name, version) = name.split_once('/')?;
        Some((name.to_string(), version.parse::<u32>().ok()?))
    };
    let newest: BTreeMap<String, u32> = printed.iter().filter_map(|name| version(name)).collect();
    let is_earlier = |name: &String| {
        version(name)
            .is_some_and(|(name, version)| newest.get(&name).is_some_and(|it| *it > version))
    };
    let current: BTreeSet<String> =
        schemas.iter().filter(|name| !is_earlier(name)).cloned().collect();
    assert_eq!(printed, current, "what sources print, and docs/schemas");
    println!("{} documents, each with its schema", schemas.len());
}

#[test]
fn every_schema_has_an_example_that_fits_and_is_listed() {
    let page = fs::read_to_string(root().join("docs/guide/documents.md")).unwrap();
    let (all, mut count) = (Schemas::of_repository(), 0);
    for (file, schema) in all.files().filter(|(file, _)| *file != "common.json") {
        let name = schema["title"].as_str().unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "docs/guide/documents.md lacks {name}");
        let text = fs::read_to_string(root().join("docs/schemas/examples").join(file));
        let text = text.unwrap_or_else(|error| panic!("docs/schemas/examples/{file}: {error}"));
        let example: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(example["schema"], name, "{file}");
        all.check(&example).unwrap_or_else(|wrong| panic!("{file}:\n{}", wrong.join("\n")));
        count += 1;
    }
    assert!(count > 20, "{count} examples");
}

#[test]
fn schemas_use_only_what_is_checked_and_lead_somewhere() {
    let wrong = Schemas::of_repository().mistakes();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each member of each object of each example is removed, or gets another type: the checker must report that, unless
/// the schema allows it.
#[test]
fn a_field_that_lacks_or_has_another_type_is_found() {
    let all = Schemas::of_repository();
    for file in ["pool-change-1.json", "lab.run-1.json", "bench-1.json"] {
        let text = fs::read_to_string(root().join("docs/schemas/examples").join(file)).unwrap();
        let example: Value = serde_json::from_str(&text).unwrap();
        for key in example.as_object().unwrap().keys() {
            let mut other = example.clone();
            other[key] = json!({ "no": "such" });
            assert!(all.check(&other).is_err(), "{file}: {key} as an object");
            other.as_object_mut().unwrap().remove(key);
            let optional = ["requests", "kernel_bytes", "bound", "superpage_pages"];
            let is_found = all.check(&other).is_err();
            assert!(is_found || optional.contains(&key.as_str()), "{file}: without {key}");
        }
        let mut other = example.clone();
        other["new"] = json!(1);
        assert!(all.check(&other).is_err(), "{file}: with a field that no schema has");
    }
    for (document, says) in [
        (json!({ "schema": "superpage.nothing/1" }), "there is no "),
        (json!({ "a": 1 }), "it names no schema"),
        (json!({ "schema": "superpage.restore/1" }), "superpage.restore/1.restored: missing"),
    ] {
        assert!(all.check(&document).unwrap_err()[0].contains(says), "{document}");
    }
}

#[test]
fn a_document_without_a_schema_is_found_in_what_a_command_printed() {
    let status = std::process::ExitStatus::default();
    let printed = |text: &str| Output { status, stdout: text.into(), stderr: Vec::new() };
    let check = |words: &[&str], text: &str| {
        std::panic::catch_unwind(|| check_output(words, &printed(text))).ok()
    };
    let fits = r#"{"schema":"superpage.restore/1","restored":[],"directories":[]}"#;
    assert_eq!(check(&["restore", "--json"], fits), Some(1));
    assert_eq!(check(&["restore", "--json"], &format!("{fits}\n{fits}\n")), Some(2));
    assert_eq!(check(&["restore"], "nothing to restore\n"), Some(0));
    for wrong in [r#"{"restored":[]}"#, r#"{"schema":"superpage.restore/1"}"#] {
        assert_eq!(check(&["restore", "--json"], wrong), None, "{wrong}");
    }
    // A program's own.
    assert_eq!(check(&["run", "--", "a", "--json"], r#"{"a":1}"#), Some(0));
}

/// For each keyword of the checker, values that it accepts and values that it refuses.
#[test]
fn the_checker_knows_each_keyword() {
    let cases = [
        (json!({ "type": "integer" }), json!(1), json!(1.5)),
        (json!({ "type": ["string", "null"] }), json!(null), json!(1)),
        (json!({ "type": "array", "items": { "type": "string" } }), json!(["a"]), json!(["a", 1])),
        (
            json!({ "prefixItems": [{ "const": 1 }], "items": { "const": 2 } }),
            json!([1, 2]),
            json!([2, 2]),
        ),
        (json!({ "minItems": 1, "maxItems": 2 }), json!([1]), json!([1, 2, 3])),
        (json!({ "minItems": 1 }), json!([1]), json!([])),
        (json!({ "minimum": 0, "maximum": 1 }), json!(0.5), json!(-1)),
        (json!({ "maximum": 1 }), json!(1), json!(2)),
        (json!({ "enum": ["a", "b"] }), json!("b"), json!("c")),
        (json!({ "const": null }), json!(null), json!(0)),
        (json!({ "required": ["a"] }), json!({ "a": null }), json!({ "b": 1 })),
        (json!({ "properties": { "a": { "const": 1 } } }), json!({ "a": 1 }), json!({ "a": 2 })),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            json!({ "a": 1 }),
            json!({ "b": 1 }),
        ),
        (json!({ "additionalProperties": { "const": 1 } }), json!({ "b": 1 }), json!({ "b": 2 })),
        (json!({ "anyOf": [{ "const": 1 }, { "type": "string" }] }), json!("a"), json!(2)),
        (json!({ "oneOf": [{ "const": 1 }, { "minimum": 5 }] }), json!(1), json!(2)),
        (json!({ "oneOf": [{ "type": "number" }, { "const": 1 }] }), json!(2), json!(1)),
        (json!({ "$defs": { "one": { "const": 1 } }, "$ref": "#/$defs/one" }), json!(1), json!(2)),
    ];
    for (schema, fits, does_not) in cases {
        let one = Schemas::from_value("one.json", schema.clone());
        assert_eq!(one.mistakes(), Vec::<String>::new(), "{schema}");
        assert!(one.fits("one.json", &fits).is_ok(), "{schema}: {fits}");
        assert!(one.fits("one.json", &does_not).is_err(), "{schema}: {does_not}");
    }
    for wrong in [
        json!({ "pattern": "a" }),
        json!({ "items": { "typ": "string" } }),
        json!({ "properties": { "a": { "$ref": "#/$defs/nothing" } } }),
        json!({ "type": "text" }),
        json!({ "oneOf": [true] }),
    ] {
        assert_eq!(Schemas::from_value("one.json", wrong.clone()).mistakes().len(), 1, "{wrong}");
    }
}
