//! Published tables and their reruns.
//!
//! A [`Table`] is a grid of published and simulated [`Cell`]s. [`Table::agreement`] decides whether a paper was
//! reproduced: the order of every pair of cells that the paper separates, and the error of the figures. An [`Entry`]
//! lists the `Runs` that its rows need and makes the table from the reports. [`run`] simulates a run once, even if
//! several tables need it.

mod atc20;
pub mod faults;
mod gorman10;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

use serde::Serialize;
use units::ByteSize;

use crate::run::{self, Design};
use crate::{End, Experiment, Going, LabError, Report, TO_THE_END, side_by_side};

/// The version of a table's layout.
pub const TABLE_SCHEMA: &str = "superpage.lab.table/1";

/// A table that can be rerun.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What it shows.
    pub summary: &'static str,
    /// What was published with the table and is not included.
    pub left_out: &'static str,
    /// The runs that its rows need.
    pub(crate) runs: fn() -> Vec<Runs>,
    /// Makes the table from the reports.
    pub(crate) table: fn(&Self, &Reports<'_>) -> Table,
}

/// The runs of a row: one report per design.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    /// Name of the row, for progress.
    pub name: &'static str,
    pub conditions: Conditions,
    pub designs: &'static [&'static str],
}

/// Conditions of a run. A design under equal conditions gives equal reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conditions {
    /// A preset.
    pub machine: &'static str,
    pub memory: ByteSize,
    pub fragmentation: &'static str,
    pub workload: &'static str,
    pub seed: u64,
}

/// Reports of each of an entry's runs, in the order of the designs.
pub(crate) type Reports<'a> = [Vec<&'a Report>];

/// A published table with its rerun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What was published with the table and is not included.
    pub left_out: String,
    /// Unit of the figures, e.g. `speed-up over base pages`.
    pub figure: String,
    /// Which direction is better.
    pub better: Better,
    /// The columns, mostly designs.
    pub columns: Vec<String>,
    /// The rows, mostly workloads.
    pub rows: Vec<Row>,
}

/// Which direction of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Published figure; `None` if the paper has none.
    pub published: Option<f64>,
    /// Simulated figure; `None` if the run did not end normally.
    pub simulated: Option<f64>,
    /// Whether the published figure was used to set a parameter of the model.
    pub role: Role,
}

/// Role of a cell as evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A parameter was fitted to the cell: agreement proves nothing.
    Fitted,
    /// No parameter was fitted to the cell.
    HeldOut,
    /// The cell was published or added after all parameters were set. No parameter is ever fitted to it.
    Check,
    /// The cell is 1 by definition: the reference of the others.
    Base,
}

impl Role {
    /// Returns whether the figure was known when parameters were set.
    fn is_known(self) -> bool {
        matches!(self, Self::Fitted | Self::HeldOut)
    }
}

impl Cell {
    /// Returns the relative error of the simulation, a ratio: simulated / published - 1.
    pub fn error(&self) -> Option<f64> {
        let published = self.published.filter(|published| *published != 0.0)?;
        Some(self.simulated? / published - 1.0)
    }
}

/// Returns every table, in order.
pub fn list() -> impl Iterator<Item = &'static Entry> {
    atc20::TABLES.iter().chain(&gorman10::TABLES)
}

/// Returns the table of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    list().find(|entry| entry.name == name)
}

fn done(report: &Report, figure: impl Fn(&Report) -> f64) -> Option<f64> {
    (report.end == End::Done).then(|| figure(report))
}

/// Makes a row. NaN in `published` means not published. `simulated` is called with each column.
fn row(
    name: &str,
    published: &[f64],
    role: impl Fn(usize) -> Role,
    simulated: impl Fn(usize) -> Option<f64>,
) -> Row {
    let cell = |(column, &published): (usize, &f64)| Cell {
        published: (!published.is_nan()).then_some(published),
        simulated: simulated(column),
        role: role(column),
    };
    Row { name: name.to_string(), cells: published.iter().enumerate().map(cell).collect() }
}

