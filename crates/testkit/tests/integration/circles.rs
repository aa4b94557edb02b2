//! Modules of a crate have no import cycles that span several folders, so a reader of a lower folder needs none of the
//! upper ones.
//!
//! The test reads the sources' `use` lines and paths (`crate::`, `super::`, `self::`, a child's name). A module with a
//! folder (`x/mod.rs`, or `x.rs` beside `x/`) belongs to that folder. The root of a crate, which only re-exports names,
//! and test modules are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module, as its path in the crate.
type Module = Vec<String>;
/// Modules that each module uses.
type Uses = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn modules_of_different_folders_use_each_other_in_no_circle() {
    let root = super::root().join("crates");
    let mut sources = Vec::new();
    find_crates(&root, &mut sources);
    assert!(sources.len() > 15, "only {} crates were found", sources.len());
    let mut found = Vec::new();
    for source in sources {
        let texts = read(&source);
        for circle in circles(&texts) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            found.push(format!("{}: {}", source.display(), names.join(" ")));
        }
    }
    assert!(found.is_empty(), "{} circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn circles_are_found() {
    let of = |files: &[(&str, bool, &str)]| {
        let texts = files.iter().map(|&(path, is_folder, text)| {
            (path.split("::").map(String::from).collect(), (is_folder, text.to_string()))
        });
        circles(&texts.collect()).len()
    };
    let a = ("a", true, "mod x; use crate::b::y::Thing;");
    assert_eq!(of(&[a, ("b", true, ""), ("b::y", false, "use crate::a::Other;")]), 1);
    assert_eq!(of(&[a, ("b", true, ""), ("b::y", false, "// use crate::a::Other;")]), 0);
    assert_eq!(of(&[a, ("b", true, ""), ("b::y", false, "fn f() { super::super::a::f() }")]), 1);
    assert_eq!(of(&[a, ("b", true, ""), ("b::y", false, "use crate::{c::{self, D}, a::E};")]), 1);
    // Two files of one folder may use each other.
    let y = ("b::y", false, "use super::z::Z;");
    assert_eq!(of(&[("b", true, ""), y, ("b::z", false, "use super::y::Y;")]), 0);
    // A re-export of a lower module's name does not count as a use.
    assert_eq!(of(&[("a", true, "pub use x::X;"), ("a::x", true, "use super::Y;")]), 0);
    assert_eq!(of(&[("a", true, "fn f() { x::f() }"), ("a::x", true, "use super::Y;")]), 1);
}

fn find_crates(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path())
    {
        if entry.join("Cargo.toml").is_file() && entry.join("src").is_dir() {
            sources.push(entry.join("src"));
        }
        if entry.is_dir() && !entry.ends_with("src") && !entry.ends_with("target") {
            find_crates(&entry, sources);
        }
    }
    sources.sort();
}

/// Returns the modules of a crate: whether each is a folder, and its text.
fn read(source: &Path) -> BTreeMap<Module, (bool, String)> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![source.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(source).expect("below").with_extension("");
                let mut module: Module =
                    inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                let is_folder = module.last().is_some_and(|name| name == "mod");
                if is_folder {
                    module.pop();
                }
                let is_root = module == ["lib"] || module == ["main"];
                if is_root || module.iter().any(|name| name == "tests") {
                    continue;
                }
                let is_folder = is_folder || path.with_extension("").is_dir();
                texts.insert(module, (is_folder, fs::read_to_string(&path).expect("a source")));
            }
        }
    }
    texts
}

/// Returns cycles that span several folders.
fn circles(texts: &BTreeMap<Module, (bool, String)>) -> Vec<BTreeSet<Module>> {
    let modules: BTreeSet<&Module> = texts.keys().collect();
    let uses: Uses = texts
        .iter()
        .map(|(module, (_, text))| {
            let targets =
                paths(text).into_iter().filter_map(|path| target(&modules, module, &path));
            (module.clone(), targets.filter(|target| target != module).collect())
        })
        .collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reach(&uses, module))).collect();
    let mut found: Vec<BTreeSet<Module>> = Vec::new();
    for module in uses.keys() {
        let circle: BTreeSet<Module> = reached[module]
            .iter()
            .filter(|other| reached[*other].contains(module))
            .map(|&other| other.clone())
            .collect();
        let folder = |module: &Module| match texts[module].0 {
            true => module.clone(),
            false => module[..module.len() - 1].to_vec(),
        };
        if circle.iter().map(folder).collect::<BTreeSet<_>>().len() > 1 && !found.contains(&circle)
        {
            found.push(circle);
        }
    }
    found
}

