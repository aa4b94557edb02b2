//! `superpage doctor`: the machine's settings, judged for a class of workload.

use anstyle::{AnsiColor, Style};
use doctor::{CHECKS, Facts, Finding, Lasting, Report, Severity, State, Step, Workload, examine};
use host::Root;
use operations::pool_guard;
use report::format::{counted, escaped};
use serde_json::{Value, json};

use crate::exit::{self, Done, Failure};
use crate::pool::show;

/// Check this machine's settings of superpages, and print how to fix them.
///
/// Each finding names the files that were read, why it matters, the commands that fix it until a reboot, and the lines or
/// boot parameters that fix it for good. Nothing is changed. What could not be read is unknown, not fine; root can read
/// most. If all is well, one line is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// What the machine is for
    #[arg(long = "for", value_name = "CLASS", value_enum, default_value_t = Class::Any)]
    workload: Class,

    /// Exit with 1 if there is a finding of this severity or a worse one
    #[arg(long, value_name = "SEVERITY", value_enum)]
    fail_if: Option<FailIf>,

    /// List every check with its result, and what is unknown
    #[arg(long, conflicts_with = "json")]
    all: bool,

    /// Print JSON (superpage.doctor/1)
    #[arg(long)]
    json: bool,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success, also with findings; 1 a finding that --fail-if names; 2 wrong usage; 3 nothing could be read.";

/// A class of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Class {
    /// Servers with large buffers whose latency matters: PostgreSQL, Redis, MySQL.
    Database,
    /// Java virtual machines.
    Jvm,
    /// Programs whose throughput matters: simulations, compilers, analytics.
    Batch,
    /// A host of virtual machines.
    Vm,
    /// Unknown or mixed.
    Any,
}

impl Class {
    fn workload(self) -> Workload {
        match self {
            Self::Database => Workload::Database,
            Self::Jvm => Workload::Jvm,
            Self::Batch => Workload::Batch,
            Self::Vm => Workload::Vm,
            Self::Any => Workload::Any,
        }
    }
}

/// The least severity that makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailIf {
    /// Good to know; may be set on purpose.
    Note,
    /// Costs speed, memory or superpages.
    Warning,
    /// Something that was asked for does not work.
    Error,
}

impl FailIf {
    fn severity(self) -> Severity {
        match self {
            Self::Note => Severity::Note,
            Self::Warning => Severity::Warning,
            Self::Error => Severity::Error,
        }
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let facts = Facts::read(&Root::real(), &pool_guard::journal_dir());
    let report = examine(&facts, args.workload.workload());
    if args.json {
        exit::print_json("superpage.doctor/1", document(&report))?;
    } else if args.all {
        exit::print(&(text(&report) + "\n" + &all(&report)))?;
    } else {
        exit::print(&text(&report))?;
    }
    let has_commands = report.findings.iter().any(|finding| !finding.remedy.now.is_empty());
    if has_commands && !args.json && sys::param::effective_user() != 0 {
        exit::say("the commands need root; run `superpage doctor` as root to see more");
    }
    if report.judged() == 0 {
        return Err(Failure::cannot("no check could be made: neither /proc nor /sys can be read"));
    }
    let is_bad = |least: FailIf| report.findings.iter().any(|it| it.severity >= least.severity());
    Ok(if args.fail_if.is_some_and(is_bad) { Done::Negative } else { Done::Fine })
}

fn document(report: &Report) -> Value {
    let findings = report.findings.iter().map(|finding| {
        let now = finding.remedy.now.iter().map(Step::command).collect::<Vec<_>>();
        let lasting = finding.remedy.lasting.iter().map(|lasting| {
            let since = match lasting {
                Lasting::Unit { since, .. } => *since,
                _ => None,
            };
            json!({
                "place": lasting.place(),
                "text": lasting.text(),
                "kind": lasting.kind(),
                "systemd": since,
            })
        });
        json!({
            "id": finding.id,
            "severity": finding.severity,
            "what": finding.what,
            "evidence": finding.evidence,
            "why": finding.why,
            "now": now,
            "lasting": lasting.collect::<Vec<_>>(),
        })
    });
    json!({
        "workload": report.workload,
        "findings": findings.collect::<Vec<_>>(),
        "checks": report.checks,
    })
}

/// Formats the findings, and one line that sums up.
fn text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += &one(finding);
        text.push('\n');
    }
    let unknown = report.count(State::Unknown);
    let listed = if unknown > 0 { " (--all lists them)" } else { "" };
    let severities = [
        (Severity::Error, "error", "errors"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Note, "note", "notes"),
    ];
    let found = severities.into_iter().filter_map(|(severity, one, many)| {
        let number = report.findings.iter().filter(|it| it.severity == severity).count();
        (number > 0).then(|| counted(number, one, many))
    });
    let found: Vec<String> = found.collect();
    let found = if found.is_empty() { "No findings".to_string() } else { found.join(", ") };
    let checks = report.judged();
    text + &format!("{found} for {}: {checks} checks, {unknown} unknown{listed}\n", report.workload)
}

