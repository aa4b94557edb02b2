//! `superpage run --design --executor`: superpages made in place, and reservations on the pool.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{refused, run, send, stderr, stdout, superpage};
use crate::in_force::{Bench, bench};

const IN_PLACE: [&str; 2] = ["--executor", "in-place"];

/// Returns the test bench; `None`, counted as skipped, if superpages cannot be made in place.
fn in_place() -> Option<Bench> {
    let bench = bench()?;
    if let Err(why) = sys::mount::superpage_files() {
        testkit::skipped!("there can be no files of superpages: {why}");
        return None;
    }
    if !sys::prctl::has_only_advised() {
        testkit::skipped!("the kernel cannot be kept from making superpages itself (Linux 6.18)");
        return None;
    }
    Some(bench)
}

fn with_design<'a>(design: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["--design", design], flags].concat()
}

/// Returns whether all memory of the program was in superpage files.
fn lay_in_files(document: &Value) -> bool {
    let reasons = &document["library"]["reasons"];
    reasons["fragmented"].is_null() && reasons["limit"].is_null()
}

#[test]
#[ignore = "nightly: a design in force, and files of free superpages"]
fn superpages_are_made_in_place_at_the_designs_thresholds() {
    let Some(bench) = in_place() else { return };
    testkit::lock_machine!(shared);
    for (design, least) in
        [("quicksilver-sync-64", 64), ("quicksilver-async-64", 64), ("freebsd", 512)]
    {
        let flags = with_design(design, &IN_PLACE);
        let below = bench.run_with(&flags, &["8", &(least - 1).to_string(), "0", "own"]);
        testkit::require!(lay_in_files(&below), "free memory was fragmented: {below}");
        let below = &below["design"];
        assert_eq!((&below["made"], &below["unmade"]), (&0.into(), &0.into()), "{design}: {below}");
        assert_eq!(
            (&below["touched"], &below["fullest"]),
            (&8.into(), &(least - 1).into()),
            "{below}"
        );
        let at = bench.run_with(&flags, &["8", &least.to_string(), "8"]);
        testkit::require!(lay_in_files(&at), "free memory was fragmented: {at}");
        let at = &at["design"];
        assert_eq!((&at["made"], &at["in_place"]), (&8.into(), &8.into()), "{design}: {at}");
        assert_eq!((&at["copied_pages"], &at["filled_pages"]), (&0.into(), &0.into()), "{at}");
        assert_eq!((&at["failed"], &at["by_others"]), (&json!({}), &0.into()), "{at}");
    }
}

/// `in_place.c` tests calls on memory, forks during a busy thread, and malloc.
#[test]
#[ignore = "nightly: live designs"]
fn memory_in_files_behaves_as_private_memory() {
    let Some(bench) = in_place() else { return };
    testkit::lock_machine!(shared);
    let program = bench.build("in_place.c", &["-pthread"]);
    for design in ["quicksilver-sync-1", "quicksilver-sync-64", "freebsd"] {
        let flags =
            [&["run", "--json"], &with_design(design, &IN_PLACE)[..], &["--", &program]].concat();
        let output = run(&flags);
        let said = stderr(&output);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("ok\n", Some(0)), "{said}");
        let document: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        testkit::require!(lay_in_files(&document), "free memory was fragmented: {document}");
        assert!(document["design"]["in_place"].as_u64() > Some(0), "{design}: {document}");
    }
}

/// Programs of the harmless tests print the same on base pages and in superpage files.
#[test]
fn private_memory_stays_private_in_files() {
    let Some(bench) = in_place() else { return };
    testkit::lock_machine!(shared);
    for (program, case) in [
        ("limits", "address_space_and_fork"),
        ("limits", "address_space_past_libc_and_fork"),
        ("limits", "data_and_fork"),
        ("limits", "data_counts_what_is_mapped"),
        ("remap", "map_again"),
        ("advice", "memory_policy"),
        ("protect", "guards_while_others_fork"),
        ("protect", "raw_protection_and_fork"),
        ("transfers", "registered_buffer"),
        ("sandbox", "filter_and_fork"),
    ] {
        let source = format!("../../../../preload/runtime/tests/programs/harmless/{program}.c");
        let program = bench.build(&source, &["-pthread"]);
        let native = std::process::Command::new(&program).arg(case).output().unwrap();
        let design = with_design("quicksilver-sync-64", &IN_PLACE);
        let backed = run(&[&["run", "-q"], &design[..], &["--", &program, case]].concat());
        let both = [&native, &backed].map(|it| (stdout(it), it.status.code()));
        assert_eq!(both[0], both[1], "{program} {case}: {}", stderr(&backed));
    }
}