/// Returns all modules that a module uses directly or indirectly.
fn reach<'a>(uses: &'a Uses, module: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&Module> = uses[module].iter().collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(&uses[next]);
        }
    }
    reached
}

/// A path in a module's source, and whether it is re-exported.
struct Written {
    parts: Vec<String>,
    is_handed_on: bool,
}

/// Returns the module of this crate to which a path leads, if any.
fn target(modules: &BTreeSet<&Module>, from: &Module, path: &Written) -> Option<Module> {
    let mut parts = path.parts.iter().peekable();
    let mut base = from.clone();
    match path.parts.first()?.as_str() {
        "crate" => {
            parts.next();
            base.clear();
        }
        "self" => drop(parts.next()),
        "super" => {
            while parts.next_if(|part| *part == "super").is_some() {
                base.pop()?;
            }
        }
        child => {
            base.push(child.to_string());
            if path.is_handed_on || !modules.contains(&base) {
                return None;
            }
            base.pop();
        }
    }
    base.extend(parts.cloned());
    while !base.is_empty() && !modules.contains(&base) {
        base.pop();
    }
    (!base.is_empty()).then_some(base)
}

/// Returns the paths in a source, ignoring comments, strings and test modules.
fn paths(text: &str) -> Vec<Written> {
    let text = text.split_once("#[cfg(test)]\nmod ").map_or(text, |(before, _)| before);
    let mut code = String::new();
    for line in text.lines() {
        let line = line.split_once("//").map_or(line, |(before, _)| before);
        code.extend(line.split('"').step_by(2));
        code.push('\n');
    }
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = rest.find("use ") {
        let before = rest[..at].chars().next_back();
        let is_word = before.is_none_or(|c| c.is_whitespace());
        let Some(end) = rest[at..].find(';').filter(|_| is_word) else {
            written_in(&rest[..at + 4], &mut found);
            rest = &rest[at + 4..];
            continue;
        };
        written_in(&rest[..at], &mut found);
        let line = rest[..at].trim_end_matches(' ').rsplit('\n').next().unwrap_or_default();
        let is_handed_on = line.trim_start().starts_with("pub");
        expand(&[], &rest[at + 4..at + end], is_handed_on, &mut found);
        rest = &rest[at + end + 1..];
    }
    written_in(rest, &mut found);
    found
}

/// Expands the tree of a `use` line into paths.
fn expand(prefix: &[String], tree: &str, is_handed_on: bool, found: &mut Vec<Written>) {
    let (mut depth, mut start) = (0, 0);
    let ends = tree.char_indices().filter(|&(_, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let ends: Vec<usize> = ends.map(|(at, _)| at).chain([tree.len()]).collect();
    for end in ends {
        let part = tree[start..end].trim();
        start = (end + 1).min(tree.len());
        let (path, inner) = match part.split_once('{') {
            Some((path, inner)) => (path, inner.strip_suffix('}')),
            None => (part.split_once(" as ").map_or(part, |(path, _)| path), None),
        };
        let mut parts = prefix.to_vec();
        parts.extend(path.split("::").map(|p| p.trim().to_string()).filter(|p| !p.is_empty()));
        match inner {
            Some(inner) => expand(&parts, inner, is_handed_on, found),
            None => found.push(Written { parts, is_handed_on }),
        }
    }
}

/// Finds paths in code: names joined by `::`.
fn written_in(code: &str, found: &mut Vec<Written>) {
    for path in code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
        let parts: Vec<String> = path.split("::").map(String::from).collect();
        if parts.len() > 1 && parts.iter().all(|part| !part.is_empty() && !part.contains(':')) {
            found.push(Written { parts, is_handed_on: false });
        }
    }
}
