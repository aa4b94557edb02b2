//! Computes the verdicts of a document. Pure: the same document gives the same analysis.

use crate::measure::Measure;
use std::collections::BTreeMap;

use host::coverage::Coverage;
use launch::{Note, Pages, Plan, Promise, Recipe};
use report::format;
use serde::Serialize;
use units::{ByteSize, PageSize};

use crate::document::{Arm, Document};
use crate::library::{LibraryFault, PreloadReport};
use crate::procedure::values;
use crate::sample::{Purpose, Sample};
use crate::stats::{self, Better, Comparison, SampleError, describe};
use crate::verdict::{Effect, Verdict, noise_floor, verdict};

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// One summary per arm, in the document's order.
    pub arms: Vec<Summary>,
    /// One judgement per arm except the reference, and per judged quantity.
    pub judgements: Vec<Judgement>,
    /// Decided judgements on CPU time, if other programs disturbed the runs: CPU time varies less than wall time then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_time: Vec<Judgement>,
    /// The largest difference that two runs of the same program left possible, as a fraction; `null` if it was not
    /// measured.
    pub noise_floor: Option<f64>,
}

/// Summary of an arm's measured runs. Medians, unless stated otherwise; unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The arm's name.
    pub name: String,
    /// Number of measured runs.
    pub runs: u32,
    /// Number of failed runs (kept only with `--ignore-failure`).
    pub failed_runs: u32,
    /// Median wall time in seconds.
    pub wall_seconds: Option<f64>,
    /// Median CPU time in user mode, in seconds.
    pub user_seconds: Option<f64>,
    /// Median CPU time in the kernel, in seconds.
    pub system_seconds: Option<f64>,
    /// Median number of minor faults.
    pub minor_faults: Option<f64>,
    /// Median number of major faults.
    pub major_faults: Option<f64>,
    /// Median peak memory in bytes, hugetlb included.
    pub peak_bytes: Option<f64>,
    /// Median of the program's first metric.
    pub metric: Option<f64>,
    /// Median of each further metric, in the document's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more_metrics: Vec<Option<f64>>,
    /// Median share of resident memory on superpages.
    pub coverage: Option<f64>,
    /// Median of the mean share over a run, weighted by time.
    pub mean_coverage: Option<f64>,
    /// Median share at the end of a run.
    pub end_coverage: Option<f64>,
    /// Median share of eligible memory on superpages.
    pub eligible_coverage: Option<f64>,
    /// Median number of zero-filled bytes on superpages.
    pub zero_filled_bytes: Option<f64>,
    /// Total number of THP fault fallbacks on the whole machine during the arm's runs.
    pub thp_fault_fallbacks: Option<u64>,
    /// Total number of waits for compaction on the whole machine during the arm's runs.
    pub compaction_stalls: Option<u64>,
    /// Whether coverage comes from the warm-up, because no measured run had the CPU budget to read
    /// the program's page tables.
    pub coverage_from_warm_up: bool,
    /// Median duration of a whole run, in seconds.
    pub run_seconds: Option<f64>,
    /// Median share of a run's wall time spent on watching.
    pub watch_share: Option<f64>,
    /// CPU seconds of the longest look at a measured run's memory.
    pub longest_look_seconds: Option<f64>,
}

/// A verdict on one arm in one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The arm's name.
    pub arm: String,
    /// Wall time, CPU time or a metric.
    pub quantity: Measure,
    /// Whether this quantity is the one that the comparison is about.
    pub is_primary: bool,
    /// The verdict with its numbers.
    pub verdict: Verdict,
    /// All figures of the verdict; `null` if there was nothing to compare.
    pub comparison: Option<Comparison>,
}

