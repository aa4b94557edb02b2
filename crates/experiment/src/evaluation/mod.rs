//! `Evaluation`: comparisons of many applications, each on one machine. Facts only, as `Document`; verdicts are computed
//! from it.
//! See docs/decisions/evaluate.md#3.

mod changes;
mod machines;
mod page;

use crate::measure::Measure;
use serde::{Deserialize, Serialize};

use crate::analysis::{Judgement, Summary, analyse};
use crate::document::{Document, DocumentError};
use crate::verdict::{Terms, Verdict};
use report::format::{self, known};

pub use changes::{Change, Kinds};
pub use machines::{Machine, label_of};

/// Name and version of the format.
pub const SCHEMA: &str = "superpage.evaluation/1";

/// Comparisons of many applications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`SCHEMA`].
    pub schema: String,
    /// Those that were compared, in the order they were run.
    pub applications: Vec<Application>,
    /// Those that were not, and why.
    pub not_run: Vec<NotRun>,
    /// Verdicts that changed since an earlier evaluation, if it was compared with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<Change>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// The entry's name, unique in the file.
    pub name: String,
    /// The name of the machine that all its runs were made on, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The comparison.
    pub comparison: Document,
}

/// One that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// The entry's name.
    pub name: String,
    /// Why, and what would let it.
    pub why: String,
    /// The name of the machine that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// It was begun and failed; else something was missing, or there was no time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// What an arm did for an application: a line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The application's name.
    pub application: String,
    /// The name of its machine.
    pub host: Option<String>,
    /// The arm's.
    pub arm: String,
    /// What the verdict is about: `wall`, or the first metric that the comparison is about.
    pub quantity: Measure,
    /// Of that.
    pub verdict: Verdict,
    /// Of its 99th percentile, if it has one.
    pub p99: Option<Verdict>,
    /// The most memory of the arm.
    pub peak_bytes: Option<f64>,
    /// How much more than the reference's that is.
    pub more_bytes: Option<f64>,
    /// Share of its memory on superpages.
    pub coverage: Option<f64>,
    /// Runs that count.
    pub runs: u32,
}

/// An application, and what its arms did for it. Verdicts take time, so a report computes them once.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// The application.
    pub application: &'a Application,
    /// A line for each arm but the reference.
    pub rows: Vec<Row>,
}

/// What to do with an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The fastest of the arms that are faster than the reference; none: no arm is.
    pub best: Option<Row>,
    /// The reference's name.
    pub reference: String,
    /// Arms slower than it.
    pub slower: Vec<String>,
    /// Whether all arms with figures have a verdict.
    pub is_decided: bool,
    /// Whether any arm has figures.
    pub has_figures: bool,
    /// Whether each has.
    pub has_all_figures: bool,
    /// Whether they were all run, and none took effect.
    pub had_no_effect: bool,
}

impl Evaluation {
    /// Nothing yet.
    pub fn new() -> Self {
        let schema = SCHEMA.to_string();
        Self { schema, applications: Vec::new(), not_run: Vec::new(), changed: None }
    }

    /// Reads one; `file` is for messages.
    ///
    /// # Errors
    /// If it is not JSON of these fields, of another version, or a comparison in it is damaged.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        let broken = |why: String| DocumentError::NotAnEvaluation(file.into(), why);
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
        if value["schema"] != SCHEMA {
            return Err(broken(format!("its schema is {}, not \"{SCHEMA}\"", value["schema"])));
        }
        // From the text again: an error then names line and column, and the reader is the one of a single comparison.
        report::document::read(text).map_err(broken)
    }

    /// Whether it has the application's comparison.
    pub fn has(&self, name: &str) -> bool {
        self.applications.iter().any(|one| one.name == name)
    }

    /// The lines of all applications.
    pub fn rows(&self) -> Vec<Row> {
        self.applications.iter().flat_map(Application::rows).collect()
    }

    /// The applications, judged.
    pub fn judged(&self) -> Vec<Judged<'_>> {
        let applications = self.applications.iter();
        applications.map(|application| Judged { application, rows: application.rows() }).collect()
    }

    /// The page.
    pub fn to_html(&self) -> String {
        page::page(self)
    }
}

impl Default for Evaluation {
    fn default() -> Self {
        Self::new()
    }
}

