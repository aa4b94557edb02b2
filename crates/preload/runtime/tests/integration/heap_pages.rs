//! Which pages glibc's heap gets, and that the library changes nothing else about it.

use crate::common::{self, NEEDS_FREE, NEEDS_POOL, Pool, has_free_superpages};
use std::process::Command;

use crate::programs::{build, has, has_thp, number, run, under};

fn program() -> &'static std::path::Path {
    static BUILT: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    BUILT.get_or_init(|| build("heap.c", "heap-pages", "cc", &["-O1", "-pthread"]))
}

/// Returns what the program prints under the library.
fn backed(pages: &str, fallback: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program());
    command.args(arguments).envs(under(pages, "heap", fallback)).env_remove("GLIBC_TUNABLES");
    run(command)
}

fn natively(arguments: &[&str]) -> String {
    let mut command = Command::new(program());
    command.args(arguments).env_remove("GLIBC_TUNABLES");
    run(command)
}

#[test]
fn a_large_heap_of_small_objects_gets_superpages() {
    testkit::lock_machine!(shared);
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    testkit::require!(has_free_superpages(350), "{NEEDS_FREE}");
    // Calls of mlockall that do not lock later mappings change nothing.
    for arguments in [["small", "300"], ["threads", "75"], ["locked", "300"]] {
        // The first 4 MiB (32 MiB in arenas of threads) are left to khugepaged. Single superpages are lost, more if
        // others use the machine's free ones at that moment.
        let runs: Vec<_> = (0..3).map(|_| backed("thp", "base", &arguments)).collect();
        let got = runs.iter().map(|text| number(text, "huge")).max().expect("three runs");
        assert!(got >= 180, "{arguments:?}: {runs:?}");
    }
}

#[test]
fn a_small_heap_takes_little_more() {
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    for (size, has_none) in [("2", true), ("20", false)] {
        let (base, thp) = (natively(&["small", size]), backed("thp", "base", &["small", size]));
        assert!(number(&thp, "huge") == 0 || !has_none, "{thp}");
        // Allow for the unused part of a superpage, and for the library's file.
        assert!(number(&thp, "rss") <= number(&base, "rss") + 3, "{base}{thp}");
    }
}

/// Natively each of these objects has a separate mapping, which is unmapped when freed. Each must have one here, too,
/// if an arena was grown ahead.
#[test]
fn large_objects_are_not_cut_from_what_an_arena_has_ahead() {
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    for size in ["4", "50"] {
        let (base, thp) = (natively(&["mixed", size]), backed("thp", "base", &["mixed", size]));
        let left = |text: &str| number(text.split_once("end").expect("a line of it").1, "rss");
        assert!(left(&thp) <= left(&base) * 21 / 20 + 4, "{base}{thp}");
    }
}

#[test]
fn a_heap_that_is_hardly_touched_stays_on_base_pages() {
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    for size in ["12", "150"] {
        let (base, thp) = (natively(&["sparse", size]), backed("thp", "base", &["sparse", size]));
        assert!(number(&thp, "rss") <= number(&base, "rss") + 1, "{base}{thp}");
    }
}

#[test]
fn a_heap_of_64_mib_has_superpages() {
    testkit::lock_machine!(shared);
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    testkit::require!(has_free_superpages(100), "{NEEDS_FREE}");
    let runs: Vec<_> = (0..3).map(|_| backed("thp", "base", &["small", "64"])).collect();
    let got = runs.iter().map(|text| number(text, "huge")).max().expect("three runs");
    assert!(got >= 34, "{runs:?}");
}

#[test]
fn realloc_to_nothing_frees_whatever_the_heap_holds() {
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    for size in ["1", "60"] {
        let (base, thp) = (natively(&["nothing", size]), backed("thp", "base", &["nothing", size]));
        assert_eq!(number(&thp, "mapped"), number(&base, "mapped"), "{base}{thp}");
    }
}

mod exclusive {
    use super::*;

    #[test]
    fn the_pool_holds_small_objects_and_large_ones() {
        testkit::require!(has("cc"), "needs a C compiler");
        let Some(pool) = Pool::of(400) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        for arguments in [["small", "200"], ["threads", "50"], ["grow", "120"], ["aligned", "20"]] {
            let text = backed("hugetlb:2097152", "base", &arguments);
            let least = if arguments[0] == "aligned" { 0 } else { 50 };
            assert!(number(&text, "pool") >= least, "{arguments:?}: {text}");
            assert!(pool.is_empty(), "{arguments:?}");
        }
        // An arena is grown ahead by some MiB, so for objects of about that size a part is outside. The first 16 MiB of
        // objects have separate mappings.
        for (kib, least) in [("200", 130), ("512", 130), ("1024", 130), ("4096", 130), ("7000", 80)]
        {
            let text = backed("hugetlb:2097152", "base", &["pieces", "160", kib]);
            assert!(number(&text, "pool") >= least, "{kib}: {text}");
            assert!(pool.is_empty(), "{kib}");
        }
        // With too few pages, all available pages are used, and the rest is ordinary memory.
        testkit::require!(pool.allow(20), "{NEEDS_POOL}");
        for arguments in [["small", "100"], ["grow", "100"], ["aligned", "20"]] {
            let text = backed("hugetlb:2097152", "base", &arguments);
            assert!(number(&text, "pool") <= 40, "{arguments:?}: {text}");
            assert!(pool.is_empty(), "{arguments:?}");
        }
    }

