//! The rules that a design must keep: ranges of numbers, and mixes that no machine could carry out.
//!
//! One table, [`RULES`]. A rule names the keys it is about; the first is where a break of it is
//! told. A mix that is merely unwise is allowed: the laboratory is there to show it. What is
//! refused contradicts itself, or sets a key that could have no effect.
//!
//! Called by [`crate::read`] and [`Design::check`].

use std::time::Duration;

use units::ByteSize;

use crate::*;

/// One rule.
pub(crate) struct Rule {
    /// The keys it is about; the first is where a break of it is told.
    pub keys: &'static [&'static str],
    /// What is allowed.
    says: &'static str,
    /// Whether a design breaks it.
    broken: fn(&Design) -> bool,
}

const fn rule(
    keys: &'static [&'static str],
    says: &'static str,
    broken: fn(&Design) -> bool,
) -> Rule {
    Rule { keys, says, broken }
}

/// The rules that the design breaks, each with what to say.
pub(crate) fn broken(design: &Design) -> Vec<(&'static Rule, Problem)> {
    let pairs = write::pairs(design);
    let problem = |rule: &'static Rule| {
        let key = rule.keys[0];
        let value = pairs.iter().find(|(name, _)| name == key);
        let value = value.map_or(String::new(), |(_, value)| format!("{value}: "));
        (rule, Problem { line: None, key: key.to_string(), what: value + rule.says })
    };
    RULES.iter().filter(|rule| (rule.broken)(design)).map(problem).collect()
}

pub(crate) fn problems(design: &Design) -> Vec<Problem> {
    broken(design).into_iter().map(|(_, problem)| problem).collect()
}

const TRIGGER: &str = "allocation.trigger";
const FORM: &str = "allocation.form";
const SIZES: &str = "allocation.sizes";
const EFFORT: &str = "allocation.effort";
const ADVISED: &str = "allocation.effort-advised";
const GRAIN: &str = "preparation.grain";
const FILL_AT: &str = "preparation.fill-at";
const BULK: &str = "preparation.bulk";
const BACKGROUND: &str = "preparation.background";
const BACKGROUND_AT: &str = "preparation.background.at";
const WHEN: &str = "mapping.when";
const SCAN: &str = "mapping.scan";
const LEAST: &str = "mapping.scan.least-present";
const ORDER: &str = "mapping.scan.order";
const SAMPLING: &str = "mapping.scan.sampling";
const OVERHEAD: &str = "mapping.scan.sampling.overhead-every";
const RELEASE: &str = "deallocation.when";
const BLOAT: &str = "deallocation.bloat";
const RECLAIM: &str = "memory.reclaim";
const KCOMPACTD: &str = "memory.background-compaction";

