//! The verdicts of a document. Pure: the same document gives the same analysis. See docs/decisions/running-services.md#2.

use serde::Serialize;

use super::Pages;
use super::document::Document;
use super::procedure::{Arm, Block, Fault, Purpose, Stopped, values};
use crate::stats::{self, Better, Comparison, describe};
use crate::verdict::{Effect, Verdict, noise_floor, verdict};

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The memory as it was found, if it has a figure.
    pub as_found: Option<Summary>,
    /// One summary per arm, in the document's order.
    pub arms: Vec<Summary>,
    /// One judgement per arm except the reference.
    pub judgements: Vec<Judgement>,
    /// The largest difference that two arms in the same state left possible, as a fraction; `null` if it was not
    /// measured.
    pub noise_floor: Option<f64>,
    /// Number of rounds that count for every arm.
    pub rounds: u32,
    /// Number of rounds that do not count.
    pub dropped_rounds: u32,
    /// Ratio of the base pages of an arm, which come from splits, to base pages as they were found: above 1 if the arm's
    /// are better. `null` if the memory was not found on base pages, or has no figure.
    pub split_over_found: Option<f64>,
    /// The same of superpages: what they bring to the memory as it was found. Not interleaved, so it is no verdict.
    pub superpages_over_found: Option<f64>,
    /// Seconds of all rounds, with their switches.
    pub round_seconds: f64,
    /// All blocks, by what they count for.
    pub counts: Counts,
}

/// The blocks of a document, by what they count for; each block once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Of the memory as it was found.
    pub as_found: u32,
    /// Of the arms, before the first round.
    pub warm_ups: u32,
    /// Of whole rounds: those of the verdicts.
    pub counted: u32,
    /// Coverage out of the arm's bounds, at either end.
    pub wrong_pages: u32,
    /// No memory that could be on superpages.
    pub nothing_eligible: u32,
    /// No figure of the metric.
    pub without_figure: u32,
    /// Evidence, but of a round that is not whole.
    pub of_dropped_rounds: u32,
}

impl Counts {
    fn of(document: &Document) -> Self {
        let in_round = |round: u32| {
            let measured = document
                .blocks
                .iter()
                .filter(move |block| block.purpose == Purpose::Measured && block.round == round);
            measured.map(|block| fault(document, block))
        };
        let is_whole = |round: u32| {
            let good = in_round(round).filter(Option::is_none).count();
            good == 2 * document.arms.len()
        };
        let mut counts = Self::default();
        for block in &document.blocks {
            let count = match (block.purpose, fault(document, block)) {
                (Purpose::AsFound, _) => &mut counts.as_found,
                (Purpose::WarmUp, _) => &mut counts.warm_ups,
                (Purpose::Measured, Some(Fault::Before(_) | Fault::After(_))) => {
                    &mut counts.wrong_pages
                }
                (Purpose::Measured, Some(Fault::NothingEligible)) => &mut counts.nothing_eligible,
                (Purpose::Measured, Some(Fault::NoValue)) => &mut counts.without_figure,
                (Purpose::Measured, None) if is_whole(block.round) => &mut counts.counted,
                (Purpose::Measured, None) => &mut counts.of_dropped_rounds,
            };
            *count += 1;
        }
        counts
    }

    /// The sum in words: `34 blocks = 4 as found + 2 warm-ups + …`.
    pub fn words(&self) -> String {
        let parts = [
            (self.as_found, "as found"),
            (self.warm_ups, "before the rounds"),
            (self.counted, "of the verdict"),
            (self.wrong_pages, "discarded for their pages"),
            (self.nothing_eligible, "discarded without eligible memory"),
            (self.without_figure, "discarded without a figure"),
            (self.of_dropped_rounds, "of rounds that are not whole"),
        ];
        let all: u32 = parts.iter().map(|(count, _)| count).sum();
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        format!("{} = {}", report::format::counted(all, "block", "blocks"), parts.join(" + "))
    }
}

