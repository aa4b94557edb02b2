//! What the five works published, beside what commands print. `docs/works.toml` has the published figures, the commands
//! and where their output has ours; `docs/works.json` has ours, as recorded; `docs/works.md` is made of both.
//! `scripts/works` records again and writes the page; the tests here compare numbers: recorded with published, within
//! the error that the row states, and printed with recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Output};
use std::sync::Mutex;

use report::format::{digits, trimmed};
use report::sig3::percent;
use serde::Deserialize;
use serde_json::Value;
use testkit::skipped;

use crate::common::{NO_LAB, has_lab};

/// Environment variable: also run commands that take minutes or need a machine of their own.
const ALL: &str = "SUPERPAGE_WORKS_ALL";
/// Environment variable: record the figures of the commands that contain this text, and write the page. Empty: of all
/// commands; `page`: of none.
const RECORD: &str = "SUPERPAGE_WORKS_RECORD";

/// Largest relative difference of a printed and a recorded figure. Simulations are exact; the last digit of a printed
/// number is not.
const SAME: f64 = 1e-3;
/// Error from which on a row says why.
const TO_EXPLAIN: f64 = 0.1;

fn path(extension: &str) -> String {
    format!("{}/../../../docs/works.{extension}", env!("CARGO_MANIFEST_DIR"))
}

fn read(extension: &str) -> String {
    fs::read_to_string(path(extension))
        .unwrap_or_else(|error| panic!("{}: {error}", path(extension)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    work: Vec<Work>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    title: String,
    #[serde(default)]
    figure: Vec<Figure>,
    #[serde(default)]
    table: Vec<Table>,
    #[serde(default)]
    procedure: Vec<Procedure>,
}

/// When a command is run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum When {
    /// With every change.
    #[default]
    Change,
    Nightly,
    /// In the nightly set; the output is this machine's and not compared.
    Live,
    ByHand,
}

/// One published figure.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Figure {
    what: String,
    unit: String,
    /// Absent: the work has no figure.
    published: Option<f64>,
    command: String,
    #[serde(default)]
    when: When,
    /// Where the output has ours: a JSON pointer, or the text before the number.
    at: String,
    /// A second place; the figure is the quotient of the two.
    per: Option<String>,
    /// Factor from the output's unit to `unit`.
    #[serde(default = "one")]
    times: f64,
    /// Whether a parameter of the model was set by the figure.
    #[serde(default)]
    fitted: bool,
    /// Largest error, as a ratio.
    within: Option<f64>,
    #[serde(default)]
    note: String,
}

/// A whole table that a command of the laboratory simulates again, with its published cells.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    /// Of `superpage lab table`, or a machine of `superpage lab faults --table`.
    name: String,
    #[serde(default)]
    by: By,
    source: String,
    #[serde(default)]
    when: When,
    /// Largest error of held-out cells and of checks, as a ratio.
    within: f64,
    #[serde(default)]
    note: String,
}

/// The command that simulates a table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    #[default]
    Table,
    Faults,
}

/// What has no figure to compare: a procedure that runs here, or needs what this repository cannot bring.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Procedure {
    what: String,
    command: String,
    when: When,
    note: String,
}

fn one() -> f64 {
    1.0
}

fn data() -> Data {
    toml_keys::deserialize("docs/works.toml", &read("toml"))
        .unwrap_or_else(|error| panic!("{error}"))
}

impl Table {
    /// The command, without the switch for JSON.
    fn command(&self) -> String {
        match self.by {
            By::Faults => format!("superpage lab faults --table -m {}", self.name),
            By::Table => format!("superpage lab table {} -q", self.name),
        }
    }

