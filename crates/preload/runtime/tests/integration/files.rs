//! Large files that unmodified programs map for reading.
//!
//! Kernel tier: needs THP, and large folios in the file system of the tests' files. `programs/files.c` prints the state
//! of its mappings, and the results of all its calls on them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{NEEDS_FREE, has_free_superpages};
use crate::programs::*;

const BYTES: usize = 72 << 20;

fn program() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("files.c", "files", "cc", &["-O1"]))
}

/// Creates a file of numbers below a directory, for each test in another place.
fn file(directory: &Path, name: &str) -> tempfile::TempPath {
    let named = tempfile::Builder::new().prefix(name).tempfile_in(directory).expect("a file");
    let mut word = 1u64;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.to_ne_bytes()
    };
    // Writes small pieces, so that the file is cached in small pages.
    for _ in 0..BYTES >> 14 {
        let piece: Vec<u8> = (0..1 << 11).flat_map(|_| next()).collect();
        named.as_file().write_all(&piece).expect("it is written");
    }
    named.as_file().sync_all().expect("it is written");
    named.into_temp_path()
}

fn on_disk(name: &str) -> tempfile::TempPath {
    file(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
}

/// Runs the program natively, and returns what it prints about the file.
fn native(path: &Path, words: &[&str]) -> String {
    let mut command = Command::new(program());
    command.arg(path).args(words);
    run(command)
}

fn under_library(memory: &str, path: &Path, words: &[&str]) -> (String, Report) {
    let dir = tempfile::tempdir().expect("a directory");
    let report = dir.path().join("report");
    let mut command = Command::new(program());
    command.arg(path).args(words).envs(under("thp", memory, "base"));
    command.env("SUPERPAGE_REPORT", format!("json:{}", report.display()));
    let text = run(command);
    let report = std::fs::read_to_string(report).expect("a report");
    // A forked child prints its report first.
    (text, Report(report.lines().last().expect("a line").to_string()))
}

struct Report(String);

impl Report {
    fn number(&self, from: &str, name: &str) -> u64 {
        let rest = self.0.split_once(from).expect("it is there").1;
        let rest = rest.split_once(&format!("\"{name}\":")).expect("it is there").1;
        let end = rest.find(|c: char| !c.is_ascii_digit()).expect("more follows");
        rest[..end].parse().expect("a number")
    }

    fn files(&self, name: &str) -> u64 {
        self.number("\"files\":", name)
    }

    fn times(&self, reason: &str) -> u64 {
        self.number("\"reasons\":", reason)
    }
}

/// Checks that file memory without superpages is counted, with the reason.
fn is_as_counted(text: &str, report: &Report) {
    let (advised, fell) = (report.files("advised_bytes"), report.files("fell_back_bytes"));
    let small = report.files("small_bytes");
    assert_eq!(number(text, "huge_kib") << 10, advised, "{text}{}", report.0);
    assert_eq!(number(text, "resident_kib") << 10, advised + fell + small, "{text}{}", report.0);
    assert_eq!(report.times("small-file-pages") > 0, fell > 0, "{}", report.0);
}

#[test]
fn a_file_that_is_not_cached_is_read_in_superpages() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let path = on_disk("files-cold");
    for way in [["0", "random", "cold"], ["0", "order", "cold"], ["2097152", "random", "cold"]] {
        for word in ["", "shared", "populate"] {
            let words = [&way[..], &[word]].concat();
            let expected = native(&path, &words);
            let (text, report) = under_library("files", &path, &words);
            for it in ["results", "mappings", "resident_kib"] {
                assert_eq!(number(&text, it), number(&expected, it), "{words:?}: {it}");
            }
            testkit::require!(
                number(&text, "huge_kib") > 0,
                "no large folios on the tests' file system"
            );
            // Others may be using the machine's free superpages at that moment.
            println!(
                "{words:?}: {} of {} KiB, {} without",
                number(&text, "huge_kib"),
                BYTES >> 10,
                number(&expected, "huge_kib")
            );
            assert!(
                report.files("advised_bytes") >= number(&text, "huge_kib") << 10,
                "{}",
                report.0
            );
            assert_eq!(number(&text, "copied_kib"), 0);
        }
    }
}