fn one(finding: &Finding) -> String {
    let (name, colour) = match finding.severity {
        Severity::Error => ("error", AnsiColor::Red),
        Severity::Warning => ("warning", AnsiColor::Yellow),
        Severity::Note => ("note", AnsiColor::Cyan),
    };
    let style = Style::new().fg_color(Some(colour.into())).bold();
    let mut text = format!("{style}{name}{style:#} {}: {}\n", finding.id, escaped(&finding.what));
    let mut rows = |head: &str, lines: Vec<String>| {
        for (index, line) in lines.iter().enumerate() {
            let head = if index == 0 { head } else { "" };
            text += &format!("  {head:<8} {}\n", escaped(line));
        }
    };
    let read = finding.evidence.iter().map(|it| format!("{}: {}", it.file, it.value));
    rows("read", read.collect());
    rows("why", vec![finding.why.to_string()]);
    rows("now", finding.remedy.now.iter().map(Step::command).collect());
    let lasting = finding.remedy.lasting.iter().flat_map(|it| {
        let text = it.text();
        let mut lines = text.lines();
        let since = match it {
            Lasting::Unit { since: Some(version), .. } => format!(" (systemd {version} or later)"),
            _ => String::new(),
        };
        let first = format!("{}{since}: {}", it.place(), lines.next().unwrap_or_default());
        let rest = lines.map(|line| format!("  {line}"));
        std::iter::once(first).chain(rest).collect::<Vec<_>>()
    });
    rows("to stay", lasting.collect());
    text
}

/// Lists every check with its result.
fn all(report: &Report) -> String {
    let finds = |id: &str| CHECKS.iter().find(|check| check.id == id).map_or("", |it| it.finds);
    let rows = report.checks.iter().map(|check| {
        let state = match check.state {
            State::Fine => "fine",
            State::Found => "found",
            State::NotApplicable => "does not apply",
            State::Unknown => "unknown",
        };
        vec![check.id.to_string(), state.to_string(), finds(check.id).to_string()]
    });
    let mut text = show::table(&["check", "result", "finds"], rows.collect(), &[0, 1, 2]);
    for check in &report.checks {
        for unknown in &check.unknown {
            text += &(escaped(&format!("unknown: {}: {unknown}", check.id)) + "\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use doctor::{Checked, Evidence, Remedy};

    use super::*;

    fn report(findings: Vec<Finding>, unknown: usize) -> Report {
        let checks = CHECKS.iter().enumerate().map(|(index, check)| Checked {
            id: check.id,
            state: if index < unknown { State::Unknown } else { State::Fine },
            unknown: Vec::new(),
        });
        Report { workload: Workload::Database, findings, checks: checks.collect() }
    }

    #[test]
    fn a_machine_where_all_is_well_gets_one_line() {
        let all = CHECKS.len();
        assert_eq!(
            text(&report(Vec::new(), 0)),
            format!("No findings for database: {all} checks, 0 unknown\n")
        );
        let line = text(&report(Vec::new(), 2));
        let rest = format!("{} checks, 2 unknown (--all lists them)\n", all - 2);
        assert_eq!(line, format!("No findings for database: {rest}"));
    }

    #[test]
    fn hostile_names_stay_in_their_line() {
        let evil = "a\u{1b}]0;x\u{7}\nerror b";
        let finding = Finding {
            id: "thp-never",
            severity: Severity::Warning,
            what: evil.to_string(),
            evidence: vec![Evidence { file: evil.to_string(), value: evil.to_string() }],
            why: "x",
            remedy: Remedy {
                now: vec![Step::Run { words: vec![evil.to_string()] }],
                lasting: Vec::new(),
            },
        };
        let text = anstream::adapter::strip_str(&text(&report(vec![finding], 0))).to_string();
        assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
        assert_eq!(text.lines().count(), 6, "{text}");
    }

    #[test]
    fn commands_of_superpage_in_remedies_exist() {
        for words in [
            "pool set 2M:512",
            "pool set 2M:512 --node 1",
            "pool mounts create 1G --root-only",
            "pool plan -- PROGRAM",
            "pool grow default:1G",
            "pool boot 2M:512",
            "restore",
            "tlb",
        ] {
            let words = ["superpage"].into_iter().chain(words.split(' '));
            crate::Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