/// All rules: first what one key may be, in the order of the events; then what goes together.
const RULES: &[Rule] = &[
    // One key.
    rule(
        &["name"],
        "must be lower-case letters, digits, dots and dashes, and begin with a letter",
        bad_name,
    ),
    rule(&["summary"], "must be one line, without control characters", |d| {
        d.summary.contains(char::is_control)
    }),
    rule(
        &[SIZES],
        "must be sizes, ascending: powers of two of 8K (two base pages) or more, to 512G",
        bad_sizes,
    ),
    rule(&[FILL_AT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |d| {
        d.preparation.fill_at.is_some_and(|at| !within_superpage(at, d))
    }),
    rule(&[BULK, SIZES], "must be a power of two, from 4K to the largest size", |d| {
        let bulk = d.preparation.bulk;
        !bulk.0.is_power_of_two() || bulk < BASE || bulk > largest(d)
    }),
    rule(&[BACKGROUND_AT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |d| {
        fill(d, |fill| !within_superpage(fill.at, d))
    }),
    rule(&["preparation.background.every"], A_PERIOD, |d| fill(d, |fill| bad_period(fill.every))),
    rule(&["preparation.background.budget-pages"], "must be 1 or more", |d| {
        fill(d, |fill| fill.budget_pages == 0)
    }),
    rule(
        &["preparation.prezero.order"],
        "must be 0 to 10 (4M), the buddy allocator's largest",
        |d| prezero(d, |prezero| prezero.order > 10),
    ),
    rule(&["preparation.prezero.blocks"], "must be 1 or more", |d| {
        prezero(d, |prezero| prezero.blocks == 0)
    }),
    rule(&["preparation.prezero.every"], A_PERIOD, |d| {
        prezero(d, |prezero| bad_period(prezero.every))
    }),
    rule(&["preparation.prezero.start-permille"], "must be 1 to 1000 (1000: always)", |d| {
        prezero(d, |prezero| !(1..=1000).contains(&prezero.start_permille))
    }),
    rule(
        &["preparation.prezero.stop-permille", "preparation.prezero.start-permille"],
        "must be start-permille to 1000",
        |d| prezero(d, |prezero| !(prezero.start_permille..=1000).contains(&prezero.stop_permille)),
    ),
    rule(&["preparation.prefault.pages"], "must be 1 or more; kind = \"none\" for none", |d| {
        d.preparation.prefault == Prefault::Resident(0)
    }),
    rule(
        &["preparation.prefault.order"],
        "must be 1 to 9 (512 pages); kind = \"none\" for none",
        |d| matches!(d.preparation.prefault, Prefault::Doubling(order) if !(1..=9).contains(&order)),
    ),
    rule(&["mapping.scan.every"], A_PERIOD, |d| scan(d, |scan| bad_period(scan.every))),
    rule(&["mapping.scan.regions"], "must be 1 or more", |d| scan(d, |scan| scan.regions == 0)),
    rule(&["mapping.scan.after-failure"], "must be at most 24h", |d| {
        scan(d, |scan| scan.after_failure > DAY)
    }),
    rule(&[LEAST, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |d| {
        scan(d, |scan| !within_superpage(scan.least_present, d))
    }),
    rule(&["mapping.scan.cpu-percent"], "must be 0 (no limit) to 100", |d| {
        scan(d, |scan| scan.cpu_percent > 100)
    }),
    rule(&["mapping.scan.sampling.every"], A_PERIOD, |d| {
        sampling(d, |sampling| bad_period(sampling.every))
    }),
    rule(
        &["mapping.scan.sampling.window", "mapping.scan.sampling.every"],
        "must be more than 0s, and no more than every",
        |d| sampling(d, |sampling| sampling.window.is_zero() || sampling.window > sampling.every),
    ),
    rule(&["mapping.scan.sampling.newest-percent"], "must be 1 to 100", |d| {
        sampling(d, |sampling| !(1..=100).contains(&sampling.newest_percent))
    }),
    rule(&[OVERHEAD], A_PERIOD, |d| {
        sampling(d, |sampling| sampling.overhead_every.is_some_and(bad_period))
    }),
    rule(&["deallocation.after"], "must be at most 24h", |d| {
        inactive(d, |after, _, _| after > DAY)
    }),
    rule(&["deallocation.every"], A_PERIOD, |d| inactive(d, |_, every, _| bad_period(every))),
    rule(&["deallocation.budget-pages"], "must be 1 or more", |d| {
        inactive(d, |_, _, budget| budget == 0)
    }),
    rule(&["deallocation.bloat.every"], A_PERIOD, |d| bloat(d, |bloat| bad_period(bloat.every))),
    rule(&["deallocation.bloat.below-percent"], "must be 1 to 100", |d| {
        bloat(d, |bloat| !(1..=100).contains(&bloat.below_percent))
    }),
    rule(
        &["deallocation.bloat.until-percent", "deallocation.bloat.below-percent"],
        "must be below-percent to 100",
        |d| bloat(d, |bloat| !(bloat.below_percent..=100).contains(&bloat.until_percent)),
    ),
    rule(
        &["deallocation.bloat.more-zero-than", SIZES],
        "must be less than the pages of a superpage (512 for 2M), or none is ever split",
        |d| bloat(d, |bloat| u64::from(bloat.more_zero_than) >= pages(d)),
    ),
    rule(&["memory.proactiveness"], "must be 0 (off) to 100", |d| d.memory.proactiveness > 100),
    rule(&["memory.defer-shift"], "must be 0 to 16 (2^16 attempts skipped)", |d| {
        d.memory.defer_shift > 16
    }),
    rule(&["memory.pool-pages"], "must be at most 2^40", |d| {
        d.memory.pool_pages.is_some_and(|pages| pages > 1 << 40)
    }),
    rule(&["memory.periodic-compaction.blocks"], "must be 1 or more", |d| {
        d.memory.periodic_compaction.is_some_and(|(blocks, _)| blocks == 0)
    }),
    rule(&["memory.periodic-compaction.every"], A_PERIOD, |d| {
        d.memory.periodic_compaction.is_some_and(|(_, every)| bad_period(every))
    }),
    // Trigger and form: which of the twelve pairs there are.
    rule(
        &[FORM, TRIGGER],
        "a pool is reserved from when memory is mapped: needs trigger = \"mmap\"",
        |d| form(d, Form::Pool) && !trigger(d, Trigger::Mmap),
    ),
    rule(
        &[TRIGGER, FORM],
        "what is set aside when memory is mapped comes from a pool: needs form = \"pool\"",
        |d| trigger(d, Trigger::Mmap) && !form(d, Form::Pool),
    ),
    rule(
        &[FORM, TRIGGER],
        "a reservation is made for a fault: needs trigger = \"first-fault\"",
        |d| form(d, Form::Reservation) && !trigger(d, Trigger::FirstFault),
    ),
    // What the trigger asks of the mapping.
    rule(
        &[WHEN, TRIGGER],
        "with trigger = \"never\" nothing is mapped large: needs when = \"never\"",
        |d| trigger(d, Trigger::Never) && d.mapping.when != MapWhen::Never,
    ),
    rule(
        &[WHEN, TRIGGER],
        "with trigger = \"scan\" no fault maps a superpage: needs when = \"never\"",
        |d| trigger(d, Trigger::Scan) && d.mapping.when != MapWhen::Never,
    ),
    rule(&[TRIGGER, SCAN], "needs a [mapping.scan] that makes superpages", |d| {
        trigger(d, Trigger::Scan) && d.mapping.scan.is_none()
    }),
    rule(
        &[SCAN, TRIGGER],
        "makes superpages: needs trigger = \"scan\", or \"first-fault\" with the scan behind it",
        |d| d.mapping.scan.is_some() && (trigger(d, Trigger::Never) || trigger(d, Trigger::Mmap)),
    ),
    // What the form asks of preparation and mapping.
    rule(
        &[GRAIN, FORM, TRIGGER],
        "a superpage mapped at the fault is prepared whole: needs grain = \"superpage\"",
        |d| whole_at_fault(d) && d.preparation.grain == Grain::Page,
    ),
    rule(
        &[WHEN, FORM, TRIGGER],
        "a superpage prepared whole is mapped with it: needs when = \"with-preparation\"; \"prepared\" goes with form = \"reservation\"",
        |d| whole_at_fault(d) && d.mapping.when != MapWhen::WithPreparation,
    ),
    rule(
        &[WHEN, FORM],
        "a reservation is mapped in place once it is prepared: needs when = \"prepared\", or \"never\"",
        |d| form(d, Form::Reservation) && d.mapping.when == MapWhen::WithPreparation,
    ),
    rule(
        &[GRAIN, TRIGGER],
        "base pages are prepared singly: trigger = \"never\" needs grain = \"page\"",
        |d| trigger(d, Trigger::Never) && d.preparation.grain == Grain::Superpage,
    ),
    rule(&[FILL_AT, FORM], "fills a reservation: needs form = \"reservation\"", |d| {
        d.preparation.fill_at.is_some() && !form(d, Form::Reservation)
    }),
    rule(&[FILL_AT, GRAIN], "fills what was prepared page by page: needs grain = \"page\"", |d| {
        d.preparation.fill_at.is_some() && d.preparation.grain == Grain::Superpage
    }),
    rule(&[BACKGROUND, FORM], "fills reservations: needs form = \"reservation\"", |d| {
        d.preparation.background.is_some() && !form(d, Form::Reservation)
    }),
    rule(
        &[BACKGROUND, GRAIN],
        "fills what was prepared page by page: needs grain = \"page\"",
        |d| d.preparation.background.is_some() && d.preparation.grain == Grain::Superpage,
    ),
    rule(
        &[BACKGROUND_AT, FILL_AT],
        "must be less than fill-at, or faults leave it nothing to fill",
        |d| fill(d, |fill| d.preparation.fill_at.is_some_and(|at| fill.at >= at)),
    ),
    rule(
        &["mapping.clean-pages", WHEN],
        "is about mapping in place: \"relaxed\" needs when = \"prepared\"",
        |d| d.mapping.clean_pages == CleanPages::Relaxed && d.mapping.when != MapWhen::Prepared,
    ),
    rule(
        &["unmapping.clean-write", WHEN],
        "there are clean superpages only with when = \"prepared\"",
        |d| d.unmapping.clean_write_demotes && d.mapping.when != MapWhen::Prepared,
    ),
    // What the rest of allocation asks of the form.
    rule(
        &["allocation.growth", FORM],
        "only a reservation may reach past the mapping: needs form = \"reservation\"",
        |d| d.allocation.growth != Growth::Within && !form(d, Form::Reservation),
    ),
    rule(
        &["allocation.shortage", FORM],
        "only reservations can be preempted: needs form = \"reservation\"",
        |d| d.allocation.shortage == Shortage::Preempt && !form(d, Form::Reservation),
    ),
    rule(&["allocation.shortage", FORM], "only a pool can refuse: needs form = \"pool\"", |d| {
        d.allocation.shortage == Shortage::Refuse && !form(d, Form::Pool)
    }),
    rule(
        &["allocation.break-reservations", FORM],
        "there are none to break: needs form = \"reservation\"",
        |d| d.allocation.break_reservations && !form(d, Form::Reservation),
    ),
    rule(
        &["allocation.zero-page", FORM, TRIGGER],
        "is mapped by a first read: needs trigger = \"first-fault\" and form = \"superpage\"",
        |d| {
            d.allocation.zero_page && !(trigger(d, Trigger::FirstFault) && form(d, Form::Superpage))
        },
    ),
    rule(&[SIZES, FORM], "a pool has one size", |d| {
        form(d, Form::Pool) && d.allocation.sizes.len() > 1
    }),
    rule(
        &[SIZES, TRIGGER],
        "a scan makes superpages of one size: more need trigger = \"first-fault\"",
        |d| trigger(d, Trigger::Scan) && d.allocation.sizes.len() > 1,
    ),
    rule(
        &[EFFORT, TRIGGER],
        "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own",
        |d| d.allocation.effort != Effort::None && !trigger(d, Trigger::FirstFault),
    ),
    rule(
        &[ADVISED, TRIGGER],
        "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own",
        |d| d.allocation.effort_advised != Effort::None && !trigger(d, Trigger::FirstFault),
    ),
    // Effort needs somebody to make it.
    rule(
        &[EFFORT, RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |d| is_direct(d.allocation.effort) && d.memory.reclaim == Reclaim::None,
    ),
    rule(
        &[ADVISED, RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |d| is_direct(d.allocation.effort_advised) && d.memory.reclaim == Reclaim::None,
    ),
    rule(
        &["mapping.scan.effort", RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |d| scan(d, |scan| is_direct(scan.effort)) && d.memory.reclaim == Reclaim::None,
    ),
    rule(
        &[EFFORT, KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |d| d.allocation.effort == Effort::Wake && !d.memory.background_compaction,
    ),
    rule(
        &[ADVISED, KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |d| d.allocation.effort_advised == Effort::Wake && !d.memory.background_compaction,
    ),
    rule(
        &["mapping.scan.effort", KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |d| scan(d, |scan| scan.effort == Effort::Wake) && !d.memory.background_compaction,
    ),
    rule(&[KCOMPACTD, RECLAIM], "needs reclaim = \"compaction\"", |d| {
        d.memory.background_compaction && d.memory.reclaim != Reclaim::Compaction
    }),
    rule(
        &["memory.proactiveness", KCOMPACTD],
        "is background compaction's: needs background-compaction = true",
        |d| d.memory.proactiveness > 0 && !d.memory.background_compaction,
    ),
    rule(&["memory.periodic-compaction", RECLAIM], "needs reclaim = \"compaction\"", |d| {
        d.memory.periodic_compaction.is_some() && d.memory.reclaim != Reclaim::Compaction
    }),
    // Orders of a scan.
    rule(&[ORDER, SAMPLING], "needs a [mapping.scan.sampling]", |d| {
        scan(d, |scan| by_access(scan.order) && scan.sampling.is_none())
    }),
    rule(
        &[SAMPLING, ORDER],
        "is of no use to this order: needs order = \"coverage\" or \"overhead\"",
        |d| scan(d, |scan| !by_access(scan.order) && scan.sampling.is_some()),
    ),
    rule(&[OVERHEAD, ORDER], "is of use only to order = \"overhead\"", |d| {
        scan(d, |scan| scan.order != ScanOrder::Overhead)
            && sampling(d, |s| s.overhead_every.is_some())
    }),
    rule(&[ORDER, OVERHEAD], "needs sampling.overhead-every, the profiler's period", |d| {
        scan(d, |scan| scan.order == ScanOrder::Overhead)
            && sampling(d, |s| s.overhead_every.is_none())
    }),
    // What goes back, and when.
    rule(&[RELEASE, FORM], "is what reservations do: needs form = \"reservation\"", |d| {
        let kept = matches!(d.deallocation.release, Release::WhenEmpty | Release::Inactive { .. });
        kept && !form(d, Form::Reservation)
    }),
    rule(
        &[RELEASE, FORM],
        "is about split superpages: a reservation needs when = \"when-empty\", \"inactive\" or \"at-once\"",
        |d| d.deallocation.release == Release::UnderPressure && form(d, Form::Reservation),
    ),
    rule(&[RELEASE, FORM], "needs form = \"pool\"", |d| {
        d.deallocation.release == Release::ToPool && !form(d, Form::Pool)
    }),
    rule(&[RELEASE, FORM], "pages of a pool go back to it: needs when = \"to-pool\"", |d| {
        d.deallocation.release != Release::ToPool && form(d, Form::Pool)
    }),
    rule(&[BLOAT, FORM], "splits superpages: a pool's are never split", |d| {
        d.deallocation.bloat.is_some() && form(d, Form::Pool)
    }),
    rule(&[BLOAT, TRIGGER], "splits superpages: with trigger = \"never\" there are none", |d| {
        d.deallocation.bloat.is_some() && trigger(d, Trigger::Never)
    }),
    rule(&["memory.pool-pages", FORM], "needs form = \"pool\"", |d| {
        d.memory.pool_pages.is_some() && !form(d, Form::Pool)
    }),
    rule(
        &["memory.ideal", TRIGGER],
        "is about superpages at faults: needs trigger = \"first-fault\" and form = \"superpage\"",
        |d| d.memory.ideal && !(trigger(d, Trigger::FirstFault) && form(d, Form::Superpage)),
    ),
    // Locks.
    rule(
        &["fault.rss", "fault.locking"],
        "is counted under the page-table lock, which \"atomic-entries\" does not take",
        |d| d.fault.resident == ResidentCount::Locked && d.fault.locking == Locking::AtomicEntries,
    ),
];

const A_PERIOD: &str = "must be more than 0s, at most 24h";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The smallest base page there is: a design does not know its machine's.
const BASE: ByteSize = ByteSize::kib(4);

fn bad_period(every: Duration) -> bool {
    every.is_zero() || every > DAY
}

fn bad_name(d: &Design) -> bool {
    let letter = |c: char| c.is_ascii_lowercase();
    let rest = |c: char| letter(c) || c.is_ascii_digit() || c == '.' || c == '-';
    !d.name.starts_with(letter) || !d.name.chars().all(rest)
}

fn bad_sizes(d: &Design) -> bool {
    let sizes = &d.allocation.sizes;
    let good = |size: &ByteSize| {
        size.0.is_power_of_two() && (BASE.0 * 2..=ByteSize::gib(512).0).contains(&size.0)
    };
    sizes.is_empty() || !sizes.iter().all(good) || !sizes.is_sorted_by(|a, b| a < b)
}

fn largest(d: &Design) -> ByteSize {
    d.allocation.sizes.last().copied().unwrap_or_default()
}

/// The base pages of the largest size, at most: 512 in 2M.
fn pages(d: &Design) -> u64 {
    largest(d).0 / BASE.0
}

fn within_superpage(count: u16, d: &Design) -> bool {
    count > 0 && u64::from(count) <= pages(d)
}

fn trigger(d: &Design, trigger: Trigger) -> bool {
    d.allocation.trigger == trigger
}

fn form(d: &Design, form: Form) -> bool {
    d.allocation.form == form
}

/// A fault maps a whole superpage, so it prepares all of it.
fn whole_at_fault(d: &Design) -> bool {
    form(d, Form::Pool) || (form(d, Form::Superpage) && trigger(d, Trigger::FirstFault))
}

fn is_direct(effort: Effort) -> bool {
    matches!(effort, Effort::Direct | Effort::DirectRetry | Effort::Direct43)
}

fn by_access(order: ScanOrder) -> bool {
    matches!(order, ScanOrder::Coverage | ScanOrder::Overhead)
}

fn fill(d: &Design, is: impl FnOnce(&BackgroundFill) -> bool) -> bool {
    d.preparation.background.as_ref().is_some_and(is)
}

fn prezero(d: &Design, is: impl FnOnce(&Prezero) -> bool) -> bool {
    d.preparation.prezero.as_ref().is_some_and(is)
}

fn scan(d: &Design, is: impl FnOnce(&Scan) -> bool) -> bool {
    d.mapping.scan.as_ref().is_some_and(is)
}

fn sampling(d: &Design, is: impl FnOnce(&Sampling) -> bool) -> bool {
    scan(d, |scan| scan.sampling.as_ref().is_some_and(is))
}

fn inactive(d: &Design, is: impl FnOnce(Duration, Duration, u32) -> bool) -> bool {
    matches!(d.deallocation.release, Release::Inactive { after, every, budget_pages } if is(after, every, budget_pages))
}

fn bloat(d: &Design, is: impl FnOnce(&BloatRecovery) -> bool) -> bool {
    d.deallocation.bloat.as_ref().is_some_and(is)
}