#[test]
fn what_is_cached_in_small_pages_stays_so_and_is_counted() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let path = on_disk("files-cached");
    let expected = native(&path, &["0", "order"]);
    testkit::require!(
        number(&expected, "huge_kib") < BYTES as u64 >> 10,
        "it is cached in superpages as it is written"
    );
    for word in ["", "shared", "populate"] {
        let (text, report) = under_library("files", &path, &["0", "order", word]);
        assert_eq!(number(&text, "results"), number(&expected, "results"));
        assert!(report.files("fell_back_bytes") > 0, "{}", report.0);
        is_as_counted(&text, &report);
    }
}

#[test]
fn a_private_copy_is_made_only_when_asked() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let path = on_disk("files-copied");
    let expected = native(&path, &["0", "order"]);
    let small = (BYTES as u64 >> 10) - number(&expected, "huge_kib");
    testkit::require!(small > 0, "it is cached in superpages as it is written");
    testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
    // Others may be using the machine's free superpages at that moment.
    let mut runs = (0..3).map(|_| under_library("files=copy", &path, &["0", "order"]));
    let is_copied = |(text, _): &(String, Report)| number(text, "copied_kib") > 0;
    let (text, report) = runs.find(is_copied).expect("a copy in one of three runs");
    assert_eq!(number(&text, "results"), number(&expected, "results"));
    let copied = number(&text, "copied_kib");
    println!("{copied} of {small} KiB copied");
    assert_eq!(report.times("copied"), 1, "{}", report.0);
    let on = copied + number(&text, "huge_kib");
    assert_eq!(report.files("advised_bytes"), on << 10, "{text}{}", report.0);
    // Discarded pages have the file's contents again.
    let expected = native(&path, &["0", "order", "discards"]);
    let mut runs = (0..3).map(|_| under_library("files=copy", &path, &["0", "order", "discards"]));
    let (text, _) = runs.find(is_copied).expect("a copy in one of three runs");
    assert_eq!(number(&text, "results"), number(&expected, "results"));
    // Shared mappings are not copied, because a copy would not show writes of others.
    let (text, report) = under_library("files=copy", &path, &["0", "order", "shared"]);
    assert_eq!((number(&text, "copied_kib"), report.times("copied")), (0, 0));
}

#[test]
fn every_call_has_the_result_that_it_has_without() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    for memory in ["files", "files=copy", "heap,mmap,shm,files"] {
        for words in [
            ["0", "calls", "cold", ""],
            ["0", "calls", "", ""],
            ["0", "calls", "cold", "shared"],
            ["4096", "calls", "populate", "shared"],
        ] {
            // Each run truncates its file.
            let (one, other) = (on_disk("files-one"), on_disk("files-two"));
            // Truncating the file does not affect a copy.
            if memory == "files=copy" && !words.contains(&"cold") {
                continue;
            }
            let expected = number(&native(&one, &words), "results");
            let (text, _) = under_library(memory, &other, &words);
            assert_eq!(number(&text, "results"), expected, "{memory} {words:?}");
        }
    }
}

#[test]
fn smaller_files_and_those_of_a_program_that_may_have_a_filter_are_left_alone() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let path = on_disk("files-left");
    let larger = format!("files={}", BYTES + 1);
    for (memory, word) in [(larger.as_str(), ""), ("files", "sealed")] {
        let (text, report) = under_library(memory, &path, &["0", "order", "cold", word]);
        assert_eq!(report.files("advised_bytes") + report.files("fell_back_bytes"), 0, "{text}");
    }
    let (_, report) = under_library(&format!("files={BYTES}"), &path, &["0", "order"]);
    assert_eq!(report.files("advised_bytes") + report.files("fell_back_bytes"), BYTES as u64);
}

#[test]
fn a_file_on_tmpfs_is_collapsed_where_it_is() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let shmem = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    testkit::require!(!shmem.is_ok_and(|mode| mode.contains("[deny]")), "shmem_enabled is deny");
    let dir = tempfile::Builder::new().prefix("superpage-").tempdir_in("/dev/shm");
    testkit::require!(dir.is_ok(), "no /dev/shm to write to");
    testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
    let path = file(dir.as_ref().expect("it is there").path(), "files");
    let expected = native(&path, &["4096", "random"]);
    let (text, report) = under_library("files", &path, &["4096", "random"]);
    for it in ["results", "mappings", "resident_kib"] {
        assert_eq!(number(&text, it), number(&expected, it), "{it}");
    }
    is_as_counted(&text, &report);
    // The kernel maps files on tmpfs at any address.
    assert!(number(&text, "huge_kib") > 0, "{text}{}", report.0);
}