impl Application {
    /// A line for each arm but the reference.
    pub fn rows(&self) -> Vec<Row> {
        let analysis = analyse(&self.comparison);
        let Some(reference) = analysis.arms.first() else { return Vec::new() };
        let row = |arm: &Summary| {
            let of = |is: &dyn Fn(&Judgement) -> bool| {
                analysis.judgements.iter().find(|one| one.arm == arm.name && is(one))
            };
            let primary = of(&|one| one.is_primary)?;
            let is_p99 = |one: &Judgement| one.quantity.percentile() == Some(99.0);
            let p99 = of(&|one| is_p99(one) && one.quantity != primary.quantity);
            Some(Row {
                application: self.name.clone(),
                host: self.host.clone(),
                arm: arm.name.clone(),
                quantity: primary.quantity.clone(),
                verdict: primary.verdict.clone(),
                p99: p99.map(|one| one.verdict.clone()),
                peak_bytes: arm.peak_bytes,
                more_bytes: arm.peak_bytes.zip(reference.peak_bytes).map(|(own, base)| own - base),
                coverage: arm.coverage,
                runs: arm.runs,
            })
        };
        analysis.arms.iter().skip(1).filter_map(row).collect()
    }
}

impl Judged<'_> {
    /// What to do with it.
    pub fn advice(&self) -> Advice {
        let rows = &self.rows;
        let slower = rows.iter().filter(|row| matches!(row.verdict, Verdict::Slower(_)));
        let slower = slower.map(|row| row.arm.clone()).collect();
        let mut with_figures = rows.iter().filter(|row| row.verdict.ratio().is_some()).peekable();
        let has_figures = with_figures.peek().is_some();
        let is_decided = with_figures.all(|row| !matches!(row.verdict, Verdict::Undecided { .. }));
        let speedup = |row: &Row| row.verdict.ratio().map_or(0.0, |(speedup, _)| speedup);
        let faster = rows.iter().filter(|row| matches!(row.verdict, Verdict::Faster(_)));
        let best = faster.max_by(|a, b| speedup(a).total_cmp(&speedup(b))).cloned();
        let reference = self.application.comparison.arms.first().map(|arm| arm.name.clone());
        let is_without = |row: &Row| matches!(row.verdict, Verdict::DidNotTakeEffect { .. });
        let are_all_here = self.application.comparison.left_out.is_empty() && !rows.is_empty();
        Advice {
            best,
            reference: reference.unwrap_or_default(),
            slower,
            is_decided,
            has_figures,
            has_all_figures: are_all_here && rows.iter().all(|row| row.verdict.ratio().is_some()),
            had_no_effect: are_all_here && rows.iter().all(is_without),
        }
    }

    /// A line for each arm without figures, and why.
    pub fn without_figures(&self) -> Vec<String> {
        let without = self.rows.iter().filter(|row| row.verdict.ratio().is_none());
        let lines = without.map(|row| {
            format!("{}, {}: {}", row.application, row.arm, row.verdict.line(Terms::Speed))
        });
        let Application { name, comparison, .. } = self.application;
        let left_out = comparison.left_out.iter();
        lines
            .chain(left_out.map(|arm| format!("{name}, {} left out: {}", arm.name, arm.why)))
            .collect()
    }
}

impl Row {
    /// How much memory it takes beyond the reference, with its sign.
    pub fn memory_words(&self) -> String {
        known(self.more_bytes, |more| {
            let sign = if more < 0.0 { "−" } else { "+" };
            sign.to_string() + &format::bytes(more.abs())
        })
    }

    /// Its 99th percentile's verdict; nothing where it has none.
    pub fn p99_words(&self) -> String {
        self.p99.as_ref().map_or(String::new(), Verdict::cell)
    }
}

impl Advice {
    /// In words.
    pub fn words(&self) -> String {
        match &self.best {
            Some(row) => row.arm.clone(),
            None if self.had_no_effect => "no arm took effect".to_string(),
            None if !self.has_figures => "no arm has figures".to_string(),
            None if !self.is_decided => "undecided".to_string(),
            None if !self.has_all_figures => {
                format!("{}: none with figures is faster", self.reference)
            }
            None => format!("{}: none is faster", self.reference),
        }
    }
}
