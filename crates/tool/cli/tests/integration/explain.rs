//! `superpage run --explain`: for each rule of a design, what was done, how, and by which process.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::common::{has_thp, stderr, stdout, superpage};
use crate::in_force::bench;

/// Returns the document of a run that printed `ok`, and the rest of its standard error.
fn explained(mut command: Command) -> (Value, String) {
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ok\n"), "{said}");
    let line = said.lines().last().expect("a document");
    (serde_json::from_str(line).expect(line), said)
}

/// Returns the rows of a rule.
fn rows<'a>(document: &'a Value, rule: &str) -> Vec<&'a Value> {
    let rows = document["explain"].as_array().expect("rows");
    rows.iter().filter(|row| row["rule"] == rule).collect()
}

#[test]
fn superpages_that_are_made_beside_the_program_have_their_means_and_delays() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let design = "quicksilver-sync-64";
    let program = bench.program();
    let words = ["run", "--json", "--explain", "--design", design, "--", &program, "8", "64", "8"];
    let (document, said) = explained(superpage(&words));
    let made = rows(&document, "mapping.when")[0];
    testkit::require!(document["design"]["failed"] == serde_json::json!({}), "{made}");
    for (key, expected) in [
        ("asked", Value::from(8)),
        ("done", 8.into()),
        ("bytes", (16 << 20).into()),
        ("refused", 0.into()),
        ("means", "MADV_COLLAPSE".into()),
        ("by", "privileged launcher".into()),
        ("when", "later".into()),
    ] {
        assert_eq!(made[key], expected, "{key}: {made}");
    }
    let [median, p99] = ["median_ms", "p99_ms"].map(|key| made[key].as_f64().unwrap());
    assert!(0.0 < median && median <= p99, "{made}");
    // The program reserved memory, but none is kept for reservations; and the daemon of the other rule does not exist
    // here.
    for (rule, asked) in [("allocation.form", Value::from(8)), ("deallocation.when", Value::Null)] {
        let row = rows(&document, rule)[0];
        assert_eq!((&row["asked"], &row["done"]), (&asked, &0.into()), "{row}");
        assert_eq!((&row["by"], &row["median_ms"]), (&"none".into(), &Value::Null), "{row}");
        assert!(said.contains(row["why"].as_str().unwrap()), "a note of it was printed: {row}");
    }
    let kernels = rows(&document, "memory.reclaim")[0];
    assert_eq!((&kernels["by"], &kernels["done"]), (&"kernel".into(), &Value::Null), "{kernels}");

    let plain = ["run", "--json", "--design", design, "--", &program, "8", "64", "8"];
    assert!(explained(superpage(&plain)).0.get("explain").is_none());
}

#[test]
fn who_may_not_make_superpages_learns_what_was_asked_for() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let program = bench.program();
    let words =
        ["run", "--json", "--explain", "--design", "freebsd", "--", &program, "8", "512", "0"];
    let mut command = superpage(&words);
    // SAFETY: one system call, between fork and exec.
    unsafe { command.pre_exec(crate::in_force::drop_sys_nice) };
    let (document, _) = explained(command);
    let row = rows(&document, "mapping.when")[0];
    let counts = [&row["asked"], &row["done"], &row["refused"]];
    assert_eq!(counts, [&Value::from(8), &0.into(), &8.into()], "{row}");
    assert!(row["failures"]["not permitted (EPERM)"].as_u64() >= Some(8), "{row}");
    assert_eq!((&row["by"], &row["when"]), (&"none".into(), &Value::Null), "{row}");
    assert!(row["why"].as_str().unwrap().contains("CAP_SYS_NICE"), "{row}");
}

/// The library acts during the call; the rows have the numbers from its counters.
#[test]
fn what_the_library_and_the_kernel_do_are_rows_of_their_own() {
    let Some(bench) = bench() else { return };
    testkit::require!(has_thp(), "no transparent superpages");
    testkit::lock_machine!(shared);
    let program = bench.program();
    for design in ["prezeroed-pool", "linux-6"] {
        let words =
            ["run", "--json", "--explain", "--design", design, "--", &program, "8", "512", "0"];
        let (document, said) = explained(superpage(&words));
        let library = &document["library"];
        testkit::require!(library["processes"] == 1, "the library was not in it: {library}");
        let given = rows(&document, "allocation.form");
        let asked = given.iter().find(|row| row["means"] == "madvise by the library").unwrap();
        assert_eq!(asked["bytes"], library["kinds"]["mmap"]["advised_bytes"], "{design}: {asked}");
        assert!(asked["asked"].as_u64() >= Some(8), "{design}: {asked}");
        assert_eq!(
            (&asked["by"], &asked["when"]),
            (&"allocating thread".into(), &"in the call".into())
        );
        let fault = given.iter().find(|row| row["by"] == "kernel").unwrap();
        // The machine's counter gives only an upper bound.
        assert_eq!(fault["done"].is_null(), fault["done_at_most"].as_u64() > Some(0), "{fault}");
        let scan = rows(&document, "mapping.scan")[0];
        assert_eq!(
            (&scan["means"], &scan["by"]),
            (&"khugepaged".into(), &"kernel".into()),
            "{scan}"
        );
        let prezero = rows(&document, "preparation.prezero");
        assert_eq!(prezero.len(), usize::from(design == "prezeroed-pool"), "{design}");
        for row in prezero {
            assert_eq!(row["bytes"], library["prepared"]["handed_out_bytes"], "{row}");
            let note = "not applied: [preparation.prezero]: ";
            let noted = said.lines().find_map(|line| line.split_once(note)).expect("a note").1;
            assert!(row["why"].as_str().unwrap().starts_with(noted), "{noted}: {row}");
        }
    }
}

#[test]
fn the_table_follows_the_report() {
    testkit::require!(has_thp(), "no transparent superpages");
    let output =
        superpage(&["run", "--explain", "--pages", "base", "--", "true"]).output().unwrap();
    let said = stderr(&output);
    let table: Vec<&str> = said.lines().skip_while(|line| !line.starts_with(" rule")).collect();
    assert!(table[1].contains("--pages base") && table[1].contains("nothing  "), "{said}");
    let planned = superpage(&["run", "--explain", "--dry-run", "--", "true"]).output().unwrap();
    assert_eq!(planned.status.code(), Some(2), "{}", stderr(&planned));
}
