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
        |r| {
            r.allocation.when.is_some()
                && !(trigger(r, Trigger::FirstFault) && form(r, Form::Superpage))
        },
    ),
    rule(
        &[SCAN_WHEN, SAMPLING],
        "names coverage, skew or misses: needs a [mapping.scan.sampling]",
        |r| scan(r, |scan| samples(scan) && scan.sampling.is_none()),
    ),
    rule(
        &[SCAN_WHEN, ORDER],
        "names accessed, which is known of order = \"address\" and \"crossing\" only",
        |r| scan(r, |scan| names(scan.when.as_ref(), Fact::Accessed) && by_access(scan.order)),
    ),
    rule(&[SPLIT_WHEN, WATCH], "needs an [unmapping.scan], which watches superpages", |r| {
        r.unmapping.when.is_some() && r.unmapping.scan.is_none()
    }),
    rule(&[WATCH, SPLIT_WHEN], "needs unmapping.when, which says what is split", |r| {
        r.unmapping.scan.is_some() && r.unmapping.when.is_none()
    }),
    rule(
        &[WATCH, FORM, TRIGGER],
        "splits superpages: needs form = \"superpage\", and a trigger that makes some",
        |r| r.unmapping.scan.is_some() && (!form(r, Form::Superpage) || trigger(r, Trigger::Never)),
    ),
    rule(
        &["unmapping.scan.window", "unmapping.scan.every"],
        "must be more than 0s, and no more than every",
        |r| watch(r, |watch| watch.window.is_zero() || watch.window > watch.every),
    ),
    rule(
        &["estimate", FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN],
        "is what benefit and cost are made of: needs a condition that names one of them",
        |r| r.estimate.is_some() && !any_names(r, &[Fact::Benefit, Fact::Cost]),
    ),
    rule(
        &[MISS_CYCLES, FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN],
        "is what benefit is made of: needs a condition that names it",
        |r| {
            let default = Estimate::default().miss_cycles;
            estimate(r, |own| own.miss_cycles != default) && !any_names(r, &[Fact::Benefit])
        },
    ),
    rule(
        &["estimate.prepare-cycles", FAULT_WHEN, SCAN_WHEN],
        "is what cost is made of: needs a condition that names it",
        |r| {
            let default = Estimate::default().prepare_cycles;
            estimate(r, |own| own.prepare_cycles != default) && !any_names(r, &[Fact::Cost])
        },
    ),
    rule(
        &["estimate.shortage-cycles", FAULT_WHEN, SCAN_WHEN],
        "is what cost is made of: needs a condition that names it",
        |r| {
            let default = Estimate::default().shortage_cycles;
            estimate(r, |own| own.shortage_cycles != default) && !any_names(r, &[Fact::Cost])
        },
    ),
    rule(&[FAULT_WHEN, PREZERO], NEVER_ZEROED, |r| {
        names(r.allocation.when.as_ref(), Fact::Prezeroed) && !zeroes_ahead(r)
    }),
    rule(&[SCAN_WHEN, PREZERO], NEVER_ZEROED, |r| {
        scan(r, |scan| names(scan.when.as_ref(), Fact::Prezeroed)) && !zeroes_ahead(r)
    }),
    rule(&[FAULT_WHEN], NO_FACT, |r| r.allocation.when.as_ref().is_some_and(is_constant)),
    rule(&[SCAN_WHEN], NO_FACT, |r| scan(r, |scan| scan.when.as_ref().is_some_and(is_constant))),
    rule(&[SPLIT_WHEN], NO_FACT, |r| r.unmapping.when.as_ref().is_some_and(is_constant)),
    rule(
        &["profile", FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN],
        "is for conditions that name profiled or benefit: there is none",
        |r| r.profile.is_some() && !reads_profile(r),
    ),
    rule(&["profile.spans"], GOES_UP, |r| {
        r.profile.as_ref().is_some_and(|profile| !goes_up(&profile.spans))
    }),
];

fn is_constant(condition: &policy::Condition) -> bool {
    condition.facts().next().is_none()
}

fn zeroes_ahead(r: &Rules) -> bool {
    r.preparation.prezero.is_some() || r.memory.ideal
}

fn watch(r: &Rules, is: impl FnOnce(&Watch) -> bool) -> bool {
    r.unmapping.scan.as_ref().is_some_and(is)
}

fn estimate(r: &Rules, is: impl FnOnce(&Estimate) -> bool) -> bool {
    r.estimate.as_ref().is_some_and(is)
}

fn names(condition: Option<&policy::Condition>, fact: Fact) -> bool {
    condition.is_some_and(|condition| condition.facts().any(|named| named == fact))
}

fn any_names(r: &Rules, facts: &[Fact]) -> bool {
    let Rules { allocation, mapping, unmapping, .. } = r;
    let scan = mapping.scan.as_ref().and_then(|scan| scan.when.as_ref());
    let all = [allocation.when.as_ref(), scan, unmapping.when.as_ref()];
    all.into_iter().any(|condition| facts.iter().any(|fact| names(condition, *fact)))
}

/// Whether a condition names what a profile says.
pub fn reads_profile(r: &Rules) -> bool {
    any_names(r, &[Fact::Profiled, Fact::Benefit])
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