    /// Returns the figures of the table that are compared, by name.
    fn figures(&self, document: &Value) -> Vec<(&'static str, f64)> {
        let figures = match self.by {
            By::Faults => of_faults(document),
            By::Table => of_table(document),
        };
        let known = |(name, value): (&'static str, Option<f64>)| Some((name, value?));
        figures.into_iter().filter_map(known).collect()
    }
}

/// Names of a table's figures, in the order of the page's columns.
const CELLS: &str = "cells";
const FITTED: &str = "fitted cells";
const HELD_OUT: &str = "held-out cells off by";
const CHECKS: &str = "checks off by";
const PAIRS: &str = "pairs";
const RIGHT: &str = "pairs in order";
const SPREAD: &str = "spread published";
const OUR_SPREAD: &str = "spread simulated";
const WORST: &str = "worst published";
const OUR_WORST: &str = "worst simulated";

fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value.pointer(at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(value: &Value, at: &str) -> Option<f64> {
    value.pointer(at).and_then(Value::as_f64)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    (!logarithms.is_empty())
        .then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

/// A published and a simulated figure, and the role of the cell.
type Cell<'a> = (f64, f64, &'a str);

/// Returns the published and the simulated figure of the cell, not fitted, that is off by most.
fn worst<'a>(cells: &[Cell<'a>]) -> (Option<f64>, Option<f64>) {
    let off = |cell: &&Cell<'a>| (cell.1 / cell.0).ln().abs();
    let free = cells.iter().filter(|cell| matches!(cell.2, "held-out" | "check"));
    let worst = free.max_by(|a, b| off(a).total_cmp(&off(b)));
    (worst.map(|cell| cell.0), worst.map(|cell| cell.1))
}

fn counts(cells: &[Cell<'_>]) -> [(&'static str, Option<f64>); 4] {
    let fitted = cells.iter().filter(|cell| cell.2 == "fitted").count();
    let cells_but_bases = cells.iter().filter(|cell| cell.2 != "base").count();
    let (published, simulated) = worst(cells);
    [
        (CELLS, Some(cells_but_bases as f64)),
        (FITTED, Some(fitted as f64)),
        (WORST, published),
        (OUR_WORST, simulated),
    ]
}

fn of_table(document: &Value) -> Vec<(&'static str, Option<f64>)> {
    let cell = |cell: &'_ Value| -> Option<(f64, f64, String)> {
        let role = cell["role"].as_str()?.to_string();
        Some((
            cell["published"].as_f64().filter(|it| *it > 0.0)?,
            cell["simulated"].as_f64()?,
            role,
        ))
    };
    let cells: Vec<_> = list(document, "/rows")
        .iter()
        .flat_map(|row| list(row, "/cells"))
        .filter_map(cell)
        .collect();
    let cells: Vec<Cell<'_>> = cells.iter().map(|(a, b, role)| (*a, *b, role.as_str())).collect();
    let length = |at: &str| list(document, at).len() as f64;
    let pairs = number(document, "/agreement/pairs").unwrap_or(0.0)
        + number(document, "/agreement/checks/pairs").unwrap_or(0.0);
    let not_shown = ["wrong", "flat", "checks/wrong", "checks/flat"];
    let not_shown: f64 = not_shown.iter().map(|at| length(&format!("/agreement/{at}"))).sum();
    let spread = |of: &str| {
        mean(list(document, "/agreement/spreads").iter().filter_map(|row| row[of].as_f64()))
    };
    let mut figures = counts(&cells).to_vec();
    figures.extend([
        (HELD_OUT, number(document, "/agreement/held_out_error")),
        (CHECKS, number(document, "/agreement/checks/typical_error")),
        (PAIRS, (pairs > 0.0).then_some(pairs)),
        (RIGHT, (pairs > 0.0).then_some(pairs - not_shown)),
        (SPREAD, spread("published")),
        (OUR_SPREAD, spread("simulated")),
    ]);
    figures
}

