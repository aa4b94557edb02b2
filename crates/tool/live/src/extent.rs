//! One extent: an aligned 2 MiB of a process's memory, its population, and what the policy decided for it.

use crate::account::Cause;
use policy::{Facts, Mapping, Orders, Policy, Reservation, Scale, Superpage};

/// Page sizes that the executor serves; [`crate::check_machine`] refuses other machines.
pub(crate) const SCALE: Scale = Scale::X86;
pub(crate) const PAGES: u16 = 1 << SCALE.superpage;
pub(crate) const BYTES: u64 = SCALE.base_page << SCALE.superpage;

/// An aligned range inside one mapping. It has pages.
///
/// Life cycle: seen with some pages, growing, wanted by the policy, made a superpage. If pages are unmapped later, it
/// is an extent with fewer pages again. The next look at the whole process drops an extent without pages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    /// The mapping that contains the extent.
    pub mapping: Mapping,
    /// Number of base pages in memory, without the zero page.
    pub populated: u16,
    /// Number of base pages in swap.
    pub swapped: u16,
    /// Whether the extent is mapped as a superpage.
    pub is_huge: bool,
    /// Whether this executor made it a superpage.
    pub is_ours: bool,
    /// Whether it was a superpage when the process was forked.
    pub is_inherited: bool,
    /// Whether the policy reserved it. No physical memory is held.
    pub is_reserved: bool,
    /// Whether the policy found it unfit to be filled.
    pub is_bad: bool,
    /// Time of the last look that saw fewer pages, and of the first that saw the present population, in ticks.
    pub grew: (u64, u64),
    /// Whether the policy wants a superpage.
    pub is_wanted: bool,
    /// The rule by which the policy wants a superpage.
    pub cause: Cause,
    /// Whether the policy wanted a superpage, but did not get it because too much filled memory is unused.
    pub is_held: bool,
    /// Number of failed attempts to make a superpage.
    pub failures: u8,
    /// When the next attempt is allowed, in ticks.
    pub retry_at: u64,
    /// Time of the last look, in ticks.
    pub looked_at: u64,
}

impl Extent {
    /// Returns the facts for the policy. Pages that are present and private count as written. Policies read how many
    /// pages there are, not which.
    pub(crate) fn facts(&self, policy: &Policy, is_shared: bool) -> Facts {
        let mapping = Mapping { forked: is_shared, ..self.mapping };
        let mut facts = Facts { mapping, ..Facts::default() };
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
        // The kernel clears no accessed bits unless memory is reclaimed, so each page has its bit since it was faulted
        // in.
        region.accessed = self.populated > 0;
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

    /// Returns the facts before the extent's first page.
    pub(crate) fn facts_when_empty(&self, policy: &Policy, is_shared: bool) -> Facts {
        let empty = Self { populated: 0, swapped: 0, is_reserved: false, ..*self };
        let mut facts = empty.facts(policy, false);
        // Pages inherited by a fork are in frames of their own.
        let sizes = policy.physical().reserved;
        facts.region.unreserved = if is_shared { Orders::NONE } else { sizes };
        facts
    }
}

/// Returns a bitmap with the first `count` pages populated.
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

    #[test]
    fn facts_are_those_of_the_page_table() {
        let policy = super::Policy::new(&Default::default(), super::SCALE);
        let extent = super::Extent { populated: 300, swapped: 7, ..super::Extent::default() };
        let facts = extent.facts(&policy, true);
        let region = facts.region;
        assert_eq!((region.populated, region.swapped, region.has_table), (300, 7, true));
        assert!(region.has_cow && facts.mapping.forked && region.reservation.is_none());
        let reserved = super::Extent { is_reserved: true, populated: super::PAGES, ..extent };
        let reservation = reserved.facts(&policy, false).region.reservation.unwrap();
        assert_eq!((reservation.populated, reservation.is_full), (512, true));
    }
}