/// Why a block is no evidence about its arm; the memory as it was found has none.
fn fault(document: &Document, block: &Block) -> Option<Fault> {
    let arm = document.arms.get(block.arm? as usize)?;
    block.fault(arm, &document.settings.bounds)
}

/// Summary of an arm's measured blocks. Medians, unless stated otherwise; unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The arm's name.
    pub name: String,
    /// Number of blocks that count.
    pub blocks: u32,
    /// Blocks that do not count, and why.
    pub discarded: Vec<Discarded>,
    /// The metric.
    pub value: Option<f64>,
    /// Share of eligible memory on superpages, the mean of both ends of a block.
    pub coverage: Option<f64>,
    /// Eligible bytes, the mean of both ends of a block.
    pub eligible_bytes: Option<f64>,
    /// Longest switch to the arm's state in seconds, warm-ups included.
    pub longest_switch_seconds: Option<f64>,
    /// Longest system call of these switches in seconds.
    pub longest_call_seconds: Option<f64>,
}

/// A measured block that does not count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Discarded {
    /// Index of its round, from 0.
    pub round: u32,
    /// The reason, as text.
    pub why: String,
}

/// The verdict on an arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The arm's name.
    pub arm: String,
    /// The verdict with its numbers.
    pub verdict: Verdict,
    /// All figures of the verdict; `null` if there was nothing to compare.
    pub comparison: Option<Comparison>,
}

/// Computes the analysis.
pub fn analyse(document: &Document) -> Analysis {
    let bounds = &document.settings.bounds;
    let values = values(&document.blocks, &document.arms, bounds);
    let statistics = document.statistics();
    let compare =
        |arm: usize| stats::compare(&values, 0, arm as u32, document.metric.better, &statistics);
    let floor_arm = document.arms.iter().position(|arm| arm.is_noise_floor);
    let floor = floor_arm.and_then(|arm| noise_floor(&compare(arm).ok()?));
    let judge = |(index, arm): (usize, &Arm)| {
        let compared = compare(index);
        let margin = document.judging.margin(floor.filter(|_| !arm.is_noise_floor));
        // Blocks without the pages of their arm are left out of `values`.
        let verdict = match &document.stopped {
            Stopped::Dropped => {
                Verdict::NoData { why: "most rounds had a block that is no evidence".to_string() }
            }
            Stopped::Executed { process } => {
                let process = report::format::name(process, 60);
                Verdict::NoData { why: format!("{process} executed another program") }
            }
            _ => verdict(&Effect::AsPromised, compared.as_ref(), &margin),
        };
        Judgement { arm: arm.name.clone(), verdict, comparison: compared.ok() }
    };
    let judgements: Vec<_> = document.arms.iter().enumerate().skip(1).map(judge).collect();
    let begun = document.blocks.iter().filter(|block| block.purpose == Purpose::Measured);
    let begun = begun.map(|block| block.round.saturating_add(1)).max().unwrap_or(0);
    let warm_ups = document.blocks.iter().filter(|block| block.purpose != Purpose::Measured);
    let warm_up_seconds =
        warm_ups.map(|block| block.began_seconds + block.seconds).fold(0.0, f64::max);
    let compared = |one: &Judgement| one.comparison.as_ref().map_or(0, |found| found.blocks);
    let rounds = judgements.iter().map(compared).min().unwrap_or(0);
    let found: Vec<&Block> =
        document.blocks.iter().filter(|block| block.purpose == Purpose::AsFound).collect();
    let as_found = (!found.is_empty()).then(|| Summary::new("as found", &found, &[], Vec::new()));
    let arms: Vec<_> = document.arms.iter().enumerate().map(|arm| summary(document, arm)).collect();
    let over =
        |is_meant: fn(&Arm) -> bool| over_found(document, as_found.as_ref()?, &arms, is_meant);
    Analysis {
        split_over_found: over(|arm| arm.pages == Pages::Base),
        superpages_over_found: over(|arm| arm.pages != Pages::Base),
        as_found,
        arms,
        judgements,
        noise_floor: floor,
        rounds,
        dropped_rounds: begun.saturating_sub(rounds),
        round_seconds: (document.elapsed_seconds - warm_up_seconds).max(0.0),
        counts: Counts::of(document),
    }
}

