//! `superpage run --explain`: what was done about each rule of a design, or about the pages that were asked for.
//!
//! Counts are of superpages. What nobody counted is unknown (`null`); of what only the machine counts, as many is known
//! as it was at most.

use std::collections::BTreeMap;

use ::report::format as words;
use abi::{Column, Prepared, Reason, Totals};
use experiment::supply::Supplied;
use host::{CounterDeltas, Thp};
use launch::{Pages, Plan, ThpRequest};
use live::{Account, Cause, Latency, Report};
use serde_json::{Value, json};
use units::ByteSize;

use super::report::Ended;
use crate::design::recipe::{Instead, RuleNote};
use crate::pool::show;

/// What there is to tell of a run that has ended.
pub struct Run<'a> {
    pub plan: &'a Plan,
    /// Whether `notes` are of a design.
    pub is_design: bool,
    pub notes: &'a [RuleNote],
    pub ended: &'a Ended,
    /// Of the library, where it was in the program and its counters can be read.
    pub totals: Option<Totals>,
    /// What the machine's counters grew by.
    pub machine: Option<CounterDeltas>,
    /// Why superpage could not make superpages in the program.
    pub refused: Option<&'a str>,
}

/// A rule, and what was done about it in one way.
#[derive(Debug, Default, PartialEq)]
pub struct Row {
    rule: String,
    asked: Option<u64>,
    done: Option<u64>,
    /// Where `done` is unknown.
    at_most: Option<u64>,
    bytes: Option<u64>,
    /// Those asked for that were not made.
    refused: Option<u64>,
    /// Why, and how often: an attempt may be repeated.
    failures: BTreeMap<String, u64>,
    means: &'static str,
    by: &'static str,
    when: When,
    why: String,
}

/// How long after what asked for it.
#[derive(Debug, Default, PartialEq)]
enum When {
    #[default]
    Unknown,
    /// Before the call, or the fault, returned.
    Within(&'static str),
    Later(Latency),
}

const COLLAPSE: &str = "MADV_COLLAPSE";
const LAUNCHER: &str = "privileged launcher";
const THREAD: &str = "allocating thread";
const KERNEL: &str = "kernel";
const OWN_RULES: &str = "the kernel's own rules";
const CALL: When = When::Within("in the call");
const WITH_COPY: &str = "with its copy";
const MACHINE: &str = "the kernel counts for the whole machine only";

impl Row {
    fn new(rule: impl Into<String>, means: &'static str, by: &'static str) -> Self {
        Self { rule: rule.into(), means, by, ..Self::default() }
    }

    fn nothing(rule: &str, why: &str) -> Self {
        let (done, bytes) = (Some(0), Some(0));
        Self { done, bytes, why: why.to_string(), ..Self::new(rule, "nothing", "nobody") }
    }

    fn document(&self) -> Value {
        let (median, p99, when) = match self.when {
            When::Unknown => (None, None, None),
            When::Within(WITH_COPY) => (None, None, Some(WITH_COPY)),
            When::Within(when) => (Some(0.0), Some(0.0), Some(when)),
            When::Later(Latency { median_seconds, p99_seconds }) => {
                (Some(median_seconds * 1e3), Some(p99_seconds * 1e3), Some("later"))
            }
        };
        json!({
            "rule": self.rule, "asked": self.asked, "done": self.done, "done_at_most": self.at_most,
            "bytes": self.bytes, "refused": self.refused, "failures": self.failures,
            "means": self.means, "by": self.by, "when": when, "median_ms": median, "p99_ms": p99,
            "why": Some(&self.why).filter(|why| !why.is_empty()),
        })
    }

