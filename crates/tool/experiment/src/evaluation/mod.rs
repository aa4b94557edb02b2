//! `Evaluation`: comparisons of many applications, each on one machine. Like `Document`, it holds only facts, and
//! verdicts are computed from them.
//! See docs/decisions/evaluate.md#3.

mod page;

use std::collections::{BTreeMap, BTreeSet};

use host::Snapshot;
use report::format;
use report::format::known;
use serde::{Deserialize, Serialize};

use crate::analysis::{Judgement, Summary, analyse};
use crate::document::{Document, DocumentError};
use crate::measure::Measure;
use crate::verdict::{Terms, Verdict};

/// Name and version of the format.
pub const SCHEMA: &str = "superpage.evaluation/1";

/// Comparisons of many applications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`SCHEMA`].
    pub schema: String,
    /// The compared applications, in order of execution.
    pub applications: Vec<Application>,
    /// The applications that were not compared, with reasons.
    pub not_run: Vec<NotRun>,
    /// Verdicts that changed since an earlier evaluation, if it was compared with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<Change>>,
}

/// A compared application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// The entry's name, unique in the file.
    pub name: String,
    /// Host name of the machine on which all its runs were made, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The comparison.
    pub comparison: Document,
}

/// An application that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// The entry's name.
    pub name: String,
    /// The reason, and the remedy.
    pub why: String,
    /// Host name of the reporting machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether the application was started and failed; otherwise a requirement was missing, or there was no time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// Result of an arm for an application: a line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The application's name.
    pub application: String,
    /// Host name of the application's machine.
    pub host: Option<String>,
    /// Name of the arm.
    pub arm: String,
    /// Quantity of the verdict: `wall`, or the comparison's first metric.
    pub quantity: Measure,
    /// Verdict on that quantity.
    pub verdict: Verdict,
    /// Verdict on the 99th percentile, if there is one.
    pub p99: Option<Verdict>,
    /// Peak memory of the arm in bytes.
    pub peak_bytes: Option<f64>,
    /// Peak memory beyond the reference's, in bytes.
    pub more_bytes: Option<f64>,
    /// Share of the arm's memory on superpages.
    pub coverage: Option<f64>,
    /// Number of measured runs.
    pub runs: u32,
    /// For an undecided verdict: how many more runs of each arm would decide it, and how many seconds these take.
    pub to_decide: Option<(u32, f64)>,
}

/// An application with the results of its arms. Computing verdicts takes time, so a report computes them once.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// The application.
    pub application: &'a Application,
    /// One line per arm except the reference.
    pub rows: Vec<Row>,
}

/// Advice for an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The fastest of the arms that are faster than the reference, if any.
    pub best: Option<Row>,
    /// The reference's name.
    pub reference: String,
    /// Names of arms slower than the reference.
    pub slower: Vec<String>,
    /// Whether all arms with figures have a verdict.
    pub is_decided: bool,
    /// Whether any arm has figures.
    pub has_figures: bool,
    /// Whether every arm has figures.
    pub has_all_figures: bool,
    /// Whether all arms were run, and none took effect.
    pub had_no_effect: bool,
}

impl Evaluation {
    /// Returns an empty evaluation.
    pub fn new() -> Self {
        let schema = SCHEMA.to_string();
        Self { schema, applications: Vec::new(), not_run: Vec::new(), changed: None }
    }

    /// Parses an evaluation. Error messages name `file`.
    ///
    /// # Errors
    /// If it is not JSON of these fields, of another version, or a comparison in it is damaged.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        let broken = |why: String| DocumentError::NotAnEvaluation(file.into(), why);
        let value = report::document::json(text).map_err(|error| broken(error.to_string()))?;
        if value["schema"] != SCHEMA {
            return Err(broken(format!("its schema is {}, not \"{SCHEMA}\"", value["schema"])));
        }
        // Parse the text again, so that an error has line and column, and a comparison gets the same parser as alone.
        report::document::read(text).map_err(broken)
    }

    /// Returns whether the evaluation contains the application's comparison.
    pub fn has(&self, name: &str) -> bool {
        self.applications.iter().any(|one| one.name == name)
    }

    /// Returns the rows of all applications.
    pub fn rows(&self) -> Vec<Row> {
        self.applications.iter().flat_map(Application::rows).collect()
    }

    /// Returns the applications with their verdicts.
    pub fn judged(&self) -> Vec<Judged<'_>> {
        let applications = self.applications.iter();
        applications.map(|application| Judged { application, rows: application.rows() }).collect()
    }

    /// Formats the evaluation as an HTML page.
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
    /// Returns one row per arm except the reference.
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
                to_decide: primary.to_decide(&analysis),
            })
        };
        analysis.arms.iter().skip(1).filter_map(row).collect()
    }
}

