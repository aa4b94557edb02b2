//! Every call that opens a file for writing is in the table of docs/decisions/security.md#6, which says whose file it
//! may be.

use std::collections::BTreeSet;

use super::quantities::sources;

/// Code that creates or opens a file or directory for writing.
const OPENINGS: [&str; 10] = [
    "File::create(",
    "create_new(",
    "fs::write(",
    "create_dir",
    "DirBuilder::new",
    "write(true)",
    "append(true)",
    "create(true)",
    "SYS_mkdirat",
    "libc::O_CREAT",
];

#[test]
fn every_file_that_is_opened_for_writing_is_in_the_table() {
    let root = super::root();
    let (mut opening, mut all) = (BTreeSet::new(), String::new());
    sources(&root.join("crates"), &mut |path, text| {
        let path = path.strip_prefix(&root).expect("below the root").display().to_string();
        let is_product = !["/tests", "/benches/", "/examples/", "/build.rs", "crates/testkit/"]
            .iter()
            .any(|part| path.contains(part));
        if is_product && opens(text) {
            opening.insert(path);
        }
        all += text;
    });
    let decisions = std::fs::read_to_string(root.join("docs/decisions/security.md")).unwrap();
    let table = decisions.split("\n## 6.").nth(1).expect("the decision");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    let named: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .filter(|word| word.starts_with("crates/") && word.ends_with(".rs"))
        .map(str::to_string)
        .collect();
    let missing: Vec<_> = opening.difference(&named).collect();
    let unneeded: Vec<_> = named.difference(&opening).collect();
    assert!(
        missing.is_empty() && unneeded.is_empty(),
        "no row: {missing:?}; no opening: {unneeded:?}"
    );
    let tests = rows.iter().filter_map(|row| row.trim_end_matches(" |").strip_suffix('`'));
    let tests: Vec<_> = tests.filter_map(|row| row.rsplit('`').next()).collect();
    assert!(tests.len() > 15, "{tests:?}");
    for test in tests {
        assert!(all.contains(&format!("fn {test}(")), "there is no test {test}");
    }
}

#[test]
fn openings_are_found_outside_tests() {
    assert!(opens("fn a() { File::options().append(true).open(path) }"));
    assert!(!opens(
        "fn a() { File::open(path) }\n#[cfg(test)]\nmod tests { fn b() { fs::write(a, b) } }"
    ));
    assert!(!opens("// fs::write(a, b)\nfn a() {}"));
}

fn opens(text: &str) -> bool {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| OPENINGS.iter().any(|opening| line.contains(opening)))
}
