//! Reports the pages a run got: one line of text, or JSON.

use abi::{Column, Kind, Prepared, Reason, Shortage, Totals, environment};
use experiment::analysis::took_effect;
use experiment::counters::CounterFile;
use experiment::supply::Supplied;
use experiment::verdict::Effect;
use experiment::watch::{AT_PEAK, Gap, Killed, NEAR_PEAK, Observed, OverTime};
use host::coverage::Coverage;
use launch::{Children, EnvironmentChange, Pages, Plan, Promise, ThpRequest, Word};
use report::format as words;
use serde_json::{Map, Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use sys::prctl::ThpControl;
use sys::wait::Usage;
use units::{ByteSize, PageSize, Pid};

use super::in_force::InForce;
use crate::counters;

/// Minimum share (0 to 1) of the eligible memory on superpages for `thp` and `hugetlb` to count as in effect.
const MIN_COVERAGE: f64 = 0.8;

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub seconds: f64,
    /// What an applied design did.
    pub in_force: Option<InForce>,
    /// Superpages that were freed for the design.
    pub supplied: Option<Supplied>,
    /// Whether superpages of any kind satisfy the request (`--pages auto`).
    pub may_have_any: bool,
    /// Whether the pool was allowed to grow.
    pub has_grown_pool: bool,
    pub usage: Usage,
    pub seen: Observed,
    /// The main process. A signal that killed it is in `status`, so the list of killed children omits it.
    pub pid: Pid,
}

/// Whether the program got the requested pages.
enum Outcome {
    NothingAsked,
    AsAsked,
    Missing(String),
    Unknown(Unread),
}

/// Why the pages at the peak are unknown.
enum Unread {
    /// No sample found any memory; holds the kernel's error, if any.
    Never(Option<String>),
    /// The coverage was read when memory was at this share (0 to 1) of the peak.
    Part(f64),
    /// Only bounds of the peak are known.
    Bounds,
    /// The samples do not decide the outcome, for this reason.
    Judged(String),
}

impl Unread {
    fn in_words(&self) -> String {
        match self {
            Self::Never(Some(why)) | Self::Judged(why) => why.clone(),
            Self::Never(None) => "its memory was not read before it ended".to_string(),
            Self::Part(share) => {
                format!("its memory was read at {} of its peak", words::percent(*share))
            }
            Self::Bounds => "only bounds of its peak are known".to_string(),
        }
    }
}