impl Judged<'_> {
    /// Returns the advice for the application.
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

    /// Says how many more runs would decide the open verdicts; `None`: all are decided, or nothing is known.
    pub fn to_decide(&self) -> Option<String> {
        let open = self.rows.iter().filter_map(|row| row.to_decide);
        let (runs, seconds) = open.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let runs = format::counted(runs, "more run", "more runs");
        let name = &self.application.name;
        let seconds = format::seconds(seconds);
        Some(format!(
            "{name}: undecided; about {runs} of each arm would decide it, {seconds} in all (--max-time)"
        ))
    }

    /// Returns one line per arm without figures, with the reason.
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
    /// Formats the peak memory beyond the reference's, with its sign.
    pub fn memory_words(&self) -> String {
        known(self.more_bytes, |more| {
            let sign = if more < 0.0 { "−" } else { "+" };
            sign.to_string() + &format::bytes(more.abs())
        })
    }

    /// Formats the verdict on the 99th percentile; empty without one.
    pub fn p99_words(&self) -> String {
        self.p99.as_ref().map_or(String::new(), Verdict::cell)
    }
}

impl Advice {
    /// Formats the advice.
    pub fn words(&self) -> String {
        match &self.best {
            Some(row) => row.arm.clone(),
            None if self.had_no_effect => "no arm took effect".to_string(),
            None if !self.has_figures => "no arm has figures".to_string(),
            None if !self.is_decided => "undecided".to_string(),
            None if !self.has_all_figures => {
                format!("{}: no arm that has figures is faster", self.reference)
            }
            None => format!("{}: none is faster", self.reference),
        }
    }
}

// Changes of verdicts since an earlier evaluation.

/// A changed verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The application's name.
    pub application: String,
    /// Name of the arm.
    pub arm: String,
    /// The earlier verdict, as text.
    pub old: String,
    /// The current verdict.
    pub new: String,
    /// The kinds of both machines, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Kinds>,
}

/// Two kinds of machine, each in a line: CPUs, memory, kernel and THP setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds {
    /// The earlier kind.
    pub old: String,
    /// The current kind.
    pub new: String,
}

impl Change {
    /// Formats the change in one line.
    pub fn line(&self) -> String {
        let Self { application, arm, old, new, kinds } = self;
        let kinds = kinds.as_ref().map_or(String::new(), |Kinds { old, new }| {
            format!("; of another kind of machine: {new}, was {old}")
        });
        format!("{application}, {arm}: {new}, was {old}{kinds}")
    }
}

impl Evaluation {
    /// Returns the verdicts of `old` that have changed (another word or disjoint intervals) or are missing, for the
    /// applications of this evaluation, and the number of verdicts compared.
    pub fn changes_since(&self, old: &Self) -> (Vec<Change>, usize) {
        let (now, other_kinds) = (self.rows(), self.other_kinds(old));
        let (mut changes, mut of) = (Vec::new(), 0);
        for old in old.rows() {
            let is_same = |row: &&Row| (&row.application, &row.arm) == (&old.application, &old.arm);
            let new = match now.iter().find(is_same) {
                Some(new) => {
                    let spans = [&old, new].map(|row| row.verdict.ratio().and_then(|(_, it)| it));
                    let apart = match spans {
                        [Some(a), Some(b)] => a.high < b.low || b.high < a.low,
                        _ => false,
                    };
                    let is_other = old.verdict.word() != new.verdict.word() || apart;
                    is_other.then(|| new.verdict.cell())
                }
                None => match self.why_missing(&old) {
                    Some(why) => Some(why),
                    None => continue, // not requested in this evaluation
                },
            };
            of += 1;
            let kinds = other_kinds.get(old.application.as_str()).cloned();
            changes.extend(new.map(|new| {
                let Row { application, arm, verdict, .. } = old;
                Change { application, arm, old: verdict.cell(), new, kinds }
            }));
        }
        (changes, of)
    }

