//! Executors decide nothing: they use no design, no preset and no rule.

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns all sources below a directory of the workspace, without tests: their relative paths, and their lines without
/// comments.
fn sources(below: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut left = vec![workspace().join(below)];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of sources") {
            let path = entry.expect("an entry").path();
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() && !is_test {
                left.push(path);
            } else if is_source && !is_test {
                let text = fs::read_to_string(&path).expect("a source");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                let name = path.strip_prefix(workspace()).expect("below the workspace");
                found.push((name.display().to_string(), code.map(String::from).collect()));
            }
        }
    }
    assert!(found.len() > 5, "{below} has {} sources", found.len());
    found
}

/// Sources of the executors: the laboratory, the library in programs, and the executor beside programs.
const EXECUTORS: [&str; 6] = [
    "crates/lab/fault-scaling/src",
    "crates/lab/mm-sim/src",
    "crates/lab/lab/src",
    "crates/shared/workload-streams/src",
    "crates/preload/runtime/src",
    "crates/tool/live/src",
];

fn executors() -> impl Iterator<Item = (String, Vec<String>)> {
    EXECUTORS.into_iter().flat_map(sources)
}

/// Splits a line into words.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Returns the crates that depend on `design` in their Cargo.toml, not counting dev-dependencies.
fn built_with_design() -> Vec<String> {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace");
    let (_, members) = manifest.split_once("members = [").expect("members");
    let (members, _) = members.split_once(']').expect("the end of the members");
    let members = members.split('"').skip(1).step_by(2);
    let has_design = |member: &&str| {
        let path = workspace().join(member).join("Cargo.toml");
        let text = fs::read_to_string(path).expect("a manifest");
        let (_, dependencies) = text.split_once("\n[dependencies]\n").unwrap_or_default();
        let own = dependencies.lines().take_while(|line| !line.starts_with('['));
        own.into_iter().any(|line| line.starts_with("design"))
    };
    members.filter(has_design).map(String::from).collect()
}

#[test]
fn the_commands_and_two_loaders_know_designs() {
    let known = [
        "crates/lab/lab",
        "crates/tool/manage",
        "crates/tool/operations",
        "crates/tool/cli",
        "crates/lab/cli",
    ];
    assert_eq!(built_with_design(), known);
    let names_the_crate =
        |(_, code): &(String, Vec<String>)| code.iter().any(|line| line.contains("design::"));
    let found: Vec<String> = executors().filter(names_the_crate).map(|(path, _)| path).collect();
    assert_eq!(found, ["crates/lab/lab/src/run.rs"]);
}

/// The files that pass designs on.
const HOLD_DESIGNS: [&str; 3] = [
    "crates/lab/lab/src/profile.rs",
    "crates/lab/lab/src/run.rs",
    "crates/lab/lab/src/tables/mod.rs",
];

/// Code that holds a design gets it from the loader, and reads only its name.
#[test]
fn a_design_is_handed_on_unread() {
    for (path, code) in executors().filter(|(path, _)| path != "crates/lab/lab/src/run.rs") {
        if !code.iter().any(|line| words(line).any(|word| word == "Design")) {
            continue;
        }
        assert!(HOLD_DESIGNS.contains(&&*path), "{path}");
        for line in &code {
            let asked = line.split("design.").skip(1).filter_map(|rest| words(rest).next());
            for what in asked {
                assert!(["name", "clone"].contains(&what), "{path}: {line}");
            }
        }
    }
}

/// Only `design` and `policy` can read the rules of a design.
#[test]
fn rules_are_private() {
    for (file, holder) in [
        ("crates/shared/design/src/lib.rs", "pub struct Design {"),
        ("crates/shared/policy/src/lib.rs", "pub struct Policy {"),
    ] {
        let text = fs::read_to_string(workspace().join(file)).expect("a source");
        let (_, fields) = text.split_once(holder).expect(holder);
        let (fields, _) = fields.split_once("\n}").expect("its end");
        assert!(fields.contains("\n    rules: Rules,"), "{file}: {fields}");
        assert!(!text.contains("-> &Rules") && !text.contains("-> Rules"), "{file}");
    }
}

/// Except for tables of a paper, which name systems as the paper does.
#[test]
fn no_executor_names_a_preset() {
    // Preset names that are also words of the kernel are allowed.
    let names = design::designs::list().iter().map(|preset| preset.name);
    let presets: Vec<String> = names
        .filter(|name| !["base", "hugetlb"].contains(name))
        .map(|name| format!("\"{name}\""))
        .collect();
    for (path, code) in executors().filter(|(path, _)| path != "crates/lab/lab/src/tables/atc20.rs")
    {
        for line in &code {
            let named = presets.iter().find(|name| line.contains(name.as_str()));
            assert_eq!(named, None, "{path}: {line}");
        }
    }
}

/// Rules are passed on (`Effort`), and never read. Models of many threads ask the policy which locks and counters a
/// fault takes (`Policy::fault_path`).
#[test]
fn no_executor_looks_at_a_rule() {
    for (path, code) in executors() {
        let allowed: &[&str] = match path.starts_with("crates/lab/fault-scaling/src/") {
            true => &["Locking", "ResidentCount"],
            false => &["Effort"],
        };
        for line in &code {
            assert!(!line.contains("Effort::"), "{path}: {line}");
            for named in line.split("rules::").skip(1) {
                let named = named.split(';').next().unwrap_or_default();
                let types = words(named).filter(|word| word.starts_with(char::is_uppercase));
                let names: Vec<&str> = types.take_while(|name| *name != "Self").collect();
                let first = names.first().copied().unwrap_or("all");
                let good = match named.starts_with('{') {
                    true => names.iter().all(|name| allowed.contains(name)),
                    false => allowed.contains(&first),
                };
                assert!(good, "{path}: {line}");
            }
        }
    }
}
