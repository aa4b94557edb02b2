//! A set of page sizes.

use crate::rules::{Form, Rules};
use crate::{Action, Condition, Fact, Facts, Policy, Reads};

/// A set of page sizes, stored as orders: a page of order `n` has 2^n base pages. Orders go up to
/// 31.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders(u32);

impl Orders {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a size.
    #[must_use]
    pub const fn with(self, order: u8) -> Self {
        Self(self.0 | 1 << (order & 31))
    }

    /// Whether the set contains this size.
    #[inline]
    pub const fn has(self, order: u8) -> bool {
        self.0 >> (order & 31) & 1 != 0
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The intersection of two sets.
    #[must_use]
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The union of two sets.
    #[must_use]
    #[inline]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The subset of orders below `order`.
    #[must_use]
    #[inline]
    pub const fn below(self, order: u8) -> Self {
        Self(self.0 & ((1 << (order & 31)) - 1))
    }

    /// The subset of orders above `order`.
    #[must_use]
    #[inline]
    pub const fn above(self, order: u8) -> Self {
        Self(self.0 & !((2u32 << (order & 31)).wrapping_sub(1)))
    }

    /// The largest order in the set.
    #[inline]
    pub const fn largest(self) -> Option<u8> {
        if self.0 == 0 { None } else { Some(self.0.ilog2() as u8) }
    }

    /// The smallest order in the set.
    pub const fn smallest(self) -> Option<u8> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as u8) }
    }

    /// Iterates over the set, ascending: each item is an order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u8> {
        (0..32).filter(move |&order| self.has(order))
    }
}

impl FromIterator<u8> for Orders {
    fn from_iter<I: IntoIterator<Item = u8>>(orders: I) -> Self {
        orders.into_iter().fold(Self::NONE, Self::with)
    }
}

// Designs with several sizes: choosing the size that a fault maps, and the size that a scan makes.
//
// Both try the largest size first. A fault maps the largest size whose aligned extent lies in the mapping, is empty and
// satisfies the condition; if memory is too short for this size, the fault maps the next smaller one (Trident; mTHP). A
// scan gets candidates of its largest size first. If a candidate does not qualify, fails the condition or gets no
// memory, the scan gets the candidates of the next smaller size inside it ([`Action::Consider`]).
//
// A scan without a condition makes no pages below the PMD-level size, like khugepaged.

impl Policy {
    /// Whether the condition lets a fault map a page of this size.
    pub(crate) fn worth_it(&self, order: u8, facts: &Facts) -> bool {
        self.holds(self.rules.allocation.when.as_ref(), order, facts)
    }

    /// The largest of these sizes, all above a superpage, that a first fault may map.
    pub(crate) fn larger(&self, sizes: Orders, facts: &Facts) -> Option<u8> {
        let region = &facts.region;
        if sizes.is_empty() || region.populated > 0 || !self.is_eligible(&facts.mapping) {
            return None;
        }
        let fits = sizes.and(region.begins).and(region.ends).and(region.absent);
        fits.iter().rev().find(|&order| self.worth_it(order, facts))
    }

    /// Whether the condition lets a scan make a page of this size from a candidate.
    pub(crate) fn worth_copying(&self, order: u8, facts: &Facts) -> bool {
        let scan = self.rules.mapping.scan.as_ref();
        self.holds(scan.and_then(|scan| scan.when.as_ref()), order, facts)
    }

    /// Replaces order 0 in facts by the order of the PMD-level size.
    pub(crate) fn size(&self, order: u8) -> u8 {
        if order == 0 { self.scale.superpage } else { order }
    }

    /// All sizes of the design.
    pub fn sizes(&self) -> Orders {
        self.at_fault.sizes
    }

    /// The sizes of a scan's candidates. Executors report the largest first.
    pub fn scanned_sizes(&self) -> Orders {
        let large = self.scale.superpage;
        let scan = self.rules.mapping.scan.as_ref();
        let sizes = match self.rules.allocation.form {
            Form::Superpage => self.sizes(),
            Form::Reservation | Form::Pool => Orders::NONE.with(large),
        };
        match scan {
            None => Orders::NONE,
            Some(scan) if scan.when.is_some() => sizes,
            Some(_) => sizes.and(Orders::NONE.with(large)).or(sizes.above(large)),
        }
    }

    /// Whether the design makes superpages of this size.
    pub(crate) fn has_size(&self, order: u8) -> bool {
        self.rules.allocation.form != Form::Superpage || self.sizes().has(order)
    }

    /// Skips this size: considers the next smaller size, if there is one.
    pub(crate) fn consider_below(&self, order: u8) -> Action {
        match self.scanned_sizes().below(order).largest() {
            Some(order) => Action::Consider { order },
            None => Action::Nothing,
        }
    }

    /// Number of TLB misses per unit of time, according to the profile, of the superpage at
    /// `offset` in the program's memory.
    pub fn profiled(&self, offset: u64) -> u64 {
        self.rules.profile.as_ref().map_or(0, |profile| profile.at(offset))
    }
}

/// Returns the expensive facts that the rules need.
pub(crate) fn reads(rules: &Rules) -> Reads {
    let scan = rules.mapping.scan.as_ref();
    let of_scan = scan.and_then(|scan| scan.when.as_ref());
    let names = |condition: Option<&Condition>, fact: Fact| {
        condition.is_some_and(|condition| condition.facts().any(|named| named == fact))
    };
    let by_misses = scan.is_some_and(|scan| scan.order == crate::rules::ScanOrder::Misses);
    let watches = rules.unmapping.when.is_some();
    Reads::AT_FAULT
        .when(rules.allocation.when.is_some())
        .and(Reads::OF_CANDIDATES.when(of_scan.is_some() || watches))
        .and(Reads::MISSES.when(by_misses || names(of_scan, Fact::Misses)))
        .and(Reads::COVERAGE.when(watches))
}

// One bit per base page of a superpage.

/// A bitmap of up to 512 pages: bit `slot % 64` of word `slot / 64`.
pub type Population = [u64; 8];