    fn cells(&self) -> Vec<String> {
        let done = match (self.done, self.at_most) {
            (None, Some(most)) => format!("<= {most}"),
            (done, _) => show::known(done),
        };
        let when = match self.when {
            When::Unknown if self.done == Some(0) => "-".to_string(),
            When::Unknown => "unknown".to_string(),
            When::Within(when) => when.to_string(),
            When::Later(Latency { median_seconds, p99_seconds }) => {
                let [half, most] = [median_seconds, p99_seconds].map(words::seconds);
                format!("{half}, {most}")
            }
        };
        vec![
            self.rule.clone(),
            show::known(self.asked),
            done,
            words::known(self.bytes, |bytes| ByteSize(bytes).to_string()),
            show::known(self.refused),
            self.means.to_string(),
            self.by.to_string(),
            when,
        ]
    }
}

/// `explain` of `superpage.run/1`.
pub fn document(rows: &[Row]) -> Value {
    rows.iter().map(Row::document).collect()
}

/// The table, and below it why something was not done, or otherwise.
pub fn in_words(rows: &[Row]) -> String {
    let head =
        ["rule", "asked", "done", "bytes", "refused", "by what means", "by whom", "median, 99 %"];
    let (others, rows): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.means == OWN_RULES);
    let mut text = show::table(&head, rows.iter().map(|row| row.cells()).collect(), &[0, 5, 6, 7]);
    for row in rows {
        let failures = row.failures.iter();
        let failures = failures.map(|(why, times)| format!("failed {times} times: {why}"));
        for why in failures.chain(Some(row.why.clone()).filter(|why| !why.is_empty())) {
            let line = format!("  {}: {why}\n", row.rule);
            if !text.ends_with(&line) {
                text += &line;
            }
        }
    }
    if !others.is_empty() {
        let rules: Vec<&str> = others.iter().map(|row| row.rule.as_str()).collect();
        text += &format!("  by the kernel's own rules: {}\n", rules.join(", "));
    }
    text
}

