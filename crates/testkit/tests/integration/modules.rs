//! The modules and functions that docs/architecture.md names by a path (`heap::packed`) exist.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

#[test]
fn paths_on_the_architecture_page_exist() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let sources = sources(&root().join("crates"));
    let code = page.split('`').skip(1).step_by(2);
    let paths: Vec<&str> = code.filter(|code| is_path(code)).collect();
    assert!(paths.len() > 20, "{paths:?}");
    let missing: Vec<&&str> = paths.iter().filter(|path| !exists(path, &sources)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!exists("heap::no_such_module", &sources));
}

/// `a::b`, nothing else.
fn is_path(code: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    code.contains("::") && code.split("::").all(is_name)
}

/// Whether a file is the module of the last name, or the module of the name before it defines the last name.
fn exists(path: &str, sources: &[(PathBuf, String)]) -> bool {
    let names: Vec<&str> = path.split("::").collect();
    let [.., before, last] = names[..] else { return false };
    sources.iter().any(|(file, text)| {
        let file = file.to_string_lossy().replace('-', "_").replace("/mod.rs", ".rs");
        let is_module = file.ends_with(&format!("/{before}/{last}.rs"))
            || file.ends_with(&format!("/{before}/src/{last}.rs"));
        let is_of_before = file.ends_with(&format!("/{before}.rs"))
            || file.contains(&format!("/{before}/"))
            || text.contains(&format!("enum {before} {{"))
            || text.contains(&format!("impl {before} {{"));
        let kinds = ["fn", "struct", "enum", "mod", "type", "const", "trait"];
        let defines = || {
            let declared = kinds.iter().any(|kind| text.contains(&format!("{kind} {last}")));
            declared || text.contains(&format!("    {last}"))
        };
        is_module || is_of_before && defines()
    })
}

fn sources(below: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}