/// As [`of_table`], of wall-clock rates. A row is a curve: one set of patches and one size.
fn of_faults(document: &Value) -> Vec<(&'static str, Option<f64>)> {
    let line = |line: &'_ Value| -> Option<(String, f64, f64, String)> {
        let published = &line["published"];
        let curve =
            format!("{} {} {}", published["patches"], published["bytes"], published["repetitions"]);
        let role = line["role"].as_str()?.to_string();
        let rate = |of: &Value| of["pages_per_wall_second"].as_f64();
        Some((curve, rate(published)?, rate(&line["row"])?, role))
    };
    let lines: Vec<_> = list(document, "/lines").iter().filter_map(line).collect();
    let cells: Vec<Cell<'_>> =
        lines.iter().map(|(_, a, b, role)| (*a, *b, role.as_str())).collect();
    let curves: BTreeSet<&str> = lines.iter().map(|line| line.0.as_str()).collect();
    let spread = |of: fn(&(String, f64, f64, String)) -> f64| {
        let of_curve = |curve: &&str| {
            let rates: Vec<f64> = lines.iter().filter(|line| line.0 == **curve).map(of).collect();
            let most = rates.iter().copied().fold(0.0, f64::max);
            (rates.len() > 1).then(|| most / rates.iter().copied().fold(f64::MAX, f64::min))
        };
        mean(curves.iter().filter_map(of_curve))
    };
    let mut figures = counts(&cells).to_vec();
    figures.extend([
        (HELD_OUT, number(document, "/held_out_error")),
        (CHECKS, number(document, "/check_error")),
        (PAIRS, number(document, "/check_order/pairs")),
        (RIGHT, number(document, "/check_order/right")),
        (SPREAD, spread(|line| line.1)),
        (OUR_SPREAD, spread(|line| line.2)),
    ]);
    figures
}

impl Figure {
    /// Returns our figure in the output of the command.
    fn ours(&self, printed: &str) -> Option<f64> {
        let at = |at: &str| {
            if at.starts_with('/') {
                return number(&serde_json::from_str(printed).ok()?, at);
            }
            // The first number behind the text, whatever the white space.
            let printed = words(printed);
            let (_, rest) = printed.split_once(&words(at))?;
            let is_part = |letter: char| letter.is_ascii_digit() || letter == '.';
            let rest = rest.trim_start_matches(|letter: char| !letter.is_ascii_digit());
            rest.split(|letter| !is_part(letter)).next()?.trim_end_matches('.').parse().ok()
        };
        let per = self.per.as_deref().map_or(Some(1.0), at)?;
        Some(at(&self.at)? / per * self.times)
    }

    fn error(&self, ours: f64) -> Option<f64> {
        self.published.map(|published| ours / published - 1.0)
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Recorded figures: of a command, by name.
type Recorded = BTreeMap<String, BTreeMap<String, f64>>;

fn recorded() -> Recorded {
    serde_json::from_str(&read("json")).expect("docs/works.json is what scripts/works wrote")
}

/// A command line of the data, what it is compared with, and when it runs.
struct Run<'a> {
    command: String,
    when: When,
    of: Of<'a>,
}

enum Of<'a> {
    Figure(&'a Figure),
    Table(&'a Table),
    Procedure,
}

fn runs(data: &Data) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    for work in &data.work {
        let mut add = |command: String, when, of| runs.push(Run { command, when, of });
        for figure in &work.figure {
            add(figure.command.clone(), figure.when, Of::Figure(figure));
        }
        for table in &work.table {
            add(table.command(), table.when, Of::Table(table));
        }
        for procedure in &work.procedure {
            add(procedure.command.clone(), procedure.when, Of::Procedure);
        }
    }
    runs
}

impl Run<'_> {
    fn line(&self) -> String {
        match self.of {
            Of::Table(_) => format!("{} --json", self.command),
            _ => self.command.clone(),
        }
    }