    /// Returns why a verdict of `old` is missing now; `None` if the application is not in this evaluation.
    fn why_missing(&self, old: &Row) -> Option<String> {
        if let Some(one) = self.not_run.iter().find(|one| one.name == old.application) {
            return Some(format!("not run: {}", one.why));
        }
        let one = self.applications.iter().find(|one| one.name == old.application)?;
        let left_out = one.comparison.left_out.iter().find(|arm| arm.name == old.arm);
        Some(match left_out {
            Some(arm) => format!("left out: {}", arm.why),
            None => "no such arm".to_string(),
        })
    }

    /// Returns the common applications whose machines are of different kinds.
    pub fn other_kinds(&self, old: &Self) -> BTreeMap<&str, Kinds> {
        let other = |one: &'_ Application| {
            let old = old.applications.iter().find(|it| it.name == one.name)?;
            let kinds = Kinds { old: old.kind(), new: one.kind() };
            (kinds.old != kinds.new).then_some(kinds)
        };
        let applications = self.applications.iter();
        applications.filter_map(|one| Some((one.name.as_str(), other(one)?))).collect()
    }
}

// The machines of an evaluation. A cluster may have several. Each application ran on one machine, so its ratios compare
// runs on the same machine.

/// A machine that applications were measured on.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// Host name, if known, with a suffix if machines of two kinds have the same name.
    pub label: String,
    /// Kind of the machine: CPUs, memory, kernel and THP setting, in one line.
    pub kind: String,
    /// The machine before the first run of its first application.
    pub snapshot: &'a Snapshot,
    /// Names of the applications.
    pub applications: Vec<&'a str>,
    host: Option<&'a str>,
}

impl Evaluation {
    /// Returns the machines, in the order of their first applications.
    pub fn machines(&self) -> Vec<Machine<'_>> {
        let mut machines: Vec<Machine> = Vec::new();
        for one in &self.applications {
            let (host, kind) = (one.host.as_deref(), one.kind());
            // An unknown host name matches every name.
            let fits = |known: Option<&str>| known == host || known.is_none() || host.is_none();
            let known = machines.iter_mut().find(|it| fits(it.host) && it.kind == kind);
            if let Some(machine) = known {
                machine.applications.push(&one.name);
                continue;
            }
            let again = machines.iter().filter(|it| it.host == host).count();
            let name = host.unwrap_or("unnamed");
            let label =
                if again == 0 { name.to_string() } else { format!("{name} ({})", again + 1) };
            let (snapshot, applications) = (&one.comparison.machine, vec![one.name.as_str()]);
            machines.push(Machine { label, kind, snapshot, applications, host });
        }
        machines
    }

    /// Returns whether the evaluation has several machines, so that each must be named.
    pub fn has_several_hosts(&self) -> bool {
        let hosts = self.applications.iter().map(|one| &one.host);
        let hosts: BTreeSet<_> =
            hosts.chain(self.not_run.iter().map(|one| &one.host)).flatten().collect();
        hosts.len() > 1
    }

    /// Formats the machines, one line per kind, with the host names if there are several.
    pub fn machine_lines(&self) -> Vec<String> {
        let machines = self.machines();
        if let [one] = machines.as_slice() {
            return vec![one.kind.clone()];
        }
        let mut kinds: Vec<&str> = Vec::new();
        for machine in &machines {
            if !kinds.contains(&machine.kind.as_str()) {
                kinds.push(&machine.kind);
            }
        }
        let line = |kind: &str| {
            let labels = machines.iter().filter(|it| it.kind == kind).map(|it| it.label.as_str());
            format!("{}: {kind}", labels.collect::<Vec<_>>().join(", "))
        };
        kinds.into_iter().map(line).collect()
    }
}

impl NotRun {
    /// Formats the entry and its reason in one line, optionally with the machine's name.
    pub fn line(&self, with_host: bool) -> String {
        let host = self.host.as_ref().filter(|_| with_host);
        let host = host.map_or(String::new(), |host| format!(", on {host}"));
        format!("{}{host}: {}", self.name, self.why)
    }
}

impl Application {
    /// Returns the kind of the application's machine: the properties that interchangeable machines share.
    pub fn kind(&self) -> String {
        self.comparison.machine_line()
    }
}

/// Returns the label of an application's machine.
pub fn label_of<'a>(machines: &'a [Machine], application: &str) -> &'a str {
    let machine = machines.iter().find(|it| it.applications.contains(&application));
    machine.map_or("", |machine| machine.label.as_str())
}
