//! One extent: an aligned 2 MiB of a process's memory, with its population and what the policy decided.

use crate::account::Cause;
use policy::{Facts, Mapping, Orders, Policy, Reservation, Scale, Superpage};

/// Page sizes served; [`crate::check_machine`] refuses other machines.
pub(crate) const SCALE: Scale = Scale::X86;
/// Base pages of a superpage.
pub(crate) const PAGES: u16 = 1 << SCALE.superpage;
/// Bytes of a superpage.
pub(crate) const BYTES: u64 = SCALE.base_page << SCALE.superpage;

/// An aligned range in one mapping that has pages.
///
/// Life cycle: first seen with some pages; grows; wanted by the policy; made a superpage. Pages that are unmapped
/// later make it an extent with fewer pages. An extent without pages is dropped by the next look at the whole
/// process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    /// Its mapping.
    pub mapping: Mapping,
    /// Base pages in memory; the zero page does not count.
    pub populated: u16,
    /// Base pages in swap.
    pub swapped: u16,
    /// Mapped as a superpage.
    pub is_huge: bool,
    /// Made a superpage by this executor.
    pub is_ours: bool,
    /// Was a superpage when the process was forked.
    pub is_inherited: bool,
    /// Reserved by the policy. No physical memory is held.
    pub is_reserved: bool,
    /// The policy found it unfit to be filled.
    pub is_bad: bool,
    /// The last time it was seen with fewer pages, and the first time with its present population, in ticks.
    pub grew: (u64, u64),
    /// The policy wants a superpage, and the rule by which it does.
    pub is_wanted: bool,
    pub cause: Cause,
    /// The policy wanted a superpage, but too much filled memory is unused.
    pub is_held: bool,
    /// Failed attempts, and when the next is allowed.
    pub failures: u8,
    pub retry_at: u64,
    /// When it was last looked at, in ticks.
    pub looked_at: u64,
}

impl Extent {
    /// Facts for the policy. Pages that are present and private count as written; policies read how many, not
    /// which.
    pub(crate) fn facts(&self, policy: &Policy, is_shared: bool) -> Facts {
        let mut facts = Facts { mapping: self.mapping, ..Facts::default() };
        let sizes = policy.physical().reserved;
        let region = &mut facts.region;
        region.inside = true;
        (region.begins, region.ends) = (sizes, sizes);
        region.populated = self.populated;
        region.swapped = self.swapped;
        region.has_table = self.populated + self.swapped > 0;
        region.is_mapped = self.populated == PAGES;
        region.superpage = self.is_huge.then(Superpage::default);
        region.has_cow = is_shared;
        region.has_shared = is_shared;
        region.has_writable = self.populated > 0;
        // No accessed bits are cleared unless memory is reclaimed: each page has had its bit since it was faulted in.
        region.accessed = self.populated > 0;
        region.nothing_shared = !is_shared;
        region.dirty = first_bits(self.populated);
        region.reservation = self.is_reserved.then_some(Reservation {
            order: SCALE.superpage,
            populated: self.populated.into(),
            is_taken: false,
            is_bad: self.is_bad,
            is_full: self.populated == PAGES && !is_shared,
        });
        facts
    }

    /// The facts before the extent's first page.
    pub(crate) fn facts_when_empty(&self, policy: &Policy, is_shared: bool) -> Facts {
        let empty = Self { populated: 0, swapped: 0, is_reserved: false, ..*self };
        let mut facts = empty.facts(policy, false);
        // Pages inherited by a fork have frames of their own.
        let sizes = policy.physical().reserved;
        facts.region.unreserved = if is_shared { Orders::NONE } else { sizes };
        facts
    }
}

/// A population of `count` pages, the first ones.
pub(crate) fn first_bits(count: u16) -> [u64; 8] {
    std::array::from_fn(|word| match usize::from(count).saturating_sub(word * 64) {
        0 => 0,
        bits if bits < 64 => (1 << bits) - 1,
        _ => !0,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn so_many_bits_are_set() {
        for count in [0, 1, 63, 64, 65, 511, 512] {
            let bits: u32 = super::first_bits(count).iter().map(|word| word.count_ones()).sum();
            assert_eq!(bits, u32::from(count));
        }
    }
}