impl Entry {
    /// Makes the entry's table from rows.
    fn grid(&self, figure: &str, better: Better, columns: &[&str], rows: Vec<Row>) -> Table {
        Table {
            name: self.name.to_string(),
            source: self.source.to_string(),
            left_out: self.left_out.to_string(),
            figure: figure.to_string(),
            better,
            columns: columns.iter().map(|column| (*column).to_string()).collect(),
            rows,
        }
    }

    /// Runs the table and calls `step` with the progress.
    ///
    /// # Errors
    /// [`LabError`] of the first experiment that fails.
    pub fn run(&self, step: &mut (dyn FnMut(Step<'_>) + Send)) -> Result<Table, LabError> {
        let mut made = None;
        let mut whole = |table| {
            made = Some(table);
            ControlFlow::Continue(())
        };
        run(&[self], step, &mut whole, TO_THE_END)?;
        Ok(made.expect("a table is made of all its reports"))
    }
}

// Runs several tables together. Each design under each condition runs once, in one queue over all threads.
//
// The longest pass begins first, so no thread is left with a long one at the end. Reports, about 50 KB each, are kept
// until the last table is made. A pass needs the memory of its machines, about 100 MB for each with 32 GB of fragmented
// memory. As many passes run at a time as there are threads.

/// Progress of a rerun. A cell is a design under one set of conditions; several tables may need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// Number of completed cells.
    pub done: u64,
    /// Total number of cells.
    pub of: u64,
    /// The next row.
    pub row: &'a str,
    /// Fragmentation of the next row.
    pub fragmentation: &'a str,
}

/// Designs that share a pass. Generating a stream takes up to as long as simulating one design, so designs that share a
/// pass save time.
const TOGETHER: usize = 2;

/// Runs the tables. `step` gets the progress before each pass. `whole` gets each table in order, once it and all tables
/// before it are complete; if it breaks, no further pass begins. `going` is called before each piece of a pass; if it
/// breaks, passes in progress are abandoned.
///
/// # Errors
/// [`LabError`] of the first pass that failed or was abandoned. No further pass begins, and tables that need it are not
/// made.
pub fn run(
    entries: &[&Entry],
    step: &mut (dyn FnMut(Step<'_>) + Send),
    whole: &mut (dyn FnMut(Table) -> ControlFlow<()> + Send),
    going: Going,
) -> Result<(), LabError> {
    let passes = longest_first(passes(entries))?;
    let of = passes.iter().map(|pass| pass.designs.len() as u64).sum();
    let mut board = Board { waiting: entries, reports: BTreeMap::new(), of, step, whole };
    // A table may need no runs.
    if board.give().is_break() {
        return Ok(());
    }
    let board = Mutex::new((board, Ok(())));
    side_by_side::queue(passes, |pass| {
        let locked = || board.lock().expect("nothing in it panics");
        locked().0.tell(&pass);
        let ended = pass.run(going);
        let (board, result) = &mut *locked();
        match ended {
            Ok(reports) => board.add(&pass, reports),
            Err(error) => {
                *result = std::mem::replace(result, Ok(())).and(Err(error));
                ControlFlow::Break(())
            }
        }
    });
    board.into_inner().expect("nothing in it panics").1
}

/// Designs simulated in one pass over a workload's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pass {
    /// The first row that needs the pass.
    name: &'static str,
    pub conditions: Conditions,
    pub designs: Vec<&'static str>,
}

/// Returns the passes that the tables need, with each cell once.
fn passes(entries: &[&Entry]) -> Vec<Pass> {
    let mut needed: BTreeMap<Conditions, (&'static str, Vec<&'static str>)> = BTreeMap::new();
    for Runs { name, conditions, designs } in entries.iter().flat_map(|entry| (entry.runs)()) {
        let (_, all) = needed.entry(conditions).or_insert((name, Vec::new()));
        for &design in designs {
            if !all.contains(&design) {
                all.push(design);
            }
        }
    }
    let mut passes = Vec::new();
    for (conditions, (name, designs)) in needed {
        let parts = designs.chunks(TOGETHER);
        passes.extend(parts.map(|part| Pass { name, conditions, designs: part.to_vec() }));
    }
    passes
}

/// Sorts passes by decreasing length of their streams. Among equal lengths, fragmented memory comes first, because
/// designs have more work in fragmented memory.
fn longest_first(passes: Vec<Pass>) -> Result<Vec<Pass>, LabError> {
    let mut known = Vec::new();
    for pass in passes {
        known.push((pass.expected()?, pass));
    }
    known.sort_by_key(|(records, pass)| {
        Reverse((*records, pass.conditions.fragmentation != "none"))
    });
    Ok(known.into_iter().map(|(_, pass)| pass).collect())
}

impl Pass {
    /// Returns the number of records that the machines execute. A stream of unknown length counts as very long.
    fn expected(&self) -> Result<u64, LabError> {
        let (description, _) = self.experiment().workload.build()?;
        let records = description.records.unwrap_or(u64::MAX);
        Ok(records.saturating_mul(self.designs.len() as u64))
    }

    fn run(&self, going: Going) -> Result<Vec<Report>, LabError> {
        let experiment = self.experiment();
        let preset = |name: &&str| run::preset_on(name, &experiment.machine);
        let designs: Vec<Design> = self.designs.iter().map(preset).collect();
        crate::run_watched(&experiment, &designs, |_| going())
    }

    fn experiment(&self) -> Experiment {
        let Conditions { machine, memory, fragmentation, workload, seed } = self.conditions;
        Experiment {
            machine: machine::preset(machine).expect("a preset"),
            memory,
            fragmentation: fragmentation.parse().expect("written in a table"),
            fragmentation_name: fragmentation.to_string(),
            workload: workload.parse().expect("written in a table"),
            workload_name: workload.to_string(),
            seed,
            swap: ByteSize(0),
            layout: mm_sim::Layout::default(),
            utilisation: false,
        }
    }
}

/// Completed reports, and the tables that wait for more.
struct Board<'a> {
    waiting: &'a [&'a Entry],
    reports: BTreeMap<(Conditions, &'static str), Report>,
    /// Total number of cells.
    of: u64,
    step: &'a mut (dyn FnMut(Step<'_>) + Send),
    whole: &'a mut (dyn FnMut(Table) -> ControlFlow<()> + Send),
}

