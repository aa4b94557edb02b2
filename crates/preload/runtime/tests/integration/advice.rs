//! `advisor` decides about superpages. Code that gives the kernel advice about them, populates or discards memory, or
//! maps pages of the pool is on a list, with the reason. New code of this kind fails this test until it is added to the
//! list.
//!
//! Pure tier: reads the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Calls and constants that make superpages, or take memory away from them.
const WORDS: [&str; 17] = [
    "MADV_HUGEPAGE",
    "MADV_NOHUGEPAGE",
    "MADV_COLLAPSE",
    "MADV_POPULATE_READ",
    "MADV_POPULATE_WRITE",
    "MADV_DONTNEED",
    "MADV_FREE",
    "MADV_REMOVE",
    "MAP_HUGETLB",
    "MFD_HUGETLB",
    "SHM_HUGETLB",
    "SYS_madvise",
    "SYS_process_madvise",
    "raw::madvise(",
    "raw::populate(",
    "advice::",
    "hugetlb_flags(",
];

/// Each file with the words that it may contain, and why that code need not ask the advisor.
#[rustfmt::skip]
const MAY: [(&str, &[&str], &str); 25] = [
    ("raw.rs", &["SYS_madvise", "MADV_POPULATE_READ", "MADV_POPULATE_WRITE"], "the calls themselves"),
    ("executor/advice.rs", &["MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MADV_COLLAPSE", "raw::madvise("], "the calls themselves"),
    ("executor/mod.rs", &["advice::"], "performs Advise"),
    ("contiguity/mod.rs", &["advice::", "raw::populate("], "performs Advise and Unadvise"),
    ("contiguity/granted.rs", &["advice::"], "performs Join"),
    ("contiguity/probe.rs", &["advice::", "raw::populate("], "performs Probe"),
    ("contiguity/tables.rs", &["advice::", "raw::madvise(", "MADV_POPULATE_READ", "MADV_DONTNEED"],
        "page tables, before Advise is performed"),
    ("segments/relocate.rs", &["advice::", "raw::madvise(", "MADV_DONTNEED"],
        "performs Advise, Collapse and Copy; clean pages of a file that were copied"),
    ("prepare/ahead.rs", &["raw::populate("], "performs Populate"),
    ("prepare/stock.rs", &["raw::madvise(", "MADV_DONTNEED", "MADV_FREE"], "performs Keep and HandOut"),
    ("contiguity/untouched.rs", &["raw::madvise(", "MADV_DONTNEED"], "performs Release"),
    ("prepare/handed_out.rs", &["raw::madvise(", "MADV_DONTNEED"], "performs Release"),
    ("heap/arenas.rs", &["raw::madvise(", "MADV_DONTNEED"], "a page of malloc's, free, before it is asked about"),
    ("heap/packed.rs", &["raw::madvise(", "MADV_DONTNEED"],
        "asks whether untouched memory is locked; splits superpages of which most was freed (MADV_COLD)"),
    ("mapping/small.rs", &["raw::madvise(", "MADV_DONTNEED"], "asks whether untouched memory is locked"),
    ("mapping/parts.rs",
        &["raw::madvise(", "MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MADV_COLLAPSE", "MADV_POPULATE_READ", "MADV_POPULATE_WRITE",
            "MADV_DONTNEED", "MADV_FREE"],
        "the program's own calls"),
    ("mapping/others.rs", &["SYS_process_madvise", "MADV_DONTNEED"], "the program's own calls"),
    ("mapping/direct.rs", &["SYS_madvise", "SYS_process_madvise"], "the program's own calls"),
    ("mapping/demote.rs", &["raw::madvise("], "what the program advised, of a copy too"),
    ("mapping/file.rs", &["advice::"], "performs Advise, Collapse and Copy; MAP_POPULATE of the program"),
    ("mapping/mod.rs", &["raw::populate(", "MAP_HUGETLB"], "MAP_POPULATE of the program; its own pages of the pool"),
    ("mapping/shared.rs", &["raw::populate(", "raw::madvise(", "SHM_HUGETLB", "MAP_HUGETLB", "hugetlb_flags("],
        "MAP_POPULATE of the program; segments of the pool, as the settings say; asks what a segment is (MADV_COLD)"),
    ("in_place.rs", &["raw::madvise(", "MADV_REMOVE", "advice::"],
        "files of superpages, as the settings say; what the program discards or unmaps"),
    ("source.rs", &["MAP_HUGETLB", "hugetlb_flags(", "raw::populate(", "advice::"],
        "the pool, as the settings say; what it must hold to be safe; a copy, where Copy is performed"),
    ("api", &["raw::madvise(", "raw::populate(", "MFD_HUGETLB", "SHM_HUGETLB", "hugetlb_flags("], "what the program asks of the pool"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// Returns the listed words that a source's code contains, ignoring comments and imports.
fn words(text: &str) -> Vec<&'static str> {
    let code = text.lines().map(str::trim_start);
    let code = code.filter(|line| !line.starts_with("//") && !line.starts_with("use "));
    let code: Vec<&str> = code.collect();
    let has = |word: &&&str| code.iter().any(|line| is_in(line, word));
    WORDS.iter().filter(has).copied().collect()
}

/// Returns whether a line contains a word that is not part of a longer one.
fn is_in(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let goes_on = word.ends_with(is_part) && line[at + word.len()..].starts_with(is_part);
        !line[..at].ends_with(is_part) && !goes_on
    })
}

#[test]
fn nobody_else_advises_populates_or_discards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    assert!(paths.len() > 60, "{}", paths.len());
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a source");
        let name = path.strip_prefix(&root).expect("below").to_str().expect("UTF-8").to_owned();
        let place =
            MAY.iter().find(|(place, ..)| name == *place || name.starts_with(&format!("{place}/")));
        for word in words(&text) {
            let (place, may, _) = place.unwrap_or_else(|| {
                panic!("{name} has {word}: let `advisor` decide (docs/decisions/live.md#5)")
            });
            assert!(
                may.contains(&word),
                "{name} has {word}: let `advisor` decide (docs/decisions/live.md#5)"
            );
            found.entry(place).or_default().push(word);
        }
    }
    for (place, may, why) in MAY {
        let has = found.get(place).map_or(&[][..], Vec::as_slice);
        let gone: Vec<_> = may.iter().filter(|word| !has.contains(word)).collect();
        assert!(gone.is_empty(), "{place} ({why}) has no {gone:?} any more");
    }
}
