//! `superpage manage --check-config`: the mistakes of a configuration, or what every process would get by it.

use ::manage::config::{Config, Decision, Gets, Machine, Mode, Outcome, Place, Request, Sources};
use host::{Root, Unknown};
use report::format::{counted, name};
use serde::Serialize;
use services::{Process, Target};

use crate::exit::{self, Done, Failure};
use crate::pool::show;
use crate::targets;

const SCHEMA: &str = "superpage.manage-check/1";

#[derive(Debug, Serialize)]
struct Document<'a> {
    files: Vec<String>,
    machine: &'a Machine,
    rules: Vec<RuleRow<'a>>,
    processes: Vec<ProcessRow<'a>>,
    /// Processes that could not be read.
    unknown: &'a [Unknown],
}

#[derive(Debug, Serialize)]
struct RuleRow<'a> {
    #[serde(flatten)]
    place: &'a Place,
    gets: RuleGets,
    design: Option<&'a str>,
    mode: Mode,
    limits: &'a ::manage::config::Limits,
    /// Number of running processes that the rule decides about.
    processes: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RuleGets {
    Design,
    AsRequested,
    LeaveAlone,
}

#[derive(Debug, Serialize)]
struct ProcessRow<'a> {
    pid: units::Pid,
    name: &'a str,
    user: Option<u32>,
    unit: Option<&'a str>,
    cgroup: Option<&'a str>,
    rule: Option<&'a Place>,
    outcome: Gotten,
    /// The design that would be kept in force.
    design: Option<String>,
    /// The mode, where a design would be kept in force.
    mode: Option<Mode>,
    /// What the process asks for and cannot have.
    asked: Option<String>,
    why: Option<String>,
}

/// What a process would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Gotten {
    Unmatched,
    LeaveAlone,
    BadRequest,
    UnknownRequest,
    UnknownLimits,
    Keep,
}

pub fn run(sources: &Sources, json: bool) -> Result<Done, Failure> {
    let root = Root::real();
    let config = Config::read(&root, sources).map_err(|error| Failure::mistakes(error.lines()))?;
    let selected = targets::select(&root, &[Target::All])?;
    let decide = |process| {
        ProcessRow::new(process, config.decide(process, || Request::read(&root, process)))
    };
    let processes: Vec<ProcessRow<'_>> = selected.processes.iter().map(decide).collect();
    let rules = config.rules.iter().map(|rule| RuleRow {
        place: &rule.place,
        gets: match rule.gets {
            Gets::Design(_) => RuleGets::Design,
            Gets::AsRequested => RuleGets::AsRequested,
            Gets::Nothing => RuleGets::LeaveAlone,
        },
        design: match &rule.gets {
            Gets::Design(design) => Some(&design.name),
            Gets::AsRequested | Gets::Nothing => None,
        },
        mode: rule.mode,
        limits: &rule.limits,
        processes: processes.iter().filter(|row| row.rule == Some(&rule.place)).count(),
    });
    let document = Document {
        files: config.files.iter().map(|file| file.display().to_string()).collect(),
        machine: &config.machine,
        rules: rules.collect(),
        processes,
        unknown: &selected.unknown,
    };
    match json {
        true => {
            let body = serde_json::to_value(&document);
            let body = body.map_err(|error| Failure::usage(format!("JSON: {error}")))?;
            exit::print_json(SCHEMA, body)?;
        }
        false => exit::print(&text(&document))?,
    }
    Ok(Done::Fine)
}

impl<'a> ProcessRow<'a> {
    fn new(process: &'a Process, decision: Decision<'a>) -> Self {
        let mut row = Self {
            pid: process.pid,
            name: &process.name,
            user: process.user,
            unit: process.unit.as_deref(),
            cgroup: process.cgroup.as_deref(),
            rule: decision.rule.map(|rule| &rule.place),
            outcome: Gotten::Unmatched,
            design: None,
            mode: None,
            asked: None,
            why: None,
        };
        row.outcome = match decision.outcome {
            Outcome::Unmatched => Gotten::Unmatched,
            Outcome::LeaveAlone => Gotten::LeaveAlone,
            Outcome::BadRequest { asked, why } => {
                (row.asked, row.why) = (Some(asked), Some(why));
                Gotten::BadRequest
            }
            Outcome::UnknownRequest { why } => {
                row.why = Some(why);
                Gotten::UnknownRequest
            }
            Outcome::UnknownLimits => {
                row.why = Some(::manage::config::HIDDEN.to_string());
                Gotten::UnknownLimits
            }
            Outcome::Keep(design) => {
                row.design = Some(design.name.clone());
                row.mode = decision.rule.map(|rule| rule.mode);
                Gotten::Keep
            }
        };
        row
    }