/// Computes the analysis.
pub fn analyse(document: &Document) -> Analysis {
    let arms = document.arms.iter().enumerate();
    let summaries = arms.map(|(index, arm)| summary(document, index as u32, arm)).collect();
    let effects: Vec<Effect> = (0..document.arms.len()).map(|arm| effect(document, arm)).collect();
    let quantities = quantities(document);
    let primary = quantities.iter().find(|quantity| quantity.is_primary);
    let floor_arm = document.arms.iter().position(|arm| arm.is_noise_floor);
    let floor = floor_arm.and_then(|arm| {
        let comparison = compare(document, primary?, arm as u32).ok()?;
        noise_floor(&comparison)
    });
    let judge = |quantity: &Quantity, floor: Option<f64>| -> Vec<Judgement> {
        let judged = document.arms.iter().enumerate().skip(1);
        let judged = judged.map(|(index, arm)| {
            let compared = compare(document, quantity, index as u32);
            let effect = match (&effects[0], &effects[index]) {
                (Effect::Missing { why }, _) => {
                    Effect::Missing { why: format!("{}: {why}", document.arms[0].name) }
                }
                (Effect::AsPromised, own) => own.clone(),
                (_, Effect::Missing { why }) => Effect::Missing { why: why.clone() },
                (Effect::Unknown { why }, _) => {
                    Effect::Unknown { why: format!("{}: {why}", document.arms[0].name) }
                }
            };
            let margin = document.judging.margin(floor.filter(|_| !arm.is_noise_floor));
            Judgement {
                arm: arm.name.clone(),
                quantity: quantity.measure.clone(),
                is_primary: quantity.is_primary,
                verdict: verdict(&effect, compared.as_ref(), &margin),
                comparison: compared.ok(),
            }
        });
        judged.collect()
    };
    let judgements = quantities.iter().flat_map(|quantity| judge(quantity, floor)).collect();
    // The noise floor is of the primary quantity.
    let cpu_time = cpu_time(document).map(|quantity| judge(&quantity, None)).unwrap_or_default();
    let cpu_time = cpu_time.into_iter().filter(|one| one.verdict.is_decided()).collect();
    Analysis { arms: summaries, judgements, cpu_time, noise_floor: floor }
}

/// Returns the names of the arms whose design made no superpage, though it is there to make some: all of the arm's
/// memory was seen on base pages. A design promises nothing, so no verdict says this.
pub fn designs_without_effect<'a>(document: &'a Document, analysis: &Analysis) -> Vec<&'a str> {
    let arms = document.arms.iter().zip(&analysis.arms);
    let is_without = |(arm, summary): &(&Arm, &Summary)| {
        let is_design = arm.recipe.design.is_some() && arm.plan.promise == Promise::Nothing;
        is_design && summary.coverage.is_some_and(|share| share <= 0.0)
    };
    arms.filter(is_without).map(|(arm, _)| arm.name.as_str()).collect()
}

impl Summary {
    /// Returns the median of the document's `index`-th metric, from 0.
    pub fn metric_at(&self, index: usize) -> Option<f64> {
        match index.checked_sub(1) {
            None => self.metric,
            Some(further) => self.more_metrics.get(further).copied().flatten(),
        }
    }
}

impl Judgement {
    /// For an undecided verdict, returns how many more runs of each arm would decide it, and how many seconds these
    /// runs of all arms take.
    pub fn to_decide(&self, analysis: &Analysis) -> Option<(u32, f64)> {
        let Verdict::Undecided { more_runs, .. } = self.verdict else { return None };
        let round: Option<f64> = analysis.arms.iter().map(|arm| arm.run_seconds).sum();
        Some((more_runs, round? * f64::from(more_runs)))
    }
}

struct Quantity {
    measure: Measure,
    better: Better,
    is_primary: bool,
    of: Figure,
}

/// A figure of a run.
enum Figure {
    Wall,
    Cpu,
    /// The metric of this index.
    Metric(usize),
}

impl Quantity {
    fn of(&self, sample: &Sample) -> Option<f64> {
        match self.of {
            Figure::Wall => Some(sample.wall_seconds),
            Figure::Cpu => Some(sample.user_seconds + sample.system_seconds),
            Figure::Metric(index) => sample.metric_at(index),
        }
    }
}

fn quantities(document: &Document) -> Vec<Quantity> {
    let metrics = document.metrics().enumerate().map(|(index, metric)| Quantity {
        measure: Measure::Metric(metric.name.clone()),
        better: metric.better,
        is_primary: document.metric_is_primary,
        of: Figure::Metric(index),
    });
    let wall = Quantity {
        measure: Measure::Wall,
        better: Better::Lower,
        is_primary: !(document.metric.is_some() && document.metric_is_primary),
        of: Figure::Wall,
    };
    std::iter::once(wall).chain(metrics).collect()
}

/// CPU time, if other programs disturbed the runs. Not of a service, whose CPU time includes its start and end.
fn cpu_time(document: &Document) -> Option<Quantity> {
    let is_disturbed = document.neighbours.is_some_and(|others| others.disturbed());
    (is_disturbed && document.service.is_none()).then_some(Quantity {
        measure: Measure::Cpu,
        better: Better::Lower,
        is_primary: false,
        of: Figure::Cpu,
    })
}