impl Board<'_> {
    fn tell(&mut self, pass: &Pass) {
        let (done, of) = (self.reports.len() as u64, self.of);
        let fragmentation = pass.conditions.fragmentation;
        (self.step)(Step { done, of, row: pass.name, fragmentation });
    }

    fn add(&mut self, pass: &Pass, reports: Vec<Report>) -> ControlFlow<()> {
        let names = pass.designs.iter().map(|&design| (pass.conditions, design));
        self.reports.extend(names.zip(reports));
        self.give()
    }

    /// Hands out the complete tables, up to the first incomplete one.
    fn give(&mut self) -> ControlFlow<()> {
        while let Some((entry, rest)) = self.waiting.split_first() {
            let Some(table) = self.made(entry) else { break };
            self.waiting = rest;
            (self.whole)(table)?;
        }
        ControlFlow::Continue(())
    }

    fn made(&self, entry: &Entry) -> Option<Table> {
        let report = |conditions, design| self.reports.get(&(conditions, design));
        let row = |one: Runs| -> Option<Vec<&Report>> {
            one.designs.iter().map(|design| report(one.conditions, *design)).collect()
        };
        let reports: Option<Vec<_>> = (entry.runs)().into_iter().map(row).collect();
        reports.map(|reports| (entry.table)(entry, &reports))
    }
}

// Computes how well a table was reproduced. Pure.

/// Published figures whose ratio is below this count as equal.
const MIN_DIFFERENCE: f64 = 1.05;
/// A simulation that separates two cells less than this share of the published separation (of the logarithm of the
/// ratio) does not show the published order, whichever cell is higher.
const MIN_SHARE: f64 = 0.5;