    /// Returns the figures in the output.
    fn figures(&self, output: &Output) -> Result<BTreeMap<String, f64>, String> {
        let printed = String::from_utf8_lossy(&output.stdout);
        let named = |figures: Vec<(&str, f64)>| {
            figures.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
        };
        let read = match self.of {
            Of::Figure(figure) => {
                figure.ours(&printed).map(|ours| named(vec![(&figure.what, ours)]))
            }
            Of::Table(table) => {
                serde_json::from_str(&printed).ok().map(|document| named(table.figures(&document)))
            }
            Of::Procedure => Some(BTreeMap::new()),
        };
        // A table exits with 1 if it is not in the published order.
        let is_fine = match output.status.code() {
            Some(0) => true,
            Some(1) => matches!(self.of, Of::Table(_)),
            _ => false,
        };
        read.filter(|_| is_fine).ok_or_else(|| {
            let error = String::from_utf8_lossy(&output.stderr);
            format!("{}: {}: its figure is not in\n{printed}{error}", self.line(), output.status)
        })
    }
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
fn run_all(lines: BTreeSet<String>) -> BTreeMap<String, Output> {
    let left = Mutex::new(lines);
    let outputs = Mutex::new(BTreeMap::new());
    let next = || left.lock().unwrap().pop_last();
    let work = || {
        while let Some(line) = next() {
            let output = run(&line);
            outputs.lock().unwrap().insert(line, output);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    outputs.into_inner().unwrap()
}

/// Formats a figure with four significant digits, with separators from 10,000 on.
fn shown(value: f64) -> String {
    if value != 0.0 && value.abs() < 10_000.0 {
        return trimmed(&digits(value, 4)).to_string();
    }
    let whole = format!("{value:.0}");
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap()).collect();
    groups.join(",")
}

fn command_cell(command: &str, when: When) -> String {
    let when = match when {
        When::Change => "",
        When::Nightly => " (nightly)",
        When::Live => " (live)",
        When::ByHand => " (by hand)",
    };
    format!("`{}`{when}", command.replace('|', "\\|"))
}

fn signed(error: f64) -> String {
    let text = percent(error);
    if error > 0.0 && !text.starts_with('<') { format!("+{text}") } else { text }
}

const HEAD: &str = "# The five works, figure by figure

Made by `scripts/works` of [works.toml](works.toml) (published figures, commands) and works.json (what the commands gave). Tests (`cargo test
-p superpage --test integration works`) compare ours with the published figure, within the error that works.toml states, and what a command
prints with what is recorded.

(nightly): `scripts/nightly --part works` runs it. (live): it measures this machine; nothing is compared. (by hand): it needs what this
repository cannot bring. Fitted: the figure set a parameter of the model, so its agreement proves nothing. A table's errors are the geometric
mean of the factors by which cells are off, less one; checks are cells that came after all parameters. A pair of cells counts if the work
separates it by more than 5 %, and is in order if ours are so too, at least half as far apart. Spread: the highest over the lowest cell of a
row (of a curve, for faults). Worst: the cell, not fitted, that is off by most.
";

fn page(data: &Data, recorded: &Recorded) -> String {
    let mut text = HEAD.to_string();
    let recorded = |command: &str, name: &str| recorded.get(command)?.get(name).copied();
    for (index, work) in data.work.iter().enumerate() {
        let _ = write!(text, "\n## {}. {}\n", index + 1, work.title);
        if !work.table.is_empty() {
            text += "\n| table | command | cells, fitted | held out | checks | pairs in order | spread published, ours | worst published, ours | |\n\
                     |---|---|---|---|---|---|---|---|---|\n";
        }
        for table in &work.table {
            let command = table.command();
            let figure = |name| recorded(&command, name);
            let both = |one, other| match (figure(one), figure(other)) {
                (Some(one), Some(other)) => format!("{}, {}", shown(one), shown(other)),
                _ => "-".to_string(),
            };
            let error = |name| figure(name).map_or("-".to_string(), percent);
            let pairs = match (figure(RIGHT), figure(PAIRS)) {
                (Some(right), Some(pairs)) => format!("{} of {}", shown(right), shown(pairs)),
                _ => "-".to_string(),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {pairs} | {} | {} | {} |",
                table.source,
                command_cell(&command, table.when),
                if figure(CELLS).is_some() {
                    both(CELLS, FITTED)
                } else {
                    "not recorded".to_string()
                },
                error(HELD_OUT),
                error(CHECKS),
                both(SPREAD, OUR_SPREAD),
                both(WORST, OUR_WORST),
                table.note,
            );
        }
        if !work.figure.is_empty() {
            text += "\n| published thing | command | published | ours | off by | |\n|---|---|---|---|---|---|\n";
        }
        for figure in &work.figure {
            let ours = recorded(&figure.command, &figure.what);
            let published = figure
                .published
                .map_or("-".to_string(), |it| format!("{} {}", shown(it), figure.unit));
            let error = ours.and_then(|ours| figure.error(ours)).map_or("-".to_string(), signed);
            let _ = writeln!(
                text,
                "| {} | {} | {published} | {} {} | {error} | {} |",
                figure.what,
                command_cell(&figure.command, figure.when),
                ours.map_or("unknown".to_string(), shown),
                figure.unit,
                [if figure.fitted { "fitted" } else { "" }, &figure.note].join(" ").trim(),
            );
        }
        if !work.procedure.is_empty() {
            text += "\n| procedure | command | |\n|---|---|---|\n";
        }
        for procedure in &work.procedure {
            let command = command_cell(&procedure.command, procedure.when);
            let _ = writeln!(text, "| {} | {command} | {} |", procedure.what, procedure.note);
        }
    }
    text
}

/// Runs the commands that contain `part`, records their figures, and writes the page.
fn record(data: &Data, part: &str) {
    let is_run = |run: &&Run<'_>| {
        let is_compared = matches!(run.when, When::Change | When::Nightly);
        is_compared && part != "page" && run.command.contains(part)
    };
    let runs = runs(data);
    let outputs = run_all(runs.iter().filter(is_run).map(Run::line).collect());
    let mut all = recorded();
    all.retain(|command, _| runs.iter().any(|run| run.command == *command));
    for run in runs.iter().filter(is_run) {
        let figures = run.figures(&outputs[&run.line()]).unwrap_or_else(|wrong| panic!("{wrong}"));
        let of_command = all.entry(run.command.clone()).or_default();
        if matches!(run.of, Of::Table(_)) {
            of_command.clear();
        }
        of_command.extend(figures);
    }
    let write =
        |extension, text: String| fs::write(path(extension), text).expect("docs is writable");
    write("json", serde_json::to_string_pretty(&all).expect("numbers") + "\n");
    write("md", page(data, &all));
}

#[test]
fn the_page_is_made_of_the_data() {
    let data = data();
    if let Ok(part) = std::env::var(RECORD) {
        return record(&data, &part);
    }
    let (made, is) = (page(&data, &recorded()), read("md"));
    let differs = made.lines().zip(is.lines()).find(|(made, is)| made != is);
    assert_eq!(differs, None, "write it again: scripts/works --page");
    assert_eq!(made.len(), is.len());
}

/// Ours are within the stated errors; an error of 10 % and more is explained.
#[test]
fn what_is_recorded_is_within_the_stated_errors() {
    let (data, all) = (data(), recorded());
    let recorded =
        |command: &str, name: &str| -> Option<f64> { all.get(command)?.get(name).copied() };
    let mut wrong = Vec::new();
    let mut check = |what: &str, error: f64, within: f64, note: &str| {
        if error.abs() > within {
            wrong.push(format!("{what}: off by {}, {} stated", percent(error), percent(within)));
        }
        if error.abs() > TO_EXPLAIN && note.is_empty() {
            wrong.push(format!("{what}: off by {} without a note", percent(error)));
        }
    };
    for figure in data.work.iter().flat_map(|work| &work.figure) {
        if matches!(figure.when, When::Live | When::ByHand) {
            continue;
        }
        let ours = recorded(&figure.command, &figure.what);
        let ours = ours.unwrap_or_else(|| panic!("{}: run scripts/works", figure.what));
        assert_eq!(figure.published.is_some(), figure.within.is_some(), "{}", figure.what);
        if let (Some(error), Some(within)) = (figure.error(ours), figure.within) {
            check(&figure.what, error, within, &figure.note);
        }
    }
    for table in data.work.iter().flat_map(|work| &work.table) {
        let command = table.command();
        if table.when == When::Nightly && recorded(&command, CELLS).is_none() {
            // The nightly set fails on it.
            skipped!("{command}: not recorded; scripts/works");
            continue;
        }
        assert!(recorded(&command, CELLS) > Some(0.0), "{command}: run scripts/works");
        for name in [HELD_OUT, CHECKS] {
            if let Some(error) = recorded(&command, name) {
                check(&format!("{command}: {name}"), error, table.within, &table.note);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_give_what_is_recorded() {
    if !has_lab() {
        skipped!("{NO_LAB}");
        return;
    }
    let all = std::env::var_os(ALL).is_some();
    let data = data();
    let runs = runs(&data);
    assert!(runs.len() > 20, "{} rows", runs.len());
    // With every change a third of the commands is run.
    let share = if all || testkit::is_nightly() { 1 } else { 3 };
    let is_run = |index: usize, run: &Run<'_>| match run.when {
        When::Change => index.is_multiple_of(share),
        When::Nightly | When::Live => all,
        When::ByHand => false,
    };
    let chosen: Vec<&Run<'_>> = runs
        .iter()
        .enumerate()
        .filter(|(index, run)| is_run(*index, run))
        .map(|(_, run)| run)
        .collect();
    let left = runs.len() - chosen.len();
    if left > 0 {
        skipped!(
            "{left} of {} commands of docs/works.md: {ALL}=1 runs those marked nightly and live",
            runs.len()
        );
    }
    let outputs = run_all(chosen.iter().map(|run| run.line()).collect());
    let recorded = recorded();
    let mut wrong = Vec::new();
    for run in chosen {
        let figures = match run.figures(&outputs[&run.line()]) {
            Ok(figures) => figures,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        // Figures of the machine itself differ between machines.
        if run.when == When::Live {
            continue;
        }
        for (name, ours) in figures {
            let was = recorded.get(&run.command).and_then(|figures| figures.get(&name)).copied();
            if !was.is_some_and(|was| (ours - was).abs() <= SAME * was.abs()) {
                wrong.push(format!(
                    "{}: {name}: {ours} printed, {was:?} recorded; scripts/works",
                    run.command
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The figure is the number behind the text, or at the pointer; a text alone is none.
#[test]
fn a_figure_is_a_number_of_the_output() {
    let figure = |at: &str, per: Option<&str>| Figure {
        what: String::new(),
        unit: String::new(),
        published: Some(2.0),
        command: String::new(),
        when: When::Change,
        at: at.to_string(),
        per: per.map(String::from),
        times: 10.0,
        fitted: false,
        within: Some(0.1),
        note: String::new(),
    };
    assert_eq!(figure("takes  a", None).ours("it takes a\n fault: 12.5. And 3"), Some(125.0));
    assert_eq!(figure("takes", None).ours("it takes"), None);
    assert_eq!(figure("/a/0", Some("/b")).ours("{\"a\": [3], \"b\": 4}"), Some(7.5));
    assert_eq!(figure("/a/1", None).ours("{\"a\": [3], \"b\": 4}"), None);
    assert_eq!(figure("/a", None).error(2.5), Some(0.25));
    assert_eq!(
        [0.0, 1.064, 36.5, 262_325.0, 2783.1461].map(shown),
        ["0", "1.064", "36.5", "262,325", "2783"]
    );
}