fn compare(document: &Document, quantity: &Quantity, arm: u32) -> Result<Comparison, SampleError> {
    let settings = document.statistics();
    let values = values(&document.samples, |sample| quantity.of(sample));
    stats::compare(&values, 0, arm, quantity.better, &settings)
}

/// Returns whether an arm got the pages that it promised. Uses the pages read back from measured runs, or from warm-ups
/// if no measured run had a look.
fn effect(document: &Document, arm: usize) -> Effect {
    let recipe = &document.arms[arm].recipe;
    let runs = || runs_of(document, arm as u32);
    if let Some(fault) = LibraryFault::from_reports(recipe, runs().map(PreloadReport::from_sample))
    {
        return Effect::Missing { why: fault.why(recipe) };
    }
    if let Some(why) = &document.arms[arm].plan.left_alone {
        return Effect::Missing { why: why.clone() };
    }
    let promise = document.arms[arm].plan.promise;
    let (coverages, _) = coverages(document, arm as u32);
    if promise == Promise::Nothing {
        let own = || own_effect(recipe, &document.arms[arm].plan, &coverages);
        return design_effect(
            &design_reports(document, arm as u32),
            document.judging.least_coverage,
        )
        .unwrap_or_else(own);
    }
    if coverages.is_empty() && promise == Promise::BasePages {
        // Reading the page tables was too expensive, but every sample of the watch found that the
        // program can have no superpage.
        let mut told = runs().filter_map(|sample| sample.memory.base_pages_only).peekable();
        if told.peek().is_some() && told.all(|base_only| base_only) {
            return Effect::AsPromised;
        }
    }
    if coverages.is_empty() {
        let reason = runs().filter_map(|sample| sample.memory.unknown.clone()).next();
        let ended = || "the program ended before its memory could be read back".to_string();
        return Effect::Unknown { why: reason.unwrap_or_else(ended) };
    }
    let least = document.judging.least_coverage;
    let unseen = runs_on_base_pages(document, arm as u32, least);
    // `Auto` promises superpages of any kind.
    let pages = match document.arms[arm].recipe.pages {
        Pages::Auto => Pages::Auto,
        _ => document.arms[arm].plan.pages,
    };
    match took_effect(promise, pages, &coverages, least) {
        Effect::AsPromised if promise == Promise::Superpages && unseen > 0 => Effect::Missing {
            why: format!(
                "{unseen} measured run(s) took so many more page faults than the runs on \
                 superpages that they must have been on base pages"
            ),
        },
        Effect::Missing { why } if promise == Promise::Superpages => {
            let cause = cause(document, arm as u32, pages);
            Effect::Missing { why: format!("{why}{}", cause.unwrap_or_default()) }
        }
        effect => effect,
    }
}

/// Returns why an arm's memory was not on its superpages, and what to do; `None`: the runs do not show it.
fn cause(document: &Document, arm: u32, pages: Pages) -> Option<String> {
    match pages {
        Pages::Thp | Pages::Auto => {
            fragmented(document, arm).or_else(|| forked(runs_of(document, arm)))
        }
        Pages::Hugetlb(_) => malloc_alone(&document.arms[arm as usize].plan),
        Pages::Base | Pages::ThpOf(_) | Pages::System | Pages::Collapsed => None,
    }
}

fn malloc_alone(plan: &Plan) -> Option<String> {
    plan.notes.contains(&Note::MallocAlone).then(|| {
        "; malloc alone requests pages of the pool, not what the program maps itself; for both: --arm 'all: \
         pages=hugetlb memory=heap,mmap'"
            .to_string()
    })
}

/// The kernel copies base pages when a process writes to memory that it shares with another since a fork.
fn forked<'a>(runs: impl Iterator<Item = &'a Sample>) -> Option<String> {
    let forks = runs.filter_map(|sample| sample.library_forks);
    let forks = describe::median(&mut forks.map(|forks| forks as f64).collect::<Vec<f64>>())?;
    (forks >= 1.0).then(|| {
        format!(
            "; this may be why: its processes forked ({forks:.0} times in the median run), and what one of them writes \
             afterwards is copied to base pages; to judge the times all the same, lower --min-coverage"
        )
    })
}