impl Ended {
    /// Returns the memory by page size at the peak.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.seen.coverage.as_ref()
    }

    fn outcome(&self, plan: &Plan) -> Outcome {
        if let Some(why) = &plan.left_alone {
            return Outcome::Missing(why.clone());
        }
        if plan.promise == Promise::Nothing {
            return Outcome::NothingAsked;
        }
        // Whether every sample said that the program can have no superpages.
        let is_without =
            plan.promise == Promise::BasePages && self.seen.base_pages_only == Some(true);
        let Some(coverage) = &self.seen.coverage else {
            return match is_without {
                true => Outcome::AsAsked,
                false => Outcome::Unknown(self.unread()),
            };
        };
        match self.seen.coverage_of_peak() {
            _ if is_without => {}
            None => return Outcome::Unknown(Unread::Bounds),
            Some(share) if share < NEAR_PEAK => return Outcome::Unknown(Unread::Part(share)),
            Some(_) => {}
        }
        let pages = if self.may_have_any { Pages::Auto } else { plan.pages };
        match took_effect(plan.promise, pages, &[coverage], MIN_COVERAGE) {
            Effect::AsPromised => Outcome::AsAsked,
            Effect::Missing { why } => Outcome::Missing(why),
            Effect::Unknown { why } => Outcome::Unknown(Unread::Judged(why)),
        }
    }

    fn unread(&self) -> Unread {
        Unread::Never(self.seen.unknown.clone())
    }

    /// Formats one line on the program, and further lines on the library and the design. `fallback` names the pages of
    /// memory that fell back.
    pub fn in_words(
        &self,
        plan: &Plan,
        counters: Option<&CounterFile>,
        fallback: &str,
    ) -> Vec<String> {
        let seen = &self.seen;
        let peak = peak_in_words(seen);
        let coverage = match &seen.coverage {
            None => format!("coverage unknown: {}", self.unread().in_words()),
            Some(coverage) => {
                let share = words::known(coverage.ratio(), words::percent);
                let at = match seen.coverage_of_peak() {
                    Some(share) if share >= AT_PEAK => String::new(),
                    Some(share) => format!(", seen at {} of the peak", words::percent(share)),
                    None => ", which may be less than the peak".to_string(),
                };
                let (on, of) = (coverage.superpage_bytes(), coverage.resident());
                // The kernel counts smaller superpages only for the whole machine.
                let size = match plan.pages {
                    Pages::ThpOf(size) => format!("larger than {size} "),
                    _ => String::new(),
                };
                let over_time = over_time_in_words(&seen.over_time);
                format!("{share} of its memory on superpages {size}({on} of {of}{at}), {over_time}")
            }
        };
        let outcome = match (self.outcome(plan), &seen.coverage) {
            (Outcome::NothingAsked, _) | (Outcome::Unknown(_), None) => String::new(),
            (Outcome::AsAsked, _) => format!("; {} took effect", plan.name),
            (Outcome::Missing(why), _) => {
                let remedy = self.too_large(plan).unwrap_or_default();
                format!("; {} did not take effect: {why}{remedy}", plan.name)
            }
            (Outcome::Unknown(why), _) => {
                format!("; whether {} took effect is unknown: {}", plan.name, why.in_words())
            }
        };
        let line = format!("{}: {coverage}{outcome}; {:.2} s, {peak}", plan.name, self.seconds);
        // A note has said why the library did nothing.
        let is_known = plan.is_out_of_reach()
            && counters.and_then(CounterFile::totals).is_some_and(|totals| totals.processes() == 0);
        let library = counters
            .filter(|_| !is_known)
            .map(|counters| counters::summary(counters, seen.uncounted, fallback, plan.in_place));
        let shortage = shortage(plan, counters)
            .map(|it| counters::shortage_in_words(&it, self.has_grown_pool));
        let killed = self.children_killed().unwrap_or_default().into_iter();
        let killed = killed.filter_map(|child| {
            let why = why_killed(plan, child)?;
            Some(format!("child process {} was killed by SIGBUS: {why}", child.pid))
        });
        let in_force = self.in_force.as_ref();
        let in_force = in_force.map(|it| it.in_words(&plan.name, self.seconds));
        let supplied = self.supplied.as_ref().filter(|it| it.requests > 0).map(supplied_in_words);
        let turned_off = self.turned_thp_off(plan).map(|name| {
            format!("{name} turned THP off for itself (prctl PR_SET_THP_DISABLE): it gets none")
        });
        // With --approximate, prefix every line with the plan's name, so that no line is read as a result of the design
        // itself.
        let named = |line: String| match plan.approximate {
            true => format!("{}: {line}", plan.name),
            false => line,
        };
        let others =
            library.into_iter().chain(turned_off).chain(shortage).chain(supplied).map(named);
        std::iter::once(line).chain(others).chain(in_force).chain(killed.map(named)).collect()
    }

    /// Says what to do if the requested pages are larger than the program's memory ever was.
    fn too_large(&self, plan: &Plan) -> Option<String> {
        let Pages::Hugetlb(Some(size)) = plan.pages else { return None };
        let peak = self.seen.peak_resident_bytes.or(self.seen.peak_at_most_bytes)?;
        let smallest = PageSize::new(2 << 20).ok()?;
        (peak < size.bytes() && size > smallest).then(|| {
            format!(
                "; one page of {size} is more than all of its memory ({}): use --pages hugetlb:2M, or --pages thp",
                ByteSize(peak)
            )
        })
    }

    /// Returns the name of a process that disabled THP for itself although the plan allowed it.
    fn turned_thp_off(&self, plan: &Plan) -> Option<&str> {
        let was_off = match plan.thp {
            ThpRequest::Inherit => sys::prctl::thp().is_ok_and(|thp| thp == ThpControl::Disabled),
            ThpRequest::Disabled => true,
            ThpRequest::System | ThpRequest::OnlyAdvised => false,
        };
        self.seen.without_thp.as_deref().filter(|_| !was_off && plan.pages != Pages::Base)
    }

    /// Returns the child processes that a signal killed; `None` if the kernel does not report them.
    fn children_killed(&self) -> Option<Vec<Killed>> {
        let killed = self.seen.killed.as_ref()?.iter();
        Some(killed.copied().filter(|child| child.pid != self.pid).collect())
    }

    /// Formats `superpage.run/1`: bytes, seconds, shares from 0 to 1; `null` is unknown.
    pub fn document(&self, plan: &Plan, command: &[Word], counters: Option<&CounterFile>) -> Value {
        let seen = &self.seen;
        let coverage = seen.coverage.as_ref();
        let (outcome, why) = match self.outcome(plan) {
            Outcome::NothingAsked => ("nothing-asked", None),
            Outcome::AsAsked => ("as-asked", None),
            Outcome::Missing(why) => ("did-not-take-effect", Some(why)),
            Outcome::Unknown(why) => ("unknown", Some(why.in_words())),
        };
        let over_time = &seen.over_time;
        json!({
            "schema": "superpage.run/1",
            "name": plan.name,
            "command": command,
            "pages": plan.pages.to_string(),
            "approximate": plan.approximate,
            "exit_code": self.status.code(),
            "signal": self.status.signal(),
            "wall_seconds": self.seconds,
            "user_seconds": self.usage.user.as_secs_f64(),
            "system_seconds": self.usage.system.as_secs_f64(),
            "minor_faults": self.usage.minor_faults,
            "major_faults": self.usage.major_faults,
            "peak_bytes": seen.peak_resident_bytes,
            "peak_at_least_bytes": seen.peak_at_least_bytes,
            "peak_at_most_bytes": seen.peak_at_most_bytes,
            "processes_unseen": seen.processes_unseen,
            "coverage": coverage.and_then(|it| it.ratio()),
            "coverage_of_peak": seen.coverage_of_peak(),
            "resident_bytes": coverage.map(|it| it.resident().bytes()),
            "superpage_bytes": coverage.map(|it| it.superpage_bytes().bytes()),
            "memory": coverage,
            "over_time": {
                "mean_coverage": over_time.mean_coverage,
                "end_coverage": over_time.end_coverage(),
                "end_seconds": over_time.end.map(|end| end.seconds),
                "end_resident_bytes": over_time.end.map(|end| end.resident_bytes),
                "end_superpage_bytes": over_time.end.and_then(|end| end.superpage_bytes),
                "why": over_time.gap.map(gap_in_words),
            },
            "outcome": outcome,
            "why": why,
            "thp_disabled_by": self.turned_thp_off(plan),
            "children_killed": self.children_killed().map(|killed| killed.into_iter().map(|child| json!({
                "pid": child.pid.0, "signal": child.signal, "reason": why_killed(plan, child),
            })).collect::<Vec<_>>()),
            "watch_seconds": seen.watch_seconds,
            "design": self.in_force,
            "supplied": self.supplied,
            "library": counters.and_then(CounterFile::totals).map(|totals| library(&totals, seen.uncounted)),
            "shortage": shortage(plan, counters).map(|it| json!({
                "page_bytes": it.page,
                "wanted_pages": it.wanted,
                "had_pages": it.had,
                "missing_bytes": it.missing,
                "reason": it.why.map(Reason::name),
            })),
        })
    }
}

