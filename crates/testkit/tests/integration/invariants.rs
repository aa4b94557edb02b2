//! Checks that each invariant of docs/architecture.md names an existing test; two invariants are tested here.

use super::quantities::sources;

/// Code by which a decision would depend on more than its arguments.
const IMPURE: [&str; 13] = [
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "std::time",
    "libc::",
    "Mutex",
    "OnceLock",
    "static mut",
    "sync::atomic",
    "thread_local",
];
/// Crates with unsafe code, and the number of files with some (`None`: any number).
const UNSAFE: [(&str, Option<usize>); 3] = [
    ("crates/shared/sys", None),
    ("crates/preload/runtime", None),
    ("crates/shared/workload", Some(5)),
];

#[test]
fn each_invariant_names_a_test_that_exists() {
    let root = super::root();
    let mut all = String::new();
    sources(&root.join("crates"), &mut |_, text| all += text);
    let page = std::fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let section = page.split("\n## Invariants\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let items: Vec<&str> = section.split("\n- ").skip(1).collect();
    assert!((5..=12).contains(&items.len()), "{items:?}");
    for item in items {
        let names = item.split('`').skip(1).step_by(2);
        let tests = names.filter(|name| all.contains(&format!("fn {name}("))).count();
        assert!(tests > 0, "no test that exists: {item}");
    }
}

#[test]
fn a_policy_decides_from_its_arguments() {
    let found = impure(&super::root().join("crates/shared/policy/src"));
    assert!(found.is_empty(), "{found:?}");
    // Checks the search itself: this crate does I/O.
    assert!(!impure(&super::root().join("crates/shared/host/src")).is_empty());
}

fn impure(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    sources(folder, &mut |path, text| {
        let used = IMPURE.iter().filter(|word| text.contains(**word));
        found.extend(used.map(|word| format!("{}: {word}", path.display())));
    });
    found
}

#[test]
fn unsafe_code_is_where_it_is_said_to_be() {
    let root = super::root();
    let mut with_unsafe = Vec::new();
    sources(&root.join("crates"), &mut |path, text| {
        let path = path.strip_prefix(&root).expect("below the root").display().to_string();
        let has_some = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
            .iter()
            .any(|word| text.contains(word));
        if path.contains("/src/") && has_some {
            with_unsafe.push(path);
        }
    });
    for (home, files) in UNSAFE {
        let is_in = |path: &&String| path.starts_with(&format!("{home}/"));
        let count = with_unsafe.iter().filter(is_in).count();
        assert!(files.map_or(count > 0, |files| files == count), "{home}: {count} files");
    }
    let is_home = |path: &String| UNSAFE.iter().any(|(home, _)| path.starts_with(home));
    with_unsafe.retain(|path| !is_home(path));
    assert!(with_unsafe.is_empty(), "{with_unsafe:?}");
}