fn fragmented(document: &Document, arm: u32) -> Option<String> {
    let runs: Vec<&Sample> = runs_of(document, arm).collect();
    let median = |of: &dyn Fn(&Sample) -> Option<u64>| {
        let mut values: Vec<f64> =
            runs.iter().filter_map(|sample| Some(of(sample)? as f64)).collect();
        describe::median(&mut values)
    };
    let free = median(&|sample| sample.free_superpage_bytes_before)?;
    let used = median(&|sample| sample.peak_bytes())?;
    let supplied = runs.iter().filter_map(|sample| sample.supplied.as_ref());
    let (wanted, got) =
        supplied.fold((0, 0), |(wanted, got), one| (wanted + one.wanted, got + one.got));
    let made = match wanted {
        0 => String::new(),
        _ => format!(", and superpage could make {got} of {wanted} superpages free"),
    };
    (free < used).then(|| {
        format!(
            "; free memory is fragmented: {} of it was in superpages before a run that uses {}{made}; to compact it: \
             sysctl -w vm.compact_memory=1 (superpage doctor names what else)",
            format::bytes(free),
            format::bytes(used)
        )
    })
}

/// Returns what superpage did for the arm's design in measured runs, or in warm-ups if no measured run has a report.
fn design_reports(document: &Document, arm: u32) -> Vec<&live::Report> {
    let of = |purpose| -> Vec<&live::Report> {
        runs_for(document, arm, purpose).filter_map(|sample| sample.design.as_ref()).collect()
    };
    Some(of(Purpose::Measured))
        .filter(|reports| !reports.is_empty())
        .unwrap_or_else(|| of(Purpose::WarmUp))
}

/// Returns that a design did not take effect if in the median run less than the share `least` of the superpages that it
/// decided to make were made. A design promises no coverage: how much that is depends on the program.
fn design_effect(reports: &[&live::Report], least: f64) -> Option<Effect> {
    let made = |report: &live::Report| report.made + report.by_fault;
    let wanted = |report: &live::Report| made(report) + report.unmade + report.held;
    let with_wishes = || reports.iter().copied().filter(|report| wanted(report) > 0);
    let share = |report| made(report) as f64 / wanted(report) as f64;
    let share = describe::median(&mut with_wishes().map(share).collect::<Vec<f64>>())?;
    let sum = |of: fn(&live::Report) -> u64| with_wishes().map(of).sum::<u64>();
    (share < least).then(|| {
        let cause = [
            (sum(|it| it.waiting), "making them would have held the program up for over 2 % of its CPU time"),
            (sum(|it| it.held), "too much of what was filled with zeros was not used"),
            (sum(|it| it.failed.values().sum()), "the kernel refused (superpages may not be free)"),
        ];
        let cause = cause.iter().filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count);
        let cause = cause.map_or("they qualified too late", |(_, why)| why);
        Effect::Missing {
            why: format!(
                "its design wanted {} superpages and {} were made (median {:.1} %, less than {:.0} %): {cause}",
                with_wishes().map(wanted).sum::<u64>(),
                with_wishes().map(made).sum::<u64>(),
                (share * 1000.0).floor() / 10.0,
                least * 100.0
            ),
        }
    })
}

/// Returns whether a program got superpages that the program itself, or libsuperpage.so for a kind of its memory,
/// should request. How many to expect is unknown, so one is enough.
/// See docs/decisions/evaluate.md#1.
fn own_effect(recipe: &Recipe, plan: &Plan, coverages: &[&Coverage]) -> Effect {
    let memory = asked_of_library(recipe, plan);
    let has_files =
        memory.is_some_and(|_| recipe.memory.text.is_some() || recipe.memory.files.is_some());
    let is_without = |one: &&Coverage| {
        let files = if has_files { one.file_pmd.bytes() } else { 0 };
        one.eligible_huge.bytes() + one.shmem_pmd.bytes() + files + hugetlb_of(one, None) == 0
    };
    if coverages.is_empty() || !coverages.iter().all(is_without) {
        return Effect::AsPromised;
    }
    let (who, why_none) = match (recipe.asks_itself(), memory) {
        (Some(switch), _) => (switch, "it did not ask for any"),
        (None, Some(memory)) => (format!("memory={memory}"), "none of that was large enough"),
        (None, None) => return Effect::AsPromised,
    };
    let why = format!(
        "{who}: none of its memory was on superpages; either {why_none}, or the system has none to give \
         (superpage pool, /sys/kernel/mm/transparent_hugepage)"
    );
    Effect::Missing { why }
}

/// Returns whether an arm without a promise takes effect with a single superpage, and fails with none.
pub(crate) fn asks_for_some(recipe: &Recipe, plan: &Plan) -> bool {
    recipe.asks_itself().is_some() || asked_of_library(recipe, plan).is_some()
}