fn shortage(plan: &Plan, counters: Option<&CounterFile>) -> Option<Shortage> {
    let mut variables = plan.environment.iter();
    let pages = &variables.find(|set| set.variable == environment::PAGES)?.value;
    match (plan.in_place, pages.parse()) {
        (false, Ok(Pages::Hugetlb(Some(size)))) => counters?.totals()?.shortage(size.bytes()),
        _ => None,
    }
}

/// Returns why a signal killed a child, if the child's pages can be the reason. The kernel gives no reason: touching
/// pool memory raises SIGBUS if no page is free.
fn why_killed(plan: &Plan, child: Killed) -> Option<&'static str> {
    if child.signal != libc::SIGBUS || !matches!(plan.pages, Pages::Hugetlb(_)) {
        return None;
    }
    let is_same = |set: &EnvironmentChange| {
        set.variable == environment::CHILDREN && set.value == Children::Same.name()
    };
    Some(match plan.environment.iter().any(is_same) {
        true => {
            "with --children same it shares the parent's superpages, and most likely the hugetlb pool had no free \
             page for its copy; enlarge the pool (--grow-pool), or use --children base"
        }
        false => {
            "most likely the hugetlb pool had no free page for it; enlarge the pool (--grow-pool), or use --pages thp"
        }
    })
}