impl Run<'_> {
    /// What was done, rule by rule.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let report = self.ended.in_force.as_ref().map(|it| &it.report);
        if let Some(why) = &self.plan.left_alone {
            rows.push(Row::nothing(&self.rule("allocation.form"), why));
        } else {
            match report {
                Some(report) => self.add_made(report, &mut rows),
                None => self.add_given(&mut rows),
            }
            self.add_prepared(&mut rows);
            rows.extend(self.ended.supplied.as_ref().map(|supplied| self.supplied(supplied)));
        }
        self.add_notes(report, &mut rows);
        rows
    }

    /// A design's rule, or what else was asked for.
    fn rule(&self, key: &str) -> String {
        if self.is_design { key.to_string() } else { format!("--pages {}", self.plan.pages) }
    }

    /// The size of the superpages that were asked for.
    fn size(&self) -> Option<u64> {
        match self.plan.pages {
            Pages::ThpOf(size) | Pages::Hugetlb(Some(size)) => Some(size.bytes()),
            _ => Thp::pmd_size_of(&host::Root::real()).ok().map(|size| size.bytes()),
        }
    }

    fn worth(&self, bytes: u64) -> Option<u64> {
        self.size().map(|size| bytes / size)
    }

    /// What superpage made beside the program, by each rule that makes superpages.
    fn add_made(&self, report: &Report, rows: &mut Vec<Row>) {
        let scans = self.notes.iter().any(|note| note.rule == Cause::Scan.rule());
        for account in &report.accounts {
            // The usual one of a design is there also where nothing qualified.
            let is_usual = account.cause == if scans { Cause::Scan } else { Cause::Mapping };
            if account.wanted > 0 || is_usual {
                rows.push(self.made(account));
            }
        }
        if report.by_others > 0 {
            rows.push(Row {
                done: Some(report.by_others),
                bytes: self.size().map(|size| report.by_others * size),
                why: "of memory that the program advises itself".to_string(),
                ..Row::new("(the program's advice)", "kernel's fault or khugepaged", KERNEL)
            });
        }
    }

    fn made(&self, account: &Account) -> Row {
        let Account { cause, wanted, made, gone, .. } = *account;
        let failed = account.failed.iter().map(|(why, times)| (why.to_string(), *times));
        let gone = (gone > 0).then(|| ("unmapped before it was made".to_string(), gone));
        let is_barred = self.refused.is_some();
        Row {
            asked: Some(wanted),
            done: Some(made),
            bytes: self.size().map(|size| made * size),
            refused: Some(wanted.saturating_sub(made)),
            failures: failed.chain(gone).collect(),
            when: account.latency.map_or(When::Unknown, When::Later),
            why: self.why(cause.rule(), self.refused),
            ..Row::new(cause.rule(), COLLAPSE, if is_barred { "nobody" } else { LAUNCHER })
        }
    }

    /// What a note says about a rule, and what else there is to say.
    fn why(&self, rule: &str, more: Option<&str>) -> String {
        let of_rule = |note: &&RuleNote| note.rule.trim_matches(['[', ']']) == rule;
        let noted = self.notes.iter().filter(of_rule).map(|note| note.words.as_str());
        noted.chain(more).collect::<Vec<_>>().join("; ")
    }

    /// What the program's own calls and faults gave it.
    fn add_given(&self, rows: &mut Vec<Row>) {
        let rule = self.rule("allocation.form");
        if let Some(totals) = &self.totals {
            self.add_requested(&rule, totals, rows);
        } else if self.plan.uses_library() || matches!(self.plan.pages, Pages::Thp) {
            let means = "madvise, by the library or glibc";
            rows.push(Row { when: CALL, ..Row::new(rule.as_str(), means, THREAD) });
        }
        if self.plan.thp == ThpRequest::Disabled {
            rows.push(Row::nothing(&rule, "superpages are disabled for the program"));
            return;
        }
        let is_advised = self.totals.as_ref().is_some_and(|it| it.all(Column::Advised) > 0);
        if matches!(self.plan.pages, Pages::Hugetlb(_)) && !is_advised {
            return;
        }
        let coverage = self.ended.coverage();
        let grew = |name: &str| self.machine.as_ref().and_then(|machine| machine.get(name));
        let by_machine = |rule: &str, means, counter| {
            let grew = grew(counter);
            Row {
                done: grew.filter(|grew| *grew == 0),
                at_most: grew,
                why: MACHINE.to_string(),
                ..Row::new(rule, means, KERNEL)
            }
        };
        let fault = by_machine(&rule, "kernel's fault", "thp_fault_alloc");
        rows.push(Row {
            bytes: coverage.map(|it| it.anon_thp.bytes()),
            when: When::Within("in the fault"),
            why: format!("{MACHINE}; bytes: on superpages when it held most, by any means"),
            ..fault
        });
        let smaller = self.totals.as_ref().map(|totals| totals.times(Reason::Smaller));
        if smaller.is_some_and(|times| times > 0) || matches!(self.plan.pages, Pages::ThpOf(_)) {
            rows.push(Row {
                asked: smaller,
                when: When::Within("in the fault"),
                why: format!("asked: requests; {MACHINE}"),
                ..Row::new(rule.as_str(), "smaller mTHP size", KERNEL)
            });
        }
        let scan = self.rule(Cause::Scan.rule());
        rows.push(by_machine(&scan, "khugepaged", "thp_collapse_alloc"));
    }

    /// What the library was asked for, and asked for in its turn.
    fn add_requested(&self, rule: &str, totals: &Totals, rows: &mut Vec<Row>) {
        let reasons = Reason::ALL.into_iter().filter(|why| totals.times(*why) > 0);
        let reasons: BTreeMap<String, u64> =
            reasons.map(|why| (why.words().to_string(), totals.times(why))).collect();
        let pool = (Column::Hugetlb, "page of the hugetlb pool");
        let advised = (Column::Advised, "madvise by the library");
        let uses_pool = matches!(self.plan.pages, Pages::Hugetlb(_));
        let ways = if uses_pool { [pool, advised] } else { [advised, pool] };
        for (at, (column, means)) in ways.into_iter().enumerate() {
            let bytes = totals.all(column);
            if at == 0 {
                rows.push(Row {
                    asked: self.worth(totals.asked()),
                    done: self.worth(bytes),
                    bytes: Some(bytes),
                    refused: self.worth(totals.all(Column::FellBack) + totals.all(Column::Refused)),
                    failures: reasons.clone(),
                    when: CALL,
                    ..Row::new(rule, means, THREAD)
                });
            } else if bytes > 0 {
                let (done, bytes) = (self.worth(bytes), Some(bytes));
                rows.push(Row { done, bytes, when: CALL, ..Row::new(rule, means, THREAD) });
            }
        }
    }

    /// What was ready before it was touched.
    fn add_prepared(&self, rows: &mut Vec<Row>) {
        let Some(totals) = &self.totals else { return };
        let sets =
            |variable: &str| self.plan.environment.iter().any(|change| change.variable == variable);
        let key = |key: &str, option: &str| {
            if self.is_design { format!("preparation.{key}") } else { option.to_string() }
        };
        let bytes = |what| totals.prepared(what);
        if sets(abi::environment::PREZERO) {
            let (ready, lost) = (bytes(Prepared::HandedOut), bytes(Prepared::Lost));
            let missed = bytes(Prepared::Missed);
            let more = [("reclaimed by the kernel", lost), ("not ready", missed)];
            let more = more.into_iter().filter(|(_, bytes)| *bytes > 0);
            let more = more.map(|(why, bytes)| format!("{}: {why}", ByteSize(bytes)));
            let more = more.collect::<Vec<_>>().join("; ");
            let rule = key("prezero", "--prezero");
            rows.push(Row {
                asked: self.worth(ready + lost + missed),
                done: self.worth(ready),
                bytes: Some(ready),
                refused: self.worth(lost + missed),
                when: CALL,
                why: self.why(&rule, Some(&more).filter(|it| !it.is_empty()).map(String::as_str)),
                ..Row::new(rule, "kept when unmapped and zeroed", THREAD)
            });
        }
        if sets(abi::environment::PREFAULT) {
            let ahead = bytes(Prepared::Ahead);
            let rule = key("prefault", "--prefault");
            rows.push(Row {
                done: self.worth(ahead),
                bytes: Some(ahead),
                when: CALL,
                why: self.why(&rule, None),
                ..Row::new(rule, "faulted in ahead (MADV_POPULATE_WRITE)", THREAD)
            });
        }
    }

    fn supplied(&self, supplied: &Supplied) -> Row {
        let Supplied { wanted, got, took, why_not, .. } = supplied;
        Row {
            asked: Some(*wanted),
            done: Some(*got),
            bytes: self.size().map(|size| got * size),
            when: Latency::from_ticks(took.clone()).map_or(When::Unknown, When::Later),
            why: why_not.clone().unwrap_or_default(),
            ..Row::new(self.rule("memory.reclaim"), "hugetlb pool grown and given back", LAUNCHER)
        }
    }

    /// Rules that are not carried out as the design says, but for those that have a row.
    fn add_notes(&self, report: Option<&Report>, rows: &mut Vec<Row>) {
        for note in self.notes {
            if note.instead == Instead::Kernel {
                rows.extend(note.rule.split(", ").map(|rule| Row::new(rule, OWN_RULES, KERNEL)));
                continue;
            }
            let rule = note.rule.trim_matches(['[', ']']);
            if rows.iter().any(|row| row.rule == rule) {
                continue;
            }
            rows.push(match (rule, report) {
                ("allocation.form", Some(report)) => {
                    Row { asked: Some(report.reserved), ..Row::nothing(rule, &note.words) }
                }
                ("preparation", Some(report)) => self.filled(rule, note, report),
                _ => Row::nothing(rule, &note.words),
            });
        }
    }

    /// Missing pages, which superpages had zeros in the place of.
    fn filled(&self, rule: &str, note: &RuleNote, report: &Report) -> Row {
        let filled: u64 = report.accounts.iter().map(|account| account.filled).sum();
        if filled == 0 {
            return Row::nothing(rule, &note.words);
        }
        let page = host::Root::real().page_size().bytes();
        Row {
            done: Some(filled),
            bytes: Some(report.filled_pages * page),
            why: note.words.clone(),
            when: When::Within(WITH_COPY),
            ..Row::new(rule, COLLAPSE, LAUNCHER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero_and_what_only_the_machine_counts_is_a_bound() {
        let later = Latency { median_seconds: 0.0005, p99_seconds: 0.02 };
        let row = |rule: &str| Row::new(rule, COLLAPSE, LAUNCHER);
        let why = MACHINE.to_string();
        let rows = [
            Row {
                asked: Some(3),
                done: Some(2),
                bytes: Some(4 << 20),
                refused: Some(1),
                failures: [("none was free (ENOMEM)".to_string(), 5)].into(),
                when: When::Later(later),
                ..row("mapping.when")
            },
            Row { at_most: Some(7), why: why.clone(), ..row("mapping.scan") },
            Row { when: CALL, why, ..row("mapping.scan") },
            Row::new("fault.rss", OWN_RULES, KERNEL),
            Row::new("memory.reclaim", OWN_RULES, KERNEL),
        ];
        let text = in_words(&rows);
        let words: Vec<Vec<&str>> =
            text.lines().map(|it| it.split_whitespace().collect()).collect();
        let shown = ["mapping.when", "3", "2", "4", "MiB", "1", COLLAPSE];
        assert_eq!(words[1][..7], shown, "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with("500 µs, 20.00 ms"), "{text}");
        assert_eq!(words[2][..6], ["mapping.scan", "unknown", "<=", "7", "unknown", "unknown"]);
        assert!(text.lines().nth(3).unwrap().ends_with("in the call"), "{text}");
        let below: Vec<&str> = text.lines().skip(4).collect();
        let machine = format!("  mapping.scan: {MACHINE}");
        let failed = "  mapping.when: failed 5 times: none was free (ENOMEM)";
        let own = "  by the kernel's own rules: fault.rss, memory.reclaim";
        assert_eq!(below, [failed, &machine, own]);

        let documents = document(&rows);
        assert_eq!(documents[0]["p99_ms"], 20.0);
        assert_eq!(
            (&documents[1]["done"], &documents[1]["done_at_most"]),
            (&Value::Null, &7.into())
        );
        let call = &documents[2];
        assert_eq!((&call["when"], &call["median_ms"]), (&"in the call".into(), &0.0.into()));
        assert!(documents[3]["when"].is_null() && documents[3]["bytes"].is_null());
    }
}