/// Returns the kinds of memory for which an arm makes libsuperpage.so request superpages, if their pages can be read
/// back.
fn asked_of_library<'a>(recipe: &Recipe, plan: &'a Plan) -> Option<&'a str> {
    plan.asked_of_library().filter(|_| !recipe.memory.is_empty())
}

/// Returns the number of measured runs without a look whose faults reveal base pages. Such a run has more faults than
/// any run whose pages were read back and kept the promise, by enough base pages to break the promise.
fn runs_on_base_pages(document: &Document, arm: u32, least: f64) -> usize {
    let page = document.machine.page_size.bytes() as f64;
    let (seen, unseen): (Vec<&Sample>, Vec<&Sample>) =
        runs_of(document, arm).partition(|sample| sample.memory.coverage.is_some());
    let kept = |sample: &&&Sample| {
        let coverage = sample.memory.coverage.as_ref();
        coverage.and_then(Coverage::anon_ratio).is_some_and(|share| share >= least)
    };
    let Some(most) = seen.iter().filter(kept).map(|sample| sample.minor_faults).max() else {
        return 0;
    };
    let base_pages = |peak: u64| (1.0 - least) * peak as f64 / page;
    unseen
        .iter()
        .filter(|sample| sample.purpose == Purpose::Measured)
        // Require twice the maximum number of faults too: in a program with many short processes, faults
        // vary by more than the base pages of its peak.
        .filter(|sample| sample.minor_faults > 2 * most)
        .filter(|sample| {
            let faults = sample.minor_faults as f64;
            sample.peak_bytes().is_some_and(|peak| faults > most as f64 + base_pages(peak))
        })
        .count()
}

/// Returns whether a promise was kept, judged by the pages read back. Pool pages do not fulfil a promise of THP, nor
/// THP one of pool pages.
pub fn took_effect(promise: Promise, pages: Pages, coverages: &[&Coverage], least: f64) -> Effect {
    let missing = |why: String| Effect::Missing { why };
    match promise {
        Promise::Nothing => Effect::AsPromised,
        Promise::BasePages => {
            let huge = |one: &&Coverage| one.eligible_huge.bytes() + one.shmem_pmd.bytes();
            let most = coverages.iter().map(huge).max().map(ByteSize);
            match most.unwrap_or_default() {
                ByteSize(0) => Effect::AsPromised,
                bytes => {
                    missing(format!("base pages were requested, but {bytes} were on superpages"))
                }
            }
        }
        Promise::SmallerSuperpages => {
            let shares = coverages.iter().filter_map(|coverage| coverage.anon_ratio());
            match shares.fold(0.0, f64::max) {
                most if most <= 1.0 - least => Effect::AsPromised,
                most => missing(format!(
                    "{:.1} % of the eligible memory was on superpages of the largest size, but \
                     smaller ones were requested",
                    most * 100.0
                )),
            }
        }
        Promise::Superpages => {
            let on = |coverage: &Coverage| {
                let bytes = match pages {
                    Pages::Hugetlb(size) => hugetlb_of(coverage, size),
                    _ => coverage.eligible_huge.bytes(),
                };
                let eligible = coverage.eligible.bytes();
                (eligible > 0).then(|| bytes as f64 / eligible as f64)
            };
            let mut shares: Vec<f64> =
                coverages.iter().filter_map(|coverage| on(coverage)).collect();
            let short = shares.iter().filter(|share| **share < least).count();
            let (looks, least) = (shares.len(), least * 100.0);
            let Some(share) = describe::median(&mut shares) else {
                return missing("no mapping of the program can hold a superpage".to_string());
            };
            if short == 0 {
                return Effect::AsPromised;
            }
            let (place, instead) = match pages {
                Pages::Hugetlb(_) => {
                    let thp = coverages.iter().map(|it| it.anon_thp.bytes() + it.shmem_pmd.bytes());
                    let thp = ByteSize(thp.max().unwrap_or(0));
                    ("on hugetlb pages", format!("; {thp} on THP instead"))
                }
                _ => ("on superpages", String::new()),
            };
            // Rounded down: a share below the limit never reads as the limit.
            let share = format!("{:.1} %", (share * 1000.0).floor() / 10.0);
            missing(match looks {
                1 => format!(
                    "{share} of the eligible memory was {place}, less than {least:.0} %{instead}"
                ),
                _ => format!(
                    "in {short} of {looks} observed runs, less than {least:.0} % of the eligible \
                     memory was {place} (median {share}){instead}"
                ),
            })
        }
    }
}