/// Formats the mean coverage and the coverage at the end, and why they are unknown.
fn over_time_in_words(over: &OverTime) -> String {
    let end = over.end.as_ref().and_then(|end| Some((end.coverage()?, end.resident_bytes)));
    let end = end.map(|(share, bytes)| {
        format!("{} of {} at the end", words::percent(share), ByteSize(bytes))
    });
    let mean = over.mean_coverage.map(|share| format!("{} over time", words::percent(share)));
    let why = over.gap.map(gap_in_words).unwrap_or_default();
    match (mean, end) {
        (Some(mean), Some(end)) => format!("{mean}, {end}"),
        (Some(mean), None) => format!("{mean}, unknown at the end ({why})"),
        (None, Some(end)) => format!("unknown over time ({why}), {end}"),
        (None, None) => format!("unknown over time and at the end ({why})"),
    }
}

fn gap_in_words(gap: Gap) -> String {
    format!("not read from {:.2} s to {:.2} s", gap.from_seconds, gap.to_seconds)
}

/// Formats the peak if known within 5 %, else its bounds and the reason.
pub fn peak_in_words(seen: &Observed) -> String {
    let size = |bytes| ByteSize(bytes).to_string();
    match (seen.peak_resident_bytes, seen.peak_at_least_bytes) {
        (Some(peak), _) => format!("peak {}", size(peak)),
        (None, None) => "peak unknown".to_string(),
        (None, Some(at_least)) => {
            let at_most = seen
                .peak_at_most_bytes
                .map_or(String::new(), |bytes| format!(" and at most {}", size(bytes)));
            let why = match seen.processes_unseen {
                0 => "not seen whether its processes had theirs at the same time".to_string(),
                1 => "one process was not observed to its end".to_string(),
                many => format!("{many} processes were not observed to their ends"),
            };
            format!("peak at least {}{at_most}: {why}", size(at_least))
        }
    }
}

fn library(totals: &Totals, uncounted: usize) -> Value {
    let columns = |kind| -> Map<String, Value> {
        Column::ALL
            .map(|it| (it.name().to_string(), totals.bytes(kind, it).into()))
            .into_iter()
            .collect()
    };
    let kinds: Map<String, Value> =
        Kind::ALL.map(|kind| (kind.name().to_string(), columns(kind).into())).into_iter().collect();
    let reasons = Reason::ALL.into_iter().filter(|why| totals.times(*why) > 0);
    let reasons: Map<String, Value> =
        reasons.map(|why| (why.name().to_string(), totals.times(why).into())).collect();
    let prepared: Map<String, Value> = Prepared::ALL
        .into_iter()
        .map(|what| (what.name().to_string(), totals.prepared(what).into()))
        .collect();
    json!({
        "processes": totals.processes(),
        "forks": totals.forks(),
        "processes_not_counted_at_least": uncounted,
        "kinds": kinds,
        "reasons": reasons,
        "prepared": prepared,
    })
}

fn supplied_in_words(supplied: &Supplied) -> String {
    let Supplied { requests, wanted, got, seconds, sizes, why_not, .. } = supplied;
    let mut words = format!(
        "free memory was fragmented: {got} of {wanted} superpages made free in {:.0} ms ({requests} request{})",
        seconds * 1e3,
        if *requests == 1 { "" } else { "s" }
    );
    if !sizes.is_empty() {
        let sizes = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        words += &format!("; THP of {sizes} were on where advised until it ended");
    }
    if let Some(why) = why_not {
        words += &format!("; not all could be done: {why}");
    }
    words
}