/// How much better an arm's metric is than that of the memory as it was found; `None` if that was not on base pages.
fn over_found(
    document: &Document,
    found: &Summary,
    arms: &[Summary],
    is_meant: impl Fn(&Arm) -> bool,
) -> Option<f64> {
    let is_base = found.coverage? <= document.settings.bounds.base_at_most;
    let meant = document.arms.iter().position(is_meant)?;
    let (arm, found) = (arms[meant].value?, found.value?);
    let ratio = match document.metric.better {
        Better::Higher => arm / found,
        Better::Lower => found / arm,
    };
    is_base.then_some(ratio)
}

fn summary(document: &Document, (index, arm): (usize, &Arm)) -> Summary {
    let own = document.blocks.iter().filter(|block| block.arm == Some(index as u32));
    let own: Vec<&Block> = own.collect();
    let is_measured = |block: &&&Block| block.purpose == Purpose::Measured;
    let fault = |block: &Block| block.fault(arm, &document.settings.bounds);
    let discarded = own.iter().filter(is_measured).filter_map(|block| {
        let why = words(fault(block)?, arm, document, block);
        Some(Discarded { round: block.round, why })
    });
    let discarded = discarded.collect();
    let good = own.iter().filter(is_measured).filter(|block| fault(block).is_none());
    let good: Vec<&Block> = good.copied().collect();
    Summary::new(&arm.name, &good, &own, discarded)
}

impl Summary {
    fn new(name: &str, good: &[&Block], all: &[&Block], discarded: Vec<Discarded>) -> Self {
        let median = |of: &dyn Fn(&Block) -> Option<f64>| {
            describe::median(&mut good.iter().filter_map(|block| of(block)).collect::<Vec<_>>())
        };
        let both = |block: &Block, of: fn(&super::Coverage) -> Option<f64>| {
            let (before, after) = (of(&block.before)?, of(block.after.as_ref()?)?);
            Some(describe::midpoint(before, after))
        };
        let longest = |of: fn(&super::Switched) -> Option<f64>| {
            let all = all.iter().filter_map(|block| of(block.switched.as_ref()?));
            all.max_by(f64::total_cmp)
        };
        Self {
            name: name.to_string(),
            blocks: good.len() as u32,
            discarded,
            value: median(&|block| block.value),
            coverage: median(&|block| both(block, super::Coverage::share)),
            eligible_bytes: median(&|block| {
                both(block, |coverage| Some(coverage.eligible_bytes as f64))
            }),
            longest_switch_seconds: longest(|switched| Some(switched.seconds)),
            longest_call_seconds: longest(|switched| switched.longest_call_seconds),
        }
    }
}

/// Formats why a block does not count.
fn words(fault: Fault, arm: &Arm, document: &Document, block: &Block) -> String {
    let bounds = &document.settings.bounds;
    let percent = report::format::percent;
    let promise = match arm.pages {
        Pages::Base => format!("at most {}", percent(bounds.base_at_most)),
        Pages::Superpages => format!("at least {}", percent(bounds.superpages_at_least)),
    };
    match fault {
        Fault::Before(share) => {
            let obstacle = block.switched.as_ref().and_then(|one| one.largest_obstacle());
            let obstacle = obstacle.map_or(String::new(), |obstacle| {
                format!(" (not switched: {})", super::html::obstacle(obstacle))
            });
            format!("{} on superpages at its start, not {promise}{obstacle}", percent(share))
        }
        Fault::After(share) => {
            format!("{} on superpages at its end, not {promise}", percent(share))
        }
        Fault::NothingEligible => "no memory that could be on superpages".to_string(),
        Fault::NoValue => {
            let why = block.unknown.as_deref().unwrap_or("unknown reason");
            format!("the metric has no figure: {}", report::format::name(why, 160))
        }
    }
}