/// Returns the number of bytes on pages of the pool of `size`, or of any pool.
fn hugetlb_of(coverage: &Coverage, size: Option<PageSize>) -> u64 {
    let of_size = |sizes: &BTreeMap<PageSize, ByteSize>| {
        let is_asked = |found: &PageSize| size.is_none_or(|size| size == *found);
        sizes
            .iter()
            .filter(|(found, _)| is_asked(found))
            .map(|(_, bytes)| bytes.bytes())
            .sum::<u64>()
    };
    of_size(&coverage.hugetlb_private) + of_size(&coverage.hugetlb_shared)
}

/// Returns an arm's runs, whatever their purpose.
fn runs_of(document: &Document, arm: u32) -> impl Iterator<Item = &Sample> {
    document.samples.iter().filter(move |sample| sample.arm == arm)
}

fn runs_for(document: &Document, arm: u32, purpose: Purpose) -> impl Iterator<Item = &Sample> {
    runs_of(document, arm).filter(move |sample| sample.purpose == purpose)
}

/// Returns the arm's coverages, and whether they are from warm-ups only.
fn coverages(document: &Document, arm: u32) -> (Vec<&Coverage>, bool) {
    let of = |purpose| -> Vec<&Coverage> {
        let runs = runs_for(document, arm, purpose);
        runs.filter_map(|sample| sample.memory.coverage.as_ref()).collect()
    };
    match of(Purpose::Measured) {
        measured if measured.is_empty() => (of(Purpose::WarmUp), true),
        measured => (measured, false),
    }
}

fn summary(document: &Document, index: u32, arm: &Arm) -> Summary {
    let runs: Vec<&Sample> = runs_for(document, index, Purpose::Measured).collect();
    let median = |of: &dyn Fn(&Sample) -> Option<f64>| {
        describe::median(&mut runs.iter().filter_map(|sample| of(sample)).collect::<Vec<f64>>())
    };
    let total = |of: fn(&Sample) -> Option<u64>| runs.iter().map(|sample| of(sample)).sum();
    let (coverages, from_warm_up) = coverages(document, index);
    let share = |of: fn(&Coverage) -> Option<f64>| {
        let mut shares: Vec<f64> = coverages.iter().filter_map(|coverage| of(coverage)).collect();
        describe::median(&mut shares)
    };
    let zero_filled = |purpose| {
        let runs = runs_for(document, index, purpose);
        let mut bytes: Vec<f64> =
            runs.filter_map(|sample| Some(sample.memory.zero_filled_bytes? as f64)).collect();
        describe::median(&mut bytes)
    };
    Summary {
        name: arm.name.clone(),
        runs: runs.len() as u32,
        failed_runs: runs.iter().filter(|sample| !sample.succeeded()).count() as u32,
        wall_seconds: median(&|sample| Some(sample.wall_seconds)),
        user_seconds: median(&|sample| Some(sample.user_seconds)),
        system_seconds: median(&|sample| Some(sample.system_seconds)),
        minor_faults: median(&|sample| Some(sample.minor_faults as f64)),
        major_faults: median(&|sample| Some(sample.major_faults as f64)),
        peak_bytes: median(&|sample| sample.peak_bytes().map(|bytes| bytes as f64)),
        metric: median(&|sample| sample.metric),
        more_metrics: (1..=document.more_metrics.len())
            .map(|index| median(&|sample| sample.metric_at(index)))
            .collect(),
        coverage: share(Coverage::ratio),
        mean_coverage: median(&|sample| sample.memory.over_time.mean_coverage),
        end_coverage: median(&|sample| sample.memory.over_time.end_coverage()),
        eligible_coverage: share(Coverage::anon_ratio),
        zero_filled_bytes: zero_filled(Purpose::Measured).or_else(|| zero_filled(Purpose::WarmUp)),
        thp_fault_fallbacks: total(|sample| sample.thp_fault_fallbacks),
        compaction_stalls: total(|sample| sample.compaction_stalls),
        coverage_from_warm_up: from_warm_up && !coverages.is_empty(),
        run_seconds: median(&|sample| Some(sample.run_seconds())),
        watch_share: median(&|sample| Some(sample.memory.watch_seconds / sample.watched_seconds())),
        longest_look_seconds: runs
            .iter()
            .map(|sample| sample.memory.longest_look_seconds)
            .max_by(f64::total_cmp),
    }
}

#[cfg(test)]
pub(crate) mod tests;
