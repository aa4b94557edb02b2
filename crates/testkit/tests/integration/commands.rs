//! Checks commands such as `cargo test -p CRATE --test NAME` in pages: the crate exists, and has that test, example or
//! bench.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;
use crate::sources::files;

#[test]
fn cargo_commands_in_pages_name_what_there_is() {
    let root = root();
    let files = files(&root, &root);
    let packages = packages(&root, &files);
    let (mut count, mut wrong) = (0, Vec::new());
    for page in files.iter().filter(|file| file.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for command in commands(&text) {
            count += 1;
            if let Some(why) = missing(&command, &packages) {
                wrong.push(format!("{}: cargo {}: {why}", page.display(), command.join(" ")));
            }
        }
    }
    assert!(count > 40, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_crate_lacks_is_found() {
    let testkit =
        BTreeMap::from([("superpage-testkit".to_string(), root().join("crates/testkit"))]);
    for (text, wrong) in [
        ("`cargo test -p superpage-testkit --test\nintegration sources`", 0),
        ("`cargo test -p superpage-testkit --test nothing`", 1),
        ("`cargo bench -p superpage-testkit --bench speed`", 1),
        ("$ cargo test -p superpage-nothing     # comment\n", 1),
        ("`cargo test --workspace`, which cargo -p cannot", 0),
    ] {
        let commands = commands(text);
        let found = commands.iter().filter_map(|it| missing(it, &testkit));
        assert_eq!(found.count(), wrong, "{text}");
    }
}

/// Returns the words after `cargo` of commands about one crate, in backticks or in shell sessions.
fn commands(page: &str) -> Vec<Vec<&str>> {
    let sessions = page.lines().filter_map(|line| line.strip_prefix("$ "));
    let all = page.split('`').skip(1).step_by(2).chain(sessions);
    let words =
        all.filter_map(|it| it.strip_prefix("cargo ")).map(|it| it.split_whitespace().collect());
    words.filter(|words: &Vec<&str>| words.contains(&"-p")).collect()
}

/// Returns the first part of a command that does not exist.
fn missing(command: &[&str], packages: &BTreeMap<String, PathBuf>) -> Option<String> {
    let value = |flag| {
        let at = command.iter().position(|word| *word == flag)?;
        command.get(at + 1).copied()
    };
    let name = value("-p")?;
    let Some(folder) = packages.get(name) else { return Some(format!("no crate {name}")) };
    let targets = [("--test", "tests"), ("--example", "examples"), ("--bench", "benches")];
    targets.into_iter().find_map(|(flag, below)| {
        let target = value(flag)?;
        let path = folder.join(below).join(target);
        let is_there = path.with_extension("rs").exists() || path.join("main.rs").exists();
        (!is_there).then(|| format!("{name} has no {flag} {target}"))
    })
}

/// Crates by name, with their folders.
fn packages(root: &Path, files: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    let manifests = files.iter().filter(|file| file.ends_with("Cargo.toml"));
    let package = |file: &PathBuf| {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("name = \""))?;
        Some((name.trim_end_matches('"').to_string(), root.join(file.parent()?)))
    };
    manifests.filter_map(package).collect()
}
