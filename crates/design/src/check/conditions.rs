//! What conditions, and what they are made of, need to be of any effect.

use super::ask::*;
use super::{Rule, rule};
use crate::*;
use policy::Fact;
use units::ByteSize;

const FAULT_WHEN: &str = "allocation.when";
const SCAN_WHEN: &str = "mapping.scan.when";
const SPLIT_WHEN: &str = "unmapping.when";
const MISS_CYCLES: &str = "estimate.miss-cycles";
const PREZERO: &str = "preparation.prezero";
const NEVER_ZEROED: &str = "names prezeroed, which nothing ever is: needs a [preparation.prezero]";
const NO_FACT: &str = "names no fact, so it always holds or never: name one, or leave it out";
const WATCH: &str = "unmapping.scan";

/// What the spans of a profile must do.
pub const GOES_UP: &str =
    "must go up, none over another, from less to more, up to 512G, with at most 2^40 misses";

pub(super) const RULES: &[Rule] = &[
    rule(
        &[FAULT_WHEN, TRIGGER, FORM],
        "is asked where a fault maps a superpage: needs trigger = \"first-fault\" and form = \"superpage\"",
        |d| {
            d.rules.allocation.when.is_some()
                && !(trigger(d, Trigger::FirstFault) && form(d, Form::Superpage))
        },
    ),
    rule(
        &[SCAN_WHEN, SAMPLING],
        "names coverage, skew or misses: needs a [mapping.scan.sampling]",
        |d| scan(d, |scan| samples(scan) && scan.sampling.is_none()),
    ),
    rule(
        &[SCAN_WHEN, ORDER],
        "names accessed, which is known of order = \"address\" and \"crossing\" only",
        |d| scan(d, |scan| names(scan.when.as_ref(), Fact::Accessed) && by_access(scan.order)),
    ),
    rule(&[SPLIT_WHEN, WATCH], "needs an [unmapping.scan], which watches superpages", |d| {
        d.rules.unmapping.when.is_some() && d.rules.unmapping.scan.is_none()
    }),
    rule(&[WATCH, SPLIT_WHEN], "needs unmapping.when, which says what is split", |d| {
        d.rules.unmapping.scan.is_some() && d.rules.unmapping.when.is_none()
    }),
    rule(
        &[WATCH, FORM, TRIGGER],
        "splits superpages: needs form = \"superpage\", and a trigger that makes some",
        |d| {
            d.rules.unmapping.scan.is_some()
                && (!form(d, Form::Superpage) || trigger(d, Trigger::Never))
        },
    ),
    rule(&["unmapping.scan.every"], A_PERIOD, |d| watch(d, |watch| bad_period(watch.every))),
    rule(
        &["unmapping.scan.window", "unmapping.scan.every"],
        "must be more than 0s, and no more than every",
        |d| watch(d, |watch| watch.window.is_zero() || watch.window > watch.every),
    ),
    rule(&["unmapping.scan.superpages"], "must be 1 or more", |d| {
        watch(d, |watch| watch.superpages == 0)
    }),
    rule(&["unmapping.scan.below-percent"], "must be 1 to 100 (100: always)", |d| {
        watch(d, |watch| !(1..=100).contains(&watch.below_percent))
    }),
    rule(
        &["estimate", FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN],
        "is what benefit and cost are made of: needs a condition that names one of them",
        |d| d.rules.estimate.is_some() && !any_names(d, &[Fact::Benefit, Fact::Cost]),
    ),
    rule(
        &[MISS_CYCLES, FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN],
        "is what benefit is made of: needs a condition that names it",
        |d| {
            let default = Estimate::default().miss_cycles;
            estimate(d, |own| own.miss_cycles != default) && !any_names(d, &[Fact::Benefit])
        },
    ),
    rule(
        &["estimate.prepare-cycles", FAULT_WHEN, SCAN_WHEN],
        "is what cost is made of: needs a condition that names it",
        |d| {
            let default = Estimate::default().prepare_cycles;
            estimate(d, |own| own.prepare_cycles != default) && !any_names(d, &[Fact::Cost])
        },
    ),
    rule(
        &["estimate.shortage-cycles", FAULT_WHEN, SCAN_WHEN],
        "is what cost is made of: needs a condition that names it",
        |d| {
            let default = Estimate::default().shortage_cycles;
            estimate(d, |own| own.shortage_cycles != default) && !any_names(d, &[Fact::Cost])
        },
    ),
    rule(&[FAULT_WHEN, PREZERO], NEVER_ZEROED, |d| {
        names(d.rules.allocation.when.as_ref(), Fact::Prezeroed) && !zeroes_ahead(d)
    }),
    rule(&[SCAN_WHEN, PREZERO], NEVER_ZEROED, |d| {
        scan(d, |scan| names(scan.when.as_ref(), Fact::Prezeroed)) && !zeroes_ahead(d)
    }),
    rule(&[FAULT_WHEN], NO_FACT, |d| d.rules.allocation.when.as_ref().is_some_and(is_constant)),
    rule(&[SCAN_WHEN], NO_FACT, |d| scan(d, |scan| scan.when.as_ref().is_some_and(is_constant))),
    rule(&[SPLIT_WHEN], NO_FACT, |d| d.rules.unmapping.when.as_ref().is_some_and(is_constant)),
    rule(&["estimate.miss-cycles"], "must be at most 2^40", |d| {
        estimate(d, |estimate| estimate.miss_cycles > 1 << 40)
    }),
    rule(&["estimate.prepare-cycles"], "must be at most 2^40", |d| {
        estimate(d, |estimate| estimate.prepare_cycles > 1 << 40)
    }),
    rule(&["estimate.shortage-cycles"], "must be at most 2^40", |d| {
        estimate(d, |estimate| estimate.shortage_cycles > 1 << 40)
    }),
    rule(
        &["profile", FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN],
        "is for conditions that name profiled or benefit: there is none",
        |d| d.rules.profile.is_some() && !reads_profile(d),
    ),
    rule(&["profile.spans"], GOES_UP, |d| {
        d.rules.profile.as_ref().is_some_and(|profile| !goes_up(&profile.spans))
    }),
];

