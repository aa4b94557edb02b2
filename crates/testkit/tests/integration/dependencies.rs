//! docs/dependencies.md has a row for every external crate, and no other rows.

use std::collections::BTreeSet;
use std::fs;

use crate::root;

#[test]
fn every_dependency_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, table) = manifest.split_once("[workspace.dependencies]\n").unwrap();
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let foreign = lines.filter(|line| !line.contains("path = ") && !line.starts_with('#'));
    let used: BTreeSet<&str> = foreign.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(used.len() > 20, "{used:?}");

    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let (page, _) = page.split_once("\n## ").expect("what is written by hand");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    // Text in parentheses is a comment.
    let names = rows.skip(1).flat_map(|cell| cell.split(" (").next().unwrap().split(", "));
    let named: BTreeSet<&str> = names.collect();
    assert_eq!(used, named, "left: Cargo.toml, right: docs/dependencies.md");
}