    #[test]
    fn an_object_grows_on_the_pool_where_it_is() {
        testkit::require!(has("cc"), "needs a C compiler");
        let Some(pool) = Pool::of(400) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let text = backed("hugetlb:2097152", "base", &["grow", "120"]);
        assert_eq!(number(&text, "moved"), 0, "{text}");
        // The requested size is touched, with the header, and a sixteenth more is reserved.
        let reserved = 120 * 17 / 16 + 4;
        for (what, most) in [("pool", 122), ("usable", reserved), ("mapped", reserved)] {
            assert!((120..=most).contains(&number(&text, what)), "{text}");
        }
        let shrunk = text.split_once("shrunk").expect("a line of it").1;
        assert!(number(shrunk, "pool") <= 60 * 9 / 8 + 4, "{text}");
        assert_eq!(number(&text, "left"), 0, "{text}");
        assert!(pool.is_empty());

        let text = backed("hugetlb:2097152", "base", &["grow", "120", "beside"]);
        assert_eq!((number(&text, "moved"), number(&text, "left")), (1, 0), "{text}");
        testkit::require!(pool.allow(20), "{NEEDS_POOL}");
        let text = backed("hugetlb:2097152", "base", &["grow", "120"]);
        assert_eq!((number(&text, "moved"), number(&text, "left")), (0, 0), "{text}");
        assert!(pool.is_empty());
    }
}

#[test]
fn a_growing_object_is_not_copied() {
    testkit::lock_machine!(shared);
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    testkit::require!(has_free_superpages(250), "{NEEDS_FREE}");
    let text = backed("thp", "base", &["grow", "200"]);
    assert!(number(&text, "huge") >= 150, "{text}");
    assert!(number(&text, "rss") <= 210, "{text}");
    backed("thp", "base", &["aligned", "20"]);
}

/// glibc adjusts its thresholds while a program runs, but no longer once one of them was set.
#[test]
fn objects_get_mappings_of_their_own_where_they_would_have() {
    testkit::require!(has("cc"), "needs a C compiler");
    for what in ["thresholds", "chosen"] {
        assert_eq!(backed("thp", "base", &[what]), natively(&[what]), "{what}");
    }
    // A threshold from the environment counts as set, too.
    let chosen = ("MALLOC_MMAP_THRESHOLD_", "2000000");
    let text = |variables: &[(&'static str, String)]| {
        let mut command = Command::new(program());
        command.arg("thresholds").envs(variables.iter().map(|(name, value)| (name, value)));
        run({
            command.env(chosen.0, chosen.1);
            command
        })
    };
    assert_eq!(text(&under("thp", "heap", "base")), text(&[]));
}

#[test]
fn an_allocators_own_answers_to_realloc_stay() {
    testkit::require!(has("cc"), "needs a C compiler");
    let flags = ["-O1", "-shared", "-fPIC", "-fno-builtin"];
    let allocator = build("allocator.c", "liballocator-reallocs.so", "cc", &flags);
    let program = build("reallocs.c", "reallocs", "cc", &["-O1", "-fno-builtin"]);
    let library = common::library().display().to_string();
    let allocator = allocator.display().to_string();
    let under_preload = |preload: String| {
        let mut command = Command::new(&program);
        command.envs(under("thp", "heap", "base")).env("LD_PRELOAD", preload);
        run(command)
    };
    for preload in [format!("{library}:{allocator}"), format!("{allocator}:{library}")] {
        assert_eq!(under_preload(preload.clone()).trim(), "7 7 1 0", "{preload}");
    }
    assert_eq!(under_preload(library).trim(), "7 7 0 0", "glibc's");
}

#[test]
fn an_allocator_of_the_programs_own_keeps_its_heap() {
    testkit::require!(has("cc"), "needs a C compiler");
    let flags = ["-O1", "-shared", "-fPIC", "-fno-builtin"];
    let allocator = build("allocator.c", "liballocator.so", "cc", &flags);
    let report = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-allocator.json");
    let _ = std::fs::remove_file(&report);
    let mut command = Command::new(program());
    command.args(["small", "20"]).envs(under("thp", "heap", "base"));
    let preload = format!("{}:{}", common::library().display(), allocator.display());
    command.env("LD_PRELOAD", preload);
    command.env("SUPERPAGE_REPORT", format!("json:{}", report.display()));
    run(command);
    let text = std::fs::read_to_string(&report).expect("a report");
    assert!(text.contains("\"own-allocator\":1"), "{text}");
}
