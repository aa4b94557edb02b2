//! Rules for conditions and their inputs.

use super::predicates::*;
use super::{Rule, table};
use crate::*;
use policy::Fact;
use units::ByteSize;

const FAULT_WHEN: &str = "allocation.when";
const SCAN_WHEN: &str = "mapping.scan.when";
const SPLIT_WHEN: &str = "unmapping.when";
const MISS_CYCLES: &str = "estimate.miss-cycles";
const PREZERO: &str = "preparation.prezero";
const NEVER_ZEROED: &str =
    "names prezeroed, but nothing zeroes memory ahead: needs a [preparation.prezero]";
const NO_FACT: &str = "names no fact, so it always holds or never: name one, or leave it out";
const WATCH: &str = "unmapping.scan";

/// Error text of a profile whose spans are invalid.
pub const ASCENDING: &str = "must be in ascending order without overlap, each end above its start, \
                             up to 512G, with at most 2^40 misses";

pub(super) const RULES: &[Rule] = table! { |r|
    [FAULT_WHEN, TRIGGER, FORM]
        "is asked where a fault maps a superpage: needs trigger = \"first-fault\" and form = \"superpage\""
        => r.allocation.when.is_some() && !(trigger(r, Trigger::FirstFault) && form(r, Form::Superpage));
    [SCAN_WHEN, SAMPLING] "names coverage, skew or misses: needs a [mapping.scan.sampling]"
        => scan(r, |scan| samples(scan) && scan.sampling.is_none());
    [SCAN_WHEN, ORDER] "names accessed, which is known of order = \"address\" and \"crossing\" only"
        => scan(r, |scan| names(scan.when.as_ref(), Fact::Accessed) && by_access(scan.order));
    [SPLIT_WHEN, WATCH] "needs an [unmapping.scan], which watches superpages"
        => r.unmapping.when.is_some() && r.unmapping.scan.is_none();
    [WATCH, SPLIT_WHEN] "needs unmapping.when, which says what is split"
        => r.unmapping.scan.is_some() && r.unmapping.when.is_none();
    [WATCH, FORM, TRIGGER] "splits superpages: needs form = \"superpage\", and a trigger that makes some"
        => r.unmapping.scan.is_some() && (!form(r, Form::Superpage) || trigger(r, Trigger::Never));
    ["unmapping.scan.window", "unmapping.scan.every"] "must be more than 0s, and no more than every"
        => watch(r, |watch| watch.window.is_zero() || watch.window > watch.every);
    ["estimate", FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN]
        "is part of benefit and cost: needs a condition that names one of them"
        => r.estimate.is_some() && !any_names(r, &[Fact::Benefit, Fact::Cost]);
    [MISS_CYCLES, FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN] "is part of benefit: needs a condition that names it"
        => estimate(r, |own| own.miss_cycles != Estimate::default().miss_cycles) && !any_names(r, &[Fact::Benefit]);
    ["estimate.prepare-cycles", FAULT_WHEN, SCAN_WHEN] "is part of cost: needs a condition that names it"
        => estimate(r, |own| own.prepare_cycles != Estimate::default().prepare_cycles) && !any_names(r, &[Fact::Cost]);
    ["estimate.shortage-cycles", FAULT_WHEN, SCAN_WHEN] "is part of cost: needs a condition that names it"
        => estimate(r, |own| own.shortage_cycles != Estimate::default().shortage_cycles) && !any_names(r, &[Fact::Cost]);
    [FAULT_WHEN, PREZERO] NEVER_ZEROED
        => names(r.allocation.when.as_ref(), Fact::Prezeroed) && !zeroes_ahead(r);
    [SCAN_WHEN, PREZERO] NEVER_ZEROED
        => scan(r, |scan| names(scan.when.as_ref(), Fact::Prezeroed)) && !zeroes_ahead(r);
    [FAULT_WHEN] NO_FACT
        => r.allocation.when.as_ref().is_some_and(is_constant);
    [SCAN_WHEN] NO_FACT
        => scan(r, |scan| scan.when.as_ref().is_some_and(is_constant));
    [SPLIT_WHEN] NO_FACT
        => r.unmapping.when.as_ref().is_some_and(is_constant);
    ["profile", FAULT_WHEN, SCAN_WHEN, SPLIT_WHEN] "is for conditions that name profiled or benefit: there is none"
        => r.profile.is_some() && !reads_profile(r);
    ["profile.spans"] ASCENDING
        => r.profile.as_ref().is_some_and(|profile| !is_ascending(&profile.spans));
};

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

/// Whether any condition uses facts from a profile.
pub fn reads_profile(r: &Rules) -> bool {
    any_names(r, &[Fact::Profiled, Fact::Benefit])
}

/// Whether a scan's condition uses sampled facts.
pub fn samples(scan: &Scan) -> bool {
    [Fact::Coverage, Fact::Skew, Fact::Misses].iter().any(|fact| names(scan.when.as_ref(), *fact))
}

/// Whether the spans satisfy [`ASCENDING`].
pub fn is_ascending(spans: &[Span]) -> bool {
    let good = |span: &Span| {
        span.from < span.to && span.to <= ByteSize::gib(512) && span.misses <= 1 << 40
    };
    spans.iter().all(good) && spans.is_sorted_by(|a, b| a.to <= b.from)
}