/// What a simulation makes of two figures that a paper separates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separation {
    /// In the published order, at least half as far apart.
    Right,
    /// In the published order, less than half as far apart.
    Flat,
    /// In the other order, or equal.
    Reversed,
}

/// Compares two ratios of the same figures. `None`: the paper does not separate them.
pub(crate) fn separation(published: f64, simulated: f64) -> Option<Separation> {
    (published > MIN_DIFFERENCE).then(|| match simulated.ln() / published.ln() {
        share if share >= MIN_SHARE => Separation::Right,
        share if share > 0.0 => Separation::Flat,
        _ => Separation::Reversed,
    })
}

/// Agreement of a table with its rerun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// Pairs without a check.
    #[serde(flatten)]
    pub order: Pairs,
    /// Geometric mean of each column, over the rows with both figures.
    pub means: Vec<GeometricMean>,
    /// Spread of each row with at least two cells that have both figures.
    pub spreads: Vec<Spread>,
    /// Mean factor of the errors, minus one, over all cells except bases and checks.
    pub typical_error: Option<f64>,
    /// As `typical_error`, over held-out cells only.
    pub held_out_error: Option<f64>,
    /// Agreement of the check cells, which the figures above exclude.
    pub checks: Option<Checks>,
}

/// Agreement of the check cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checks {
    /// Pairs of which at least one cell is a check.
    #[serde(flatten)]
    pub order: Pairs,
    /// As [`Agreement::typical_error`].
    pub typical_error: Option<f64>,
}

/// Simulated pairs of cells in a row that the paper separates by more than 5 %.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Pairs {
    /// Number of pairs.
    pub pairs: usize,
    /// Pairs that the simulation orders the other way or does not separate.
    pub wrong: Vec<Pair>,
    /// Pairs in their order that the simulation separates less than half as far (of the logarithm of the ratio).
    pub flat: Vec<Pair>,
}

impl Pairs {
    /// Returns the pairs whose order the simulation does not show.
    pub fn not_shown(&self) -> impl Iterator<Item = &Pair> {
        self.wrong.iter().chain(&self.flat)
    }

    /// Number of pairs whose order the simulation shows.
    pub fn right(&self) -> usize {
        self.pairs - self.not_shown().count()
    }
}

/// Two cells of a row whose order the simulation does not show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The row.
    pub row: String,
    /// The column with the higher published figure.
    pub higher: String,
    /// The column with the lower published figure.
    pub lower: String,
    /// Ratio of the published figures: above 1.
    pub published: f64,
    /// Ratio of the simulated figures.
    pub simulated: f64,
}

/// Highest over lowest figure of a row, over the cells with both figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The row.
    pub row: String,
    /// Of the published figures.
    pub published: f64,
    /// Of the simulated figures.
    pub simulated: f64,
}

impl Spread {
    fn of(row: &Row) -> Option<Self> {
        let both = row
            .cells
            .iter()
            .filter_map(|cell| positive(cell.published).zip(positive(cell.simulated)));
        let (published, simulated): (Vec<f64>, Vec<f64>) = both.unzip();
        let spread = |figures: &[f64]| {
            figures.iter().copied().fold(0.0, f64::max)
                / figures.iter().copied().fold(f64::MAX, f64::min)
        };
        (published.len() > 1).then(|| Self {
            row: row.name.clone(),
            published: spread(&published),
            simulated: spread(&simulated),
        })
    }

    /// Returns whether the simulated spread is less than half or more than twice the published one (of the logarithm).
    /// A published spread below 5 % counts as none.
    pub fn is_off(&self) -> bool {
        let share = self.simulated.ln() / self.published.ln();
        self.published > MIN_DIFFERENCE && !(MIN_SHARE..=1.0 / MIN_SHARE).contains(&share)
    }
}

/// A column's geometric means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GeometricMean {
    /// The column.
    pub column: String,
    /// Mean of the published figures.
    pub published: f64,
    /// Mean of the simulated figures.
    pub simulated: f64,
    /// Relative error of the simulated mean.
    pub error: f64,
}

