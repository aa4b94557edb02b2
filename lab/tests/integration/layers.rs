//! Executors decide nothing: they know no design, no preset and no rule.

use std::fs;
use std::path::{Path, PathBuf};

/// All sources below a directory of the workspace.
fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(below)];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 20, "{below} has {} sources", found.len());
    found
}

/// Code without comments and tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().take_while(|line| !line.contains("#[cfg(test)]\nmod"));
    code.filter(|line| !line.trim_start().starts_with("//"))
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn one_file_knows_designs() {
    for (path, text) in sources("lab/src").into_iter().chain(sources("runtime/src")) {
        if is_test(&path) || path.ends_with("lab/src/load.rs") {
            continue;
        }
        for line in code(&text) {
            assert!(!line.contains("design::"), "{}: {line}", path.display());
        }
    }
}

/// The tables of the paper name systems as it does.
#[test]
fn no_executor_names_a_preset() {
    // Words of the kernel's too.
    let names = design::designs::list().iter().map(|preset| preset.name);
    let presets: Vec<String> = names
        .filter(|name| !["base", "hugetlb"].contains(name))
        .map(|name| format!("\"{name}\""))
        .collect();
    for (path, text) in sources("lab/src/system").into_iter().chain(sources("runtime/src")) {
        if is_test(&path) {
            continue;
        }
        for line in code(&text) {
            let named = presets.iter().find(|name| line.contains(name.as_str()));
            assert_eq!(named, None, "{}: {line}", path.display());
        }
    }
}

/// What a rule says is passed on (`Effort`), and never looked at.
#[test]
fn no_executor_looks_at_a_rule() {
    for (path, text) in sources("lab/src/system").into_iter().chain(sources("runtime/src")) {
        if is_test(&path) {
            continue;
        }
        for line in code(&text) {
            let looks = line.contains("rules::") && !line.contains("rules::Effort")
                || line.contains("Effort::");
            assert!(!looks, "{}: {line}", path.display());
        }
    }
}
