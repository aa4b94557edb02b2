//! `superpage run --explain`: reports the actions taken for each rule of a design, or for the requested pages.
//!
//! Counts are in superpages. Uncounted values are unknown (`null`). Where the kernel counts only for the whole machine,
//! the count is an upper bound. The code uses few iterators, to keep the binary small.

mod row;

use abi::{Column, Prepared, Reason, Totals};
use experiment::supply::Supplied;
use host::{CounterDeltas, Thp};
use launch::{Pages, Plan, ThpRequest};
use live::{Account, Cause, Latency, Report};
use units::ByteSize;

use super::in_force::{BACKED_OFF, HELD};
use super::report::Ended;
use operations::design::recipe::{Instead, RuleNote};
use row::{OWN_RULES, Row, When};

pub use row::{document, in_words};

/// An ended run, with everything to report.
pub struct Run<'a> {
    pub plan: &'a Plan,
    /// Whether `notes` belong to a design.
    pub is_design: bool,
    pub notes: &'a [RuleNote],
    pub ended: &'a Ended,
    /// Totals of the library, if it was loaded and its counters can be read.
    pub totals: Option<Totals>,
    /// Increase of the machine's counters.
    pub machine: Option<CounterDeltas>,
    /// Why superpage could not make superpages in the program.
    pub refused: Option<&'a str>,
}

const COLLAPSE: &str = "MADV_COLLAPSE";
/// `MADV_COLLAPSE` without a copy.
const IN_PLACE: &str = "MADV_COLLAPSE in place";
const PARTLY_IN_PLACE: &str = "MADV_COLLAPSE, partly in place";
const LAUNCHER: &str = "privileged launcher";
const THREAD: &str = "allocating thread";
const KERNEL: &str = "kernel";
/// The actor of rules under which nothing was made.
const NO_ACTOR: &str = "none";
const CALL: When = When::AtOnce("in the call");
const FAULT: When = When::AtOnce("in the fault");
const MACHINE: &str = "the kernel counts for the whole machine only";

struct Rows(Vec<Row>);

impl Rows {
    /// Adds a row with unknown counts.
    fn add(&mut self, rule: &str, means: &'static str, by: &'static str) -> &mut Row {
        let at = self.0.len();
        self.0.push(Row { rule: rule.to_string(), means, by, ..Row::default() });
        &mut self.0[at]
    }
}