impl Table {
    /// Computes the agreement of the table with its rerun.
    pub fn agreement(&self) -> Agreement {
        let is_check = |cell: &Cell| cell.role == Role::Check;
        let is_checked = |a: &Cell, b: &Cell| is_check(a) || is_check(b);
        let checks = self.rows.iter().flat_map(|row| &row.cells).any(is_check).then(|| {
            let typical_error = self.typical_error(|role| role == Role::Check);
            Checks { order: self.pairs(is_checked), typical_error }
        });
        Agreement {
            order: self.pairs(|a, b| !is_checked(a, b)),
            means: self.means(),
            spreads: self.rows.iter().filter_map(Spread::of).collect(),
            typical_error: self.typical_error(Role::is_known),
            held_out_error: self.typical_error(|role| role == Role::HeldOut),
            checks,
        }
    }

    /// Compares the separated pairs in rows that `counts` selects.
    fn pairs(&self, counts: impl Fn(&Cell, &Cell) -> bool) -> Pairs {
        let mut all = Pairs::default();
        for row in &self.rows {
            for (high, higher) in row.cells.iter().enumerate() {
                for (low, lower) in row.cells.iter().enumerate() {
                    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
                    let published = ratio(higher.published, lower.published);
                    let simulated = ratio(higher.simulated, lower.simulated);
                    let (true, Some(published), Some(simulated)) =
                        (counts(higher, lower), published, simulated)
                    else {
                        continue;
                    };
                    let Some(separation) = separation(published, simulated) else { continue };
                    all.pairs += 1;
                    let pair = || Pair {
                        row: row.name.clone(),
                        higher: self.columns[high].clone(),
                        lower: self.columns[low].clone(),
                        published,
                        simulated,
                    };
                    match separation {
                        Separation::Right => {}
                        Separation::Flat => all.flat.push(pair()),
                        Separation::Reversed => all.wrong.push(pair()),
                    }
                }
            }
        }
        all
    }

    fn means(&self) -> Vec<GeometricMean> {
        let column = |(index, name): (usize, &String)| {
            let both = self.rows.iter().filter_map(|row| {
                let cell = row.cells.get(index).filter(|cell| cell.role.is_known())?;
                positive(cell.published).zip(positive(cell.simulated))
            });
            let (published, simulated): (Vec<f64>, Vec<f64>) = both.unzip();
            let (published, simulated) = (geometric(published)?, geometric(simulated)?);
            let error = simulated / published - 1.0;
            Some(GeometricMean { column: name.clone(), published, simulated, error })
        };
        self.columns.iter().enumerate().filter_map(column).collect()
    }

    /// Returns the geometric mean of max(simulated/published, published/simulated), minus one.
    fn typical_error(&self, counts: impl Fn(Role) -> bool) -> Option<f64> {
        let cells = self.rows.iter().flat_map(|row| &row.cells).filter(|cell| counts(cell.role));
        typical(
            cells.filter_map(|cell| Some(positive(cell.simulated)? / positive(cell.published)?)),
        )
    }
}

