//! A crate uses only crates of rows below its own in the diagram of docs/architecture.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::root;

/// Pairs of crates in one row of which the first may use the second.
const SAME_ROW: [(&str, &str); 2] = [("lab/cli", "tool/cli"), ("shared/toml-keys", "shared/units")];

#[test]
fn crates_use_only_those_of_lower_rows() {
    let uses = uses();
    assert!(uses.len() > 25, "only {} crates were found", uses.len());
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows = rows(&page, &uses);
    for (user, used) in &uses {
        let row = rows.get(user).unwrap_or_else(|| panic!("{user} is in no row"));
        for used in used {
            let is_allowed = rows[used] > *row || SAME_ROW.contains(&(user, used));
            assert!(is_allowed, "{user} uses {used}, which is in no lower row");
        }
    }
}

/// Returns the crates that each crate uses, by folders below `crates`. `testkit` is left out, because only tests use
/// it.
fn uses() -> BTreeMap<String, Vec<String>> {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let paths = workspace.lines().filter_map(|line| {
        let (name, value) = line.split_once(" = { path = \"crates/")?;
        Some((name, value.split('"').next()?))
    });
    let mut paths: BTreeMap<&str, &str> = paths.collect();
    assert_eq!(paths.remove("testkit"), Some("testkit"));
    let mut uses = BTreeMap::new();
    for folder in paths.values().copied().chain(["bindings/python", "preload/compat"]) {
        let manifest = root().join("crates").join(folder).join("Cargo.toml");
        let names = dependencies(&manifest);
        let used = names.iter().filter_map(|name| paths.get(name.as_str()));
        uses.insert(folder.to_string(), used.map(|path| path.to_string()).collect());
    }
    uses
}

/// Returns the dependencies in a manifest, including those for one target, without dev-dependencies.
fn dependencies(manifest: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_dependency = false;
    for line in fs::read_to_string(manifest).unwrap().lines() {
        if line.starts_with('[') {
            is_dependency = line.ends_with("dependencies]") && line != "[dev-dependencies]";
        } else if is_dependency && !line.starts_with('#') {
            names.extend(line.split(['.', ' ']).next().map(String::from));
        }
    }
    names
}

/// Returns the row of the diagram in which each crate is, from the top.
fn rows(page: &str, crates: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, usize> {
    let diagram = page.split("```").nth(1).expect("a diagram");
    let mut found = BTreeMap::new();
    let mut row = 0;
    for line in diagram.lines() {
        row += usize::from(line.starts_with(" ─"));
        // A cell starts with a crate's name; its purpose follows a colon, or is in the next line.
        for cell in line.split("  ").flat_map(|cell| cell.split(", ")) {
            let name = cell.split(':').next().unwrap_or_default().trim();
            // `host` is crates/shared/host; two crates have the name `cli`, so the page calls them tool/cli and
            // lab/cli.
            let named = |path: &&String| {
                *path == name || path.split_once('/').map(|two| two.1) == Some(name)
            };
            if let [path] = crates.keys().filter(named).collect::<Vec<_>>()[..] {
                assert_eq!(found.insert(path.clone(), row), None, "{name} is there twice");
            }
        }
    }
    found
}