fn is_constant(condition: &policy::Condition) -> bool {
    condition.facts().next().is_none()
}

fn zeroes_ahead(d: &Design) -> bool {
    d.rules.preparation.prezero.is_some() || d.rules.memory.ideal
}

fn watch(d: &Design, is: impl FnOnce(&Watch) -> bool) -> bool {
    d.rules.unmapping.scan.as_ref().is_some_and(is)
}

fn estimate(d: &Design, is: impl FnOnce(&Estimate) -> bool) -> bool {
    d.rules.estimate.as_ref().is_some_and(is)
}

fn names(condition: Option<&policy::Condition>, fact: Fact) -> bool {
    condition.is_some_and(|condition| condition.facts().any(|named| named == fact))
}

fn any_names(d: &Design, facts: &[Fact]) -> bool {
    let Rules { allocation, mapping, unmapping, .. } = &d.rules;
    let scan = mapping.scan.as_ref().and_then(|scan| scan.when.as_ref());
    let all = [allocation.when.as_ref(), scan, unmapping.when.as_ref()];
    all.into_iter().any(|condition| facts.iter().any(|fact| names(condition, *fact)))
}

/// Whether a condition names what a profile says.
pub fn reads_profile(d: &Design) -> bool {
    any_names(d, &[Fact::Profiled, Fact::Benefit])
}

/// Whether a scan's condition names what is sampled.
pub fn samples(scan: &Scan) -> bool {
    [Fact::Coverage, Fact::Skew, Fact::Misses].iter().any(|fact| names(scan.when.as_ref(), *fact))
}

/// Whether they do.
pub fn goes_up(spans: &[Span]) -> bool {
    let good = |span: &Span| {
        span.from < span.to && span.to <= ByteSize::gib(512) && span.misses <= 1 << 40
    };
    spans.iter().all(good) && spans.is_sorted_by(|a, b| a.to <= b.from)
}
