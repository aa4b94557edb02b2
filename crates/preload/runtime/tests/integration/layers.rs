//! No two parts of the library use each other, directly or through other parts: `src/NAME.rs` and the folders of `src`
//! form layers. Pure tier: reads the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Returns the code of a part: a file, or all files of a folder.
fn code(path: &Path) -> String {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a directory of sources");
        return entries.map(|entry| code(&entry.expect("an entry").path())).collect();
    }
    let text = fs::read_to_string(path).expect("a source");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line.trim(), "\n"]).collect()
}

/// Returns the parts that code names: `crate::a::b`, `use crate::{a, b::c};`.
fn used(code: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = |text: &str| text.chars().take_while(|c| is_name(*c)).collect::<String>();
    let mut used = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => _ = used.insert(name(rest)),
            Some(list) => {
                let mut depth = 0;
                let list = list.split(';').next().expect("the rest of the line");
                for word in list.split_inclusive([',', '{', '}']) {
                    if depth == 0 {
                        used.insert(name(word.trim_start()));
                    }
                    depth += i32::from(word.ends_with('{')) - i32::from(word.ends_with('}'));
                }
            }
        }
    }
    used
}

#[test]
fn no_part_uses_one_that_uses_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut parts = BTreeMap::new();
    for entry in fs::read_dir(&root).expect("the sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_string();
        parts.insert(name, used(&code(&path)));
    }
    parts.remove("lib");
    assert!(parts["start"].contains("order") && parts["prepare"].contains("executor"), "{parts:?}");
    // A part that uses none of the remaining parts is the lowest of them.
    while !parts.is_empty() {
        let is_lowest = |(name, used): &(&String, &BTreeSet<String>)| {
            used.iter().all(|other| other == *name || !parts.contains_key(other))
        };
        let lowest: Vec<String> =
            parts.iter().filter(is_lowest).map(|(it, _)| it.clone()).collect();
        assert!(!lowest.is_empty(), "these use each other, by way of others: {parts:#?}");
        parts.retain(|name, _| !lowest.contains(name));
    }
}