impl Run<'_> {
    /// Returns the rows: one per rule and mechanism.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Rows(Vec::new());
        let report = self.ended.in_force.as_ref().map(|it| &it.report);
        match (&self.plan.left_alone, report) {
            (Some(why), _) => {
                rows.add(&self.rule("allocation.form"), "nothing", NO_ACTOR).nothing(why);
            }
            (None, Some(report)) => {
                self.add_made(report, &mut rows);
                if self.plan.pages == Pages::Thp {
                    self.add_given(&mut rows);
                }
            }
            (None, None) => {
                self.add_given(&mut rows);
                self.add_prepared(&mut rows);
            }
        }
        if self.plan.in_place {
            self.add_files(&mut rows);
        }
        if let Some(Supplied { wanted, got, took, why_not, .. }) = &self.ended.supplied {
            let means = "hugetlb pool grown and given back";
            let row = rows.add(&self.rule("memory.reclaim"), means, LAUNCHER);
            row.made(*got, self.size());
            row.asked = Some(*wanted);
            row.when = later(Latency::from_ticks(took.clone()));
            row.why = why_not.clone().unwrap_or_default();
        }
        self.add_notes(report, &mut rows);
        rows.0
    }

    /// Names the design's rule `key`, or the --pages option.
    fn rule(&self, key: &str) -> String {
        // As the run is called: "auto" is carried out by other pages.
        let asked = self.plan.name.parse().unwrap_or(self.plan.pages);
        if self.is_design { key.to_string() } else { format!("--pages {asked}") }
    }

    fn size(&self) -> Option<u64> {
        match self.plan.pages {
            Pages::ThpOf(size) | Pages::Hugetlb(Some(size)) => Some(size.bytes()),
            _ => Thp::pmd_size_of(&host::Root::real()).ok().map(|size| size.bytes()),
        }
    }

    fn worth(&self, bytes: u64) -> Option<u64> {
        self.size().map(|size| bytes / size)
    }

    fn say_note(&self, row: &mut Row) {
        for note in self.notes {
            if note.key() == row.rule {
                row.say(&note.words);
            }
        }
    }

    /// Adds rows for the superpages that the launcher made in the program, by rule.
    fn add_made(&self, report: &Report, rows: &mut Rows) {
        let scans = self.notes.iter().any(|note| note.rule == Cause::Scan.rule());
        let usual = if scans { Cause::Scan } else { Cause::Mapping };
        for account in &report.accounts {
            let Account { cause, wanted, made, gone, .. } = *account;
            // A design's usual cause gets a row even if no memory qualified.
            if wanted == 0 && cause != usual {
                continue;
            }
            let by = if self.refused.is_some() { NO_ACTOR } else { LAUNCHER };
            let means = match account.in_place {
                0 => COLLAPSE,
                some if some == made => IN_PLACE,
                _ => PARTLY_IN_PLACE,
            };
            let row = rows.add(cause.rule(), means, by);
            row.made(made, self.size());
            if means == PARTLY_IN_PLACE {
                row.say(&format!("{} in place, the others by a copy", account.in_place));
            }
            (row.asked, row.refused) = (Some(wanted), Some(wanted.saturating_sub(made)));
            for (why, times) in &account.failed {
                row.failures.push((why, *times));
            }
            if gone > 0 {
                row.failures.push(("unmapped before it was made", gone));
            }
            if account.waiting > 0 {
                row.say(&format!("{} not made: {BACKED_OFF}", account.waiting));
            }
            if account.held > 0 {
                row.say(&format!("{} not filled: {HELD}", account.held));
            }
            row.when = later(account.latency);
            self.say_note(row);
            if let Some(why) = self.refused {
                row.say(why);
            }
        }
        if report.by_fault > 0 {
            let row = rows.add(Cause::Mapping.rule(), "kernel's fault", KERNEL);
            row.made(report.by_fault, self.size());
            row.when = FAULT;
            row.say("as they were seen in its page tables");
        }
        if report.by_others > 0 {
            let row = rows.add("(the program's advice)", "kernel's fault or khugepaged", KERNEL);
            row.made(report.by_others, self.size());
            row.say("of memory that the program advises itself");
        }
    }

    /// Adds a row for mappings backed by files of superpages.
    fn add_files(&self, rows: &mut Rows) {
        let row = rows.add("allocation.form", "file of superpages (tmpfs)", THREAD);
        row.when = CALL;
        if let Some(totals) = &self.totals {
            let bytes = totals.all(Column::Hugetlb);
            (row.done, row.bytes) = (self.worth(bytes), Some(bytes));
            let missing = totals.all(Column::FellBack) + totals.all(Column::Refused);
            (row.asked, row.refused) = (self.worth(totals.asked()), self.worth(missing));
            for why in Reason::ALL {
                if totals.times(why) > 0 {
                    row.failures.push((why.words(), totals.times(why)));
                }
            }
        }
        self.say_note(row);
    }

    /// Adds rows for superpages from the program's own calls and faults.
    fn add_given(&self, rows: &mut Rows) {
        let rule = self.rule("allocation.form");
        let uses_pool = matches!(self.plan.pages, Pages::Hugetlb(_));
        let mut advised = 0;
        if let Some(totals) = &self.totals {
            advised = totals.all(Column::Advised);
            self.add_requested(&rule, totals, rows);
        } else if self.plan.uses_library() || self.plan.pages == Pages::Thp {
            rows.add(&rule, "madvise, by the library or glibc", THREAD).when = CALL;
        }
        if self.plan.thp == ThpRequest::Disabled {
            let why = "superpages are disabled for the program";
            rows.add(&rule, "nothing", NO_ACTOR).nothing(why);
            return;
        }
        if uses_pool && advised == 0 {
            return;
        }
        let row = rows.add(&rule, "kernel's fault", KERNEL);
        self.bound(row, "thp_fault_alloc");
        row.bytes = self.ended.coverage().map(|coverage| coverage.anon_thp.bytes());
        row.say("bytes: on superpages when it held most, by any means");
        row.when = FAULT;
        let smaller = self.totals.as_ref().map(|totals| totals.times(Reason::Smaller));
        if smaller.is_some_and(|times| times > 0) || matches!(self.plan.pages, Pages::ThpOf(_)) {
            let row = rows.add(&rule, "smaller mTHP size", KERNEL);
            (row.asked, row.when) = (smaller, FAULT);
            row.say("asked: requests");
            row.say(MACHINE);
        }
        let row = rows.add(&self.rule(Cause::Scan.rule()), "khugepaged", KERNEL);
        self.bound(row, "thp_collapse_alloc");
    }

    /// Sets an upper bound from the machine's counter; exact if the counter is 0.
    fn bound(&self, row: &mut Row, counter: &str) {
        row.at_most = self.machine.as_ref().and_then(|machine| machine.get(counter));
        row.done = row.at_most.filter(|most| *most == 0);
        row.say(MACHINE);
    }

    /// Adds rows for requests to the library, and for the library's requests to the kernel.
    fn add_requested(&self, rule: &str, totals: &Totals, rows: &mut Rows) {
        let uses_pool = matches!(self.plan.pages, Pages::Hugetlb(_));
        for (column, means, is_usual) in [
            (Column::Hugetlb, "page of the hugetlb pool", uses_pool),
            (Column::Advised, "madvise by the library", !uses_pool),
        ] {
            let bytes = totals.all(column);
            if bytes == 0 && !is_usual {
                continue;
            }
            let row = rows.add(rule, means, THREAD);
            (row.done, row.bytes, row.when) = (self.worth(bytes), Some(bytes), CALL);
            if !is_usual {
                continue;
            }
            let missing = totals.all(Column::FellBack) + totals.all(Column::Refused);
            (row.asked, row.refused) = (self.worth(totals.asked()), self.worth(missing));
            for why in Reason::ALL {
                if totals.times(why) > 0 {
                    row.failures.push((why.words(), totals.times(why)));
                }
            }
        }
    }

    /// Adds rows for memory prepared before its first touch.
    fn add_prepared(&self, rows: &mut Rows) {
        let Some(totals) = &self.totals else { return };
        let key = |key, option| if self.is_design { key } else { option };
        let bytes = |what| totals.prepared(what);
        if self.plan.sets(abi::environment::PREZERO) {
            let rule = key("preparation.prezero", "--prezero");
            let row = rows.add(rule, "kept when unmapped and zeroed", THREAD);
            let (ready, mut missing) = (bytes(Prepared::HandedOut), 0);
            (row.done, row.bytes, row.when) = (self.worth(ready), Some(ready), CALL);
            self.say_note(row);
            for (what, why) in [
                (Prepared::Lost, "were reclaimed by the kernel"),
                (Prepared::Missed, "were not ready"),
            ] {
                if bytes(what) > 0 {
                    row.say(&format!("{} {why}", ByteSize(bytes(what))));
                }
                missing += bytes(what);
            }
            (row.asked, row.refused) = (self.worth(ready + missing), self.worth(missing));
        }
        if self.plan.sets(abi::environment::PREFAULT) {
            let rule = key("preparation.prefault", "--prefault");
            let row = rows.add(rule, "faulted in ahead (MADV_POPULATE_WRITE)", THREAD);
            let ahead = bytes(Prepared::Ahead);
            (row.done, row.bytes, row.when) = (self.worth(ahead), Some(ahead), CALL);
            self.say_note(row);
        }
    }

    /// Adds rows for rules that are not carried out as the design says and have no row yet.
    fn add_notes(&self, report: Option<&Report>, rows: &mut Rows) {
        for note in self.notes {
            if note.instead == Instead::Kernel {
                for rule in note.rule.split(", ") {
                    rows.add(rule, OWN_RULES, KERNEL);
                }
                continue;
            }
            let rule = note.key();
            if rows.0.iter().any(|row| row.rule == rule) {
                continue;
            }
            let (mut filled, mut reserved) = (0, None);
            if let Some(report) = report {
                if rule == "preparation" {
                    filled = report.accounts.iter().map(|account| account.filled).sum();
                } else if rule == "allocation.form" {
                    reserved = Some(report.reserved);
                }
            }
            if filled == 0 {
                let row = rows.add(rule, "nothing", NO_ACTOR);
                row.nothing(&note.words);
                row.asked = reserved;
                continue;
            }
            // `bytes` counts the missing base pages, which the superpages filled with zeros.
            let row = rows.add(rule, COLLAPSE, LAUNCHER);
            let pages = report.map_or(0, |report| report.filled_pages);
            row.bytes = Some(pages * host::Root::real().page_size().bytes());
            (row.done, row.when) = (Some(filled), When::With("with its copy"));
            row.say(&note.words);
        }
    }
}

fn later(latency: Option<Latency>) -> When {
    latency.map_or(When::Unknown, When::Later)
}
