//! `docs/works.md`: figures that the five works published, the commands that reproduce them, and the output. Each
//! command is run here or in the nightly set, and its output must contain the figures of the page.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use std::sync::Mutex;

use testkit::skipped;

use crate::common::{NO_LAB, has_lab};

const PAGE: &str = include_str!("../../../../../docs/works.md");

/// Environment variable: also run commands that take minutes or need a machine of their own.
const ALL: &str = "SUPERPAGE_WORKS_ALL";

/// A row of a table on the page.
struct Row<'a> {
    line: usize,
    item: &'a str,
    command: &'a str,
    /// When the command is run: empty for every change, or `nightly`, `live` or `by hand: REASON`.
    when: &'a str,
    ours: &'a str,
    agreement: &'a str,
}

fn rows() -> Vec<Row<'static>> {
    let mut rows = Vec::new();
    for (line, text) in PAGE.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        let Some(cells) = text.strip_prefix("| ").and_then(|text| text.strip_suffix(" |")) else {
            continue;
        };
        let cells: Vec<&str> = cells.split(" | ").map(str::trim).collect();
        if cells[0] == "published thing" {
            continue;
        }
        let [item, command, _, ours, fitted, agreement] = cells[..] else {
            panic!("docs/works.md:{line}: {} cells, expected 6", cells.len())
        };
        assert!(cells.iter().all(|cell| !cell.is_empty()), "docs/works.md:{line}: an empty cell");
        assert!(
            ["no", "yes", "some", "-"].contains(&fitted),
            "docs/works.md:{line}: fitted: {fitted}"
        );
        let (command, when) = match command.split('`').collect::<Vec<_>>()[..] {
            ["", command, when] => {
                (command, when.trim().trim_start_matches('(').trim_end_matches(')'))
            }
            _ => panic!("docs/works.md:{line}: expected `COMMAND` or `COMMAND` (when)"),
        };
        let known = ["", "nightly", "live"].contains(&when) || when.starts_with("by hand: ");
        assert!(known, "docs/works.md:{line}: when: {when}");
        rows.push(Row { line, item, command, when, ours, agreement });
    }
    rows
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a command line of the page in an empty directory, as a shell does, with the commands of this build.
fn run(line: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_superpage")).parent().unwrap();
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(&directory).env("PATH", path).env("NO_COLOR", "1");
    // Without these variables `superpage lab` does not build the laboratory first, with other features than this
    // build's.
    shell.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    shell.env("XDG_DATA_HOME", directory.path()).output().expect("there is a shell")
}

/// Returns the output of each command line. Two run at a time, because some use only one CPU.
fn run_all<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Output> {
    let left = Mutex::new(lines.collect::<BTreeSet<_>>());
    let outputs = Mutex::new(BTreeMap::new());
    let next = || left.lock().unwrap().pop_last();
    let work = || {
        while let Some(line) = next() {
            let output = run(line);
            outputs.lock().unwrap().insert(line, output);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    outputs.into_inner().unwrap()
}

/// Returns what is wrong with a row.
fn wrong(row: &Row<'_>, output: &Output) -> Option<String> {
    let said = words(&String::from_utf8_lossy(&output.stdout));
    let place = format!("docs/works.md:{}: {}: `{}`", row.line, row.item, row.command);
    let expected = if row.agreement.starts_with("differs") { 1 } else { 0 };
    let code = output.status.code();
    if code != Some(0) && code != Some(expected) {
        let error = String::from_utf8_lossy(&output.stderr);
        return Some(format!("{place}: {}: {error}", output.status));
    }
    // Figures of the machine itself differ between machines.
    let missing = quoted(row.ours).find(|text| row.when != "live" && !said.contains(&words(text)));
    missing.map(|text| format!("{place}: `{text}` is not in its output: {said}"))
}

#[test]
fn every_row_is_complete_and_its_command_prints_what_the_page_says() {
    if !has_lab() {
        skipped!("{NO_LAB}");
        return;
    }
    let all = std::env::var_os(ALL).is_some();
    let rows = rows();
    assert!(rows.len() > 20, "{} rows", rows.len());
    // With every change a third of the commands is run.
    let share = if all || testkit::is_nightly() { 1 } else { 3 };
    let is_run = |row: &&Row<'_>| {
        let is_drawn = row.when.is_empty() && row.line.is_multiple_of(share);
        is_drawn || all && !row.when.starts_with("by hand")
    };
    let left = rows.iter().filter(|row| !is_run(row)).count();
    if left > 0 {
        skipped!(
            "{left} of {} commands of docs/works.md: {ALL}=1 runs those marked nightly and live",
            rows.len()
        );
    }
    let outputs = run_all(rows.iter().filter(is_run).map(|row| row.command));
    let wrong = |row: &Row<'_>| wrong(row, &outputs[row.command]);
    let wrong: Vec<String> = rows.iter().filter(is_run).filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
