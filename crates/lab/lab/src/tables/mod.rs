//! Published tables, rerun: what a paper printed beside what the laboratory gets.
//!
//! A [`Table`] is a grid of [`Cell`]s; [`Table::agreement`] is the summary that decides whether a paper
//! was reproduced: the order of every pair that it separates, and how far the figures are off. An [`Entry`] says
//! which [`Runs`] its rows need and makes the table of their reports; [`run`] simulates what several need, each once.

mod agreement;
mod atc20;
pub mod faults;
mod gorman10;
mod queue;
#[cfg(test)]
mod tests;

pub use agreement::{Agreement, Checks, GeometricMean, Pair};
pub(crate) use agreement::{geometric, typical};

pub use queue::{Step, run};

use std::ops::ControlFlow;

use serde::Serialize;
use units::ByteSize;

use crate::{End, LabError, Report, TO_THE_END};

/// The version of a table's layout.
pub const TABLE_SCHEMA: &str = "superpage.lab.table/1";

/// A table that can be rerun.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What it shows.
    pub summary: &'static str,
    /// What was published with it and is not in it.
    pub left_out: &'static str,
    /// What its rows need.
    pub(crate) runs: fn() -> Vec<Runs>,
    /// Makes the table of the reports.
    pub(crate) table: fn(&Self, &Reports<'_>) -> Table,
}

/// What a row needs: a report for each of the designs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    /// The row's name, to tell what is run.
    pub name: &'static str,
    pub conditions: Conditions,
    pub designs: &'static [&'static str],
}

/// What a design is run under. Equal ones give equal reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conditions {
    /// A preset.
    pub machine: &'static str,
    pub memory: ByteSize,
    pub fragmentation: &'static str,
    pub workload: &'static str,
    pub seed: u64,
}

/// The reports of each of an entry's runs, in the order of their designs.
pub(crate) type Reports<'a> = [Vec<&'a Report>];

/// A published table and its rerun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What was published with it and is not in it.
    pub left_out: String,
    /// What the figures are: `speed-up over base pages`.
    pub figure: String,
    /// Which way they are better.
    pub better: Better,
    /// The columns, mostly designs.
    pub columns: Vec<String>,
    /// The rows, mostly workloads.
    pub rows: Vec<Row>,
}

/// Which way a figure is better.
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
    /// One per column.
    pub cells: Vec<Cell>,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// As published. `None` where the paper has none.
    pub published: Option<f64>,
    /// As simulated. `None` where the run did not come to its end.
    pub simulated: Option<f64>,
    /// Whether the published figure was used to set a parameter of the model.
    pub role: Role,
}

/// What a cell is evidence of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A parameter was fitted to it: that it agrees proves nothing.
    Fitted,
    /// Nothing was fitted to it.
    HeldOut,
    /// It came after all parameters were set, or was taken out of what sets them, and nothing is ever fitted to it.
    Check,
    /// The cell is 1 by definition: what others are relative to.
    Base,
}

impl Role {
    /// Whether the figure was known while parameters were set.
    fn is_known(self) -> bool {
        matches!(self, Self::Fitted | Self::HeldOut)
    }
}

impl Cell {
    /// How far the simulation is off, as a share: simulated / published - 1.
    pub fn error(&self) -> Option<f64> {
        let published = self.published.filter(|published| *published != 0.0)?;
        Some(self.simulated? / published - 1.0)
    }
}

/// Every table, in order.
pub fn list() -> impl Iterator<Item = &'static Entry> {
    atc20::TABLES.iter().chain(&gorman10::TABLES)
}

/// The table of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    list().find(|entry| entry.name == name)
}

fn done(report: &Report, figure: impl Fn(&Report) -> f64) -> Option<f64> {
    (report.end == End::Done).then(|| figure(report))
}

/// A row of these figures; NaN is one that was not published. `simulated` is asked by column.
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
    /// Its table of these rows.
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

    /// Runs the table; `step` is called with its progress.
    ///
    /// # Errors
    /// [`LabError`], of the first experiment that cannot be run.
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