/// The kernel maps the pages, so the program never waits for a launcher that is stopped or gone.
#[test]
fn a_launcher_that_is_stopped_or_killed_stops_no_program() {
    let Some(bench) = in_place() else { return };
    testkit::lock_machine!(shared);
    let program = bench.program();
    for signal in [libc::SIGSTOP, libc::SIGKILL] {
        let design = with_design("quicksilver-sync-64", &IN_PLACE);
        let words = [&["run", "-q"], &design[..], &["--", &program, "8", "512", "0"]].concat();
        let mut launcher = superpage(&words).stdout(Stdio::piped()).spawn().unwrap();
        bench.await_program(&launcher);
        send(&launcher, signal);
        let (mut line, printed) = (String::new(), launcher.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut std::io::BufReader::new(printed), &mut line).unwrap();
        assert_eq!(line, "ok\n");
        send(&launcher, libc::SIGCONT);
        assert_eq!(launcher.wait().unwrap().success(), signal == libc::SIGSTOP);
    }
}

/// If a limit counts private but not shared memory, or limits files, the memory stays ordinary, and superpages are made
/// by copying.
#[test]
#[ignore = "nightly: live designs"]
fn under_limits_on_memory_it_stays_ordinary() {
    let Some(bench) = in_place() else { return };
    testkit::lock_machine!(shared);
    let program = bench.program();
    for limit in ["ulimit -d 2000000", "ulimit -f 1"] {
        let script = format!("{limit}; exec \"$@\"");
        let design = with_design("quicksilver-sync-64", &IN_PLACE);
        let words = [
            &["run", "--json"],
            &design[..],
            &["--", "sh", "-c", &script, "sh", &program, "8", "64", "0"],
        ];
        let output = run(&words.concat());
        let said = stderr(&output);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("ok\n", Some(0)), "{said}");
        let document: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(document["design"]["in_place"], 0, "{limit}: {document}");
        assert!(document["library"]["reasons"]["limit"].as_u64() > Some(0), "{limit}: {document}");
    }
}

#[test]
fn what_an_executor_cannot_do_is_refused_in_a_line() {
    for (words, part) in [
        (&["--design", "ingens", "--executor", "in-place"][..], "it reserves no superpages"),
        (&["--design", "linux-6-always", "--executor", "pool"], "the kernel makes its superpages"),
        (&["--design", "freebsd", "--executor", "copy"], "expected collapse, in-place or pool"),
    ] {
        let words = [&["run"], words, &["--", "true"]].concat();
        refused(&run(&words), 2, part);
    }
    let arm = ["compare", "--arm", "x: executor=in-place", "--dry-run", "--", "true"];
    refused(&run(&arm), 2, "name one");
}

mod exclusive {
    use super::*;

    #[test]
    fn reservations_can_be_pages_of_the_pool() {
        let Some(bench) = bench() else { return };
        testkit::require!(testkit::is_root(), "needs root");
        testkit::lock_machine!();
        let before = crate::common::overcommit();
        let flags = with_design("freebsd", &["--executor", "pool", "--explain"]);
        let document = bench.run_with(&flags, &["8", "1", "8"]);
        let got = document["library"]["kinds"]["mmap"]["hugetlb_bytes"].as_u64();
        assert_eq!(crate::common::overcommit(), before);
        testkit::require!(
            document["library"]["reasons"] == json!({}),
            "the pool was short: {document}"
        );
        assert!(got >= Some(8 << 21), "{document}");
        let said = document["explain"].to_string();
        assert!(
            said.contains("page of the hugetlb pool") && said.contains("no base pages on the pool"),
            "{said}"
        );
    }
}
