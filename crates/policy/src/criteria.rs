//! What decides *whether* a design makes a superpage, or keeps one: its conditions and thresholds. When it does, how many at a
//! time and with what effort is none of these. See docs/decisions/live.md#15.

use crate::rules::ScanOrder;
use crate::scan::by_place;
use crate::{Condition, Policy, Rule};

/// Pages of a superpage that may be swapped out where no rule limits them.
const NO_LIMIT: u16 = 512;

/// A condition or threshold of a scan, a fault or a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion<'a> {
    /// The condition of a rule.
    Condition(Rule, &'a Condition),
    /// The fewest populated pages of a scan's candidate.
    LeastPresent(u16),
    /// The most swapped-out pages of a scan's candidate.
    MostSwapped(u16),
    /// Only regions that were accessed lately, or that missed in the TLB, are candidates of the scan.
    Accessed(ScanOrder),
}

impl Criterion<'_> {
    /// Its key in a design's file.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Condition(rule, _) => rule.key(),
            Self::LeastPresent(_) => "mapping.scan.least-present",
            Self::MostSwapped(_) => "mapping.scan.most-swapped",
            Self::Accessed(_) => "mapping.scan.order",
        }
    }
}

impl Policy {
    /// What decides whether it makes superpages, apart from whether one is free and where it fits.
    pub fn criteria(&self) -> impl Iterator<Item = Criterion<'_>> {
        let rules = &self.rules;
        let scan = rules.mapping.scan.as_ref();
        let conditions = [
            (Rule::Fault, rules.allocation.when.as_ref()),
            (Rule::Scan, scan.and_then(|scan| scan.when.as_ref())),
            (Rule::Split, rules.unmapping.when.as_ref()),
        ];
        let conditions = conditions
            .into_iter()
            .filter_map(|(rule, condition)| Some(Criterion::Condition(rule, condition?)));
        let thresholds = scan.into_iter().flat_map(|scan| {
            let swapped = scan.most_swapped < NO_LIMIT;
            let is_by_place = by_place(scan);
            [
                Some(Criterion::LeastPresent(scan.least_present.max(1))),
                swapped.then_some(Criterion::MostSwapped(scan.most_swapped)),
                (!is_by_place).then_some(Criterion::Accessed(scan.order)),
            ]
        });
        conditions.chain(thresholds.flatten())
    }
}
