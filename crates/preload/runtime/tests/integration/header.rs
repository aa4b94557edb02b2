//! `include/superpage.h` declares exactly what the library exports. Pure tier.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};

fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("our own path");
    let deps = exe.parent().expect("a directory");
    let places = [deps.join("libsuperpage.so"), deps.join("../libsuperpage.so")];
    places.into_iter().find(|path| path.is_file()).expect("libsuperpage.so is built with its tests")
}

fn header() -> String {
    text("../../../include/superpage.h")
}

/// Reads a file of the repository, by its path relative to this package.
fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every function name in a declaration: a name of the library before a parenthesis.
fn declared(header: &str) -> BTreeSet<String> {
    let lines = header.lines().filter(|line| !line.trim_start().starts_with(['*', '/', '#']));
    let name = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let word = before.rsplit([' ', '*']).next()?;
        (word.starts_with("superpage_") && line.ends_with(");")).then(|| word.to_string())
    };
    lines.filter_map(name).collect()
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let bytes = std::fs::read(library()).expect("readable");
    let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
    let exported: BTreeSet<String> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok().map(String::from))
        .filter(|name| name.starts_with("superpage_"))
        .collect();
    assert_eq!(declared(&header()), exported);
    assert!(exported.len() >= 20, "{exported:?}");
}

#[test]
fn every_old_name_in_the_header_stands_for_a_declared_function() {
    let header = header();
    let declared = declared(&header);
    let mut old_names = 0;
    for line in header.lines().filter_map(|line| line.strip_prefix("#define ")) {
        let mut words = line.split_whitespace();
        let (Some(old), Some(new)) = (words.next(), words.next()) else { continue };
        if new.starts_with("superpage_") {
            assert_eq!(new, format!("superpage_{old}"));
            assert!(declared.contains(new), "{new}");
            old_names += 1;
        }
    }
    assert_eq!(old_names, 12);
}

#[test]
fn every_function_has_a_manual_page() {
    let pages = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/man"));
    let pages: String = pages
        .expect("manual pages")
        .map(|page| std::fs::read_to_string(page.expect("an entry").path()).expect("readable"))
        .collect();
    // Functions for libhugetlbfs.so.0 only.
    let internal = ["hugetlbfs_start", "hugetlbfs_shmget", "hugetlbfs_forget_default_size"];
    let internal = internal.into_iter().chain(["legacy_elfmap"]);
    let internal: Vec<String> = internal.map(|name| format!("superpage_{name}")).collect();
    for name in declared(&header()).iter().filter(|name| !internal.contains(name)) {
        assert!(pages.contains(&format!(".Fn {name} ")), "{name} has no synopsis");
    }
}

#[test]
fn every_variable_that_is_read_is_in_the_manual() {
    let manual = text("../../../docs/man/superpage.7");
    let mut read = 0;
    for source in
        ["../abi/src/environment.rs", "src/settings.rs", "src/api/environment.rs"].map(text)
    {
        for name in source.split('"') {
            let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            if is_name && (name.starts_with("HUGETLB_") || name.starts_with("SUPERPAGE_")) {
                assert!(manual.contains(&format!(".It Ev {name}\n")), "{name}");
                read += 1;
            }
        }
    }
    assert!(read >= 20, "{read}");
}