    /// What the process would get, in words.
    fn gets(&self) -> String {
        match self.outcome {
            Gotten::Unmatched => "-".to_string(),
            Gotten::LeaveAlone => "left alone".to_string(),
            Gotten::BadRequest => {
                format!("nothing: asks for {}", name(self.asked.as_deref().unwrap_or_default(), 40))
            }
            Gotten::UnknownRequest => "nothing: what it asks for is unknown".to_string(),
            Gotten::UnknownLimits => "nothing: its memory limits are unknown".to_string(),
            Gotten::Keep => name(self.design.as_deref().unwrap_or_default(), 40),
        }
    }
}

/// A rule's place, in one line.
fn place(place: &Place) -> String {
    format!("{}:{}", name(&place.file.to_string_lossy(), 60), place.line)
}

/// The processes that a rule matches, and a line that sums up.
fn text(document: &Document<'_>) -> String {
    let matched = document.processes.iter().filter(|row| row.rule.is_some());
    let rows: Vec<Vec<String>> = matched
        .map(|row| {
            let group = row.unit.or(row.cgroup).unwrap_or("-");
            let mode = match row.mode {
                None => "-",
                Some(Mode::Observe) => "observe",
                Some(Mode::Enforce) => "enforce",
            };
            vec![
                row.pid.to_string(),
                name(row.name, 15),
                name(group, 40),
                row.gets(),
                mode.to_string(),
                row.rule.map_or(String::new(), place),
            ]
        })
        .collect();
    let matches = rows.len();
    let mut text = String::new();
    if matches > 0 {
        let header = ["pid", "name", "unit or cgroup", "gets", "mode", "rule"];
        text += &show::table(&header, rows, &[1, 2, 3, 4, 5]);
        text.push('\n');
    }
    for row in &document.processes {
        if let Some(why) = &row.why {
            text += &format!("{} {}: {}\n", name(row.name, 15), row.pid, name(why, 300));
        }
    }
    for unknown in document.unknown {
        text += &format!("{}: {}\n", name(&unknown.what, 40), name(&unknown.why, 200));
    }
    text + &format!(
        "no mistake in {}: {}; {matches} of {} matched\n",
        counted(document.files.len(), "file", "files"),
        counted(document.rules.len(), "rule", "rules"),
        counted(document.processes.len(), "process", "processes"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: Gotten) -> ProcessRow<'static> {
        ProcessRow {
            pid: units::Pid(7),
            name: "a\u{1b}]0;x\u{7}\nb",
            user: None,
            unit: None,
            cgroup: Some("/x\n\u{1b}"),
            rule: None,
            outcome,
            design: None,
            mode: None,
            asked: None,
            why: None,
        }
    }

    #[test]
    fn hostile_names_stay_in_their_line_and_only_matched_processes_are_listed() {
        let place = Place { file: "/etc/x.toml".into(), line: 3 };
        let bad = ProcessRow {
            rule: Some(&place),
            asked: Some("\u{1b}[2J\nx".to_string()),
            why: Some("no \u{1b}\nx".to_string()),
            ..row(Gotten::BadRequest)
        };
        let machine = Machine::default();
        let document = Document {
            files: vec!["/etc/x.toml".to_string()],
            machine: &machine,
            rules: Vec::new(),
            processes: vec![row(Gotten::Unmatched), bad],
            unknown: &[],
        };
        let text = text(&document);
        assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
        // Header, the process, an empty line, why, and the sum.
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("/etc/x.toml:3"), "{text}");
        assert!(
            text.ends_with("no mistake in 1 file: 0 rules; 1 of 2 processes matched\n"),
            "{text}"
        );
    }
}