/// Returns the geometric mean of the factors (simulated/published, or its inverse if below 1), minus one.
pub(crate) fn typical(factors: impl Iterator<Item = f64>) -> Option<f64> {
    geometric(factors.map(|factor| factor.max(1.0 / factor))).map(|mean| mean - 1.0)
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

/// Returns the geometric mean of values, a ratio if each is a ratio, or `None` without values.
pub fn geometric(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        sum += value.ln();
        count += 1;
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod agreement_tests {
    use super::*;
    use crate::tables::{Better, Row};

    fn table(rows: &[&[(f64, f64)]]) -> Table {
        let cell = |(index, (published, simulated)): (usize, &(f64, f64))| Cell {
            published: (*published > 0.0).then_some(*published),
            simulated: (*simulated > 0.0).then_some(*simulated),
            role: [Role::Base, Role::Fitted, Role::HeldOut][index.min(2)],
        };
        let row = |(index, cells): (usize, &&[(f64, f64)])| Row {
            name: format!("w{index}"),
            cells: cells.iter().enumerate().map(cell).collect(),
        };
        Table {
            name: "t".to_string(),
            source: "a paper".to_string(),
            left_out: String::new(),
            figure: "speed-up".to_string(),
            better: Better::Higher,
            columns: ["base", "a", "b"].map(String::from).to_vec(),
            rows: rows.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn pairs_that_a_paper_separates_must_be_in_its_order() {
        // base-a and base-b are separated in both rows; a-b is within 5 % in the first.
        let table = table(&[
            &[(1.0, 1.0), (1.50, 1.4), (1.52, 1.3)],
            &[(1.0, 1.0), (1.20, 0.9), (1.40, 1.4)],
        ]);
        let agreement = table.agreement();
        assert_eq!((agreement.order.pairs, agreement.order.wrong.len()), (5, 1));
        let wrong = &agreement.order.wrong[0];
        assert_eq!((&*wrong.row, &*wrong.higher, &*wrong.lower), ("w1", "a", "base"));
        assert!((wrong.published - 1.2).abs() < 1e-12 && (wrong.simulated - 0.9).abs() < 1e-12);
    }

    /// A simulation that is nearly flat has every pair in its order.
    #[test]
    fn a_flat_simulation_shows_no_order_and_no_spread() {
        let flat = table(&[&[(1.0, 1.0), (1.28, 1.02), (1.1, 1.01)]]).agreement();
        assert_eq!((flat.order.pairs, flat.order.wrong.len(), flat.order.flat.len()), (3, 0, 3));
        assert!(flat.spreads[0].is_off(), "{:?}", flat.spreads);
        let (published, simulated) = (flat.spreads[0].published, flat.spreads[0].simulated);
        assert!((published - 1.28).abs() < 1e-12 && (simulated - 1.02).abs() < 1e-12);
        // The square root of the published ratio is half of the way.
        let half = table(&[&[(1.0, 1.0), (1.28, 1.14), (1.1, 1.05)]]).agreement();
        assert_eq!((half.order.pairs, half.order.wrong.len(), half.order.flat.len()), (3, 0, 0));
        assert!(!half.spreads[0].is_off(), "{:?}", half.spreads);
        let wild = table(&[&[(1.0, 1.0), (1.28, 1.7), (0.0, 3.0)]]).agreement();
        assert!(wild.spreads[0].is_off() && wild.spreads[0].simulated < 1.71, "{:?}", wild.spreads);
    }

    #[test]
    fn errors_are_geometric_means_without_bases() {
        let table =
            table(&[&[(1.0, 1.0), (2.0, 2.2), (1.0, 0.8)], &[(1.0, 1.0), (2.0, 1.8), (0.0, 3.0)]]);
        let agreement = table.agreement();
        let mean = &agreement.means[0];
        assert_eq!((agreement.means.len(), &*mean.column), (2, "a"));
        assert!((mean.simulated - (2.2f64 * 1.8).sqrt()).abs() < 1e-12);
        assert!((agreement.held_out_error.unwrap() - 0.25).abs() < 1e-12);
        let three = (1.1f64 * (2.0 / 1.8) * 1.25).cbrt() - 1.0;
        assert!((agreement.typical_error.unwrap() - three).abs() < 1e-12);
    }

    #[test]
    fn a_pair_with_a_check_is_a_check() {
        let mut table = table(&[&[(1.0, 1.0), (2.0, 2.2), (3.0, 2.0)]]);
        table.rows[0].cells[2].role = Role::Check;
        let agreement = table.agreement();
        // base-a is not a check; base-b and a-b are.
        assert_eq!((agreement.order.pairs, agreement.order.wrong.len()), (1, 0));
        let checks = agreement.checks.expect("b is one");
        assert_eq!((checks.order.pairs, checks.order.wrong.len()), (2, 1));
        assert!((agreement.typical_error.unwrap() - 0.1).abs() < 1e-12);
        assert!((checks.typical_error.unwrap() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn nothing_known_is_nothing_said() {
        let agreement = table(&[]).agreement();
        assert_eq!(
            (agreement.order.pairs, agreement.typical_error, agreement.means.len()),
            (0, None, 0)
        );
    }
}
