//! `Evaluation`: comparisons of many applications, each on one machine. Facts only, as `Document`; verdicts are computed
//! from it.
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

// What became of verdicts since an earlier evaluation.

/// A verdict that is another one than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The application's name.
    pub application: String,
    /// The arm's.
    pub arm: String,
    /// The verdict before, in words.
    pub old: String,
    /// Now.
    pub new: String,
    /// The kinds of machine of both, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Kinds>,
}

/// Two kinds of machine, each in a line: CPUs, memory, kernel and THP setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds {
    /// Before.
    pub old: String,
    /// Now.
    pub new: String,
}

impl Change {
    /// In a line.
    pub fn line(&self) -> String {
        let Self { application, arm, old, new, kinds } = self;
        let kinds = kinds.as_ref().map_or(String::new(), |Kinds { old, new }| {
            format!("; of another kind of machine: {new}, was {old}")
        });
        format!("{application}, {arm}: {new}, was {old}{kinds}")
    }
}

impl Evaluation {
    /// The verdicts of `old` that are others now, another word or intervals that do not meet, or are missing: of the
    /// applications that this evaluation names. And of how many verdicts.
    pub fn changes_since(&self, old: &Self) -> (Vec<Change>, usize) {
        let (now, other_kinds) = (self.rows(), self.other_kinds(old));
        let (mut changes, mut of) = (Vec::new(), 0);
        for old in old.rows() {
            let is_same = |row: &&crate::evaluation::Row| {
                (&row.application, &row.arm) == (&old.application, &old.arm)
            };
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
                    None => continue, // it was not asked for
                },
            };
            of += 1;
            let kinds = other_kinds.get(old.application.as_str()).cloned();
            changes.extend(new.map(|new| {
                let crate::evaluation::Row { application, arm, verdict, .. } = old;
                Change { application, arm, old: verdict.cell(), new, kinds }
            }));
        }
        (changes, of)
    }

    /// Why there is no such verdict, in words; `None`: the application is not in this evaluation.
    fn why_missing(&self, old: &crate::evaluation::Row) -> Option<String> {
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

    /// The applications that both have, of machines of different kinds.
    pub fn other_kinds(&self, old: &Self) -> BTreeMap<&str, Kinds> {
        let other = |one: &'_ crate::evaluation::Application| {
            let old = old.applications.iter().find(|it| it.name == one.name)?;
            let kinds = Kinds { old: old.kind(), new: one.kind() };
            (kinds.old != kinds.new).then_some(kinds)
        };
        let applications = self.applications.iter();
        applications.filter_map(|one| Some((one.name.as_str(), other(one)?))).collect()
    }
}

// Which machines an evaluation was made on. Of a cluster there may be several: each application is of one, and its ratios
// are within that one.

/// A machine that applications were measured on.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// Its name, where that is known; what tells two kinds of one name apart is added.
    pub label: String,
    /// What is equal on machines of one kind: CPUs, memory, kernel and THP setting, in a line.
    pub kind: String,
    /// It before the first run of its first application.
    pub snapshot: &'a Snapshot,
    /// Names of the applications.
    pub applications: Vec<&'a str>,
    host: Option<&'a str>,
}

impl Evaluation {
    /// The machines, in the order of their first applications.
    pub fn machines(&self) -> Vec<Machine<'_>> {
        let mut machines: Vec<Machine> = Vec::new();
        for one in &self.applications {
            let (host, kind) = (one.host.as_deref(), one.kind());
            // An unknown name is not another one.
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

    /// Whether it is of several machines, so that each must be named.
    pub fn has_several_hosts(&self) -> bool {
        let hosts = self.applications.iter().map(|one| &one.host);
        let hosts: BTreeSet<_> =
            hosts.chain(self.not_run.iter().map(|one| &one.host)).flatten().collect();
        hosts.len() > 1
    }

    /// The machines in lines, one for each kind, with the names of those of it where there are several.
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
    /// A line, with the machine's name if that is wanted.
    pub fn line(&self, with_host: bool) -> String {
        let host = self.host.as_ref().filter(|_| with_host);
        let host = host.map_or(String::new(), |host| format!(", on {host}"));
        format!("{}{host}: {}", self.name, self.why)
    }
}

impl Application {
    /// The kind of its machine: what is equal on machines that can be taken for one another.
    pub fn kind(&self) -> String {
        self.comparison.machine_line()
    }
}

/// The label of the machine of an application.
pub fn label_of<'a>(machines: &'a [Machine], application: &str) -> &'a str {
    let machine = machines.iter().find(|it| it.applications.contains(&application));
    machine.map_or("", |machine| machine.label.as_str())
}
