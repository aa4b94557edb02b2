//! A superpage's worth of a process's memory: what was seen of it, and what the policy said.

use crate::account::Cause;
use policy::{Facts, Mapping, Orders, Policy, Reservation, Scale, Superpage};

/// The machine that is served: [`crate::check_machine`] refuses others.
pub(crate) const SCALE: Scale = Scale::X86;
/// Base pages of a superpage.
pub(crate) const PAGES: u16 = 1 << SCALE.superpage;
/// Bytes of one.
pub(crate) const BYTES: u64 = SCALE.base_page << SCALE.superpage;

/// An aligned range of addresses that lies in one mapping and has pages.
///
/// It is *seen* first with some pages, *grows*, may be *wanted* by the policy, and is *made*; whatever of its pages goes
/// later makes it an extent with fewer pages. Without pages it is forgotten by the next look at all of the process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    /// The mapping that holds it.
    pub mapping: Mapping,
    /// Base pages in memory, not the shared zeros.
    pub populated: u16,
    /// Base pages that are swapped out.
    pub swapped: u16,
    /// It is mapped as a superpage.
    pub is_huge: bool,
    /// It was made a superpage by us.
    pub is_ours: bool,
    /// It was a superpage when its process was born.
    pub is_inherited: bool,
    /// The policy reserves a superpage for it. No memory is kept.
    pub is_reserved: bool,
    /// The policy found it unfit to be filled.
    pub is_bad: bool,
    /// When it had fewer pages than now, for the last time that is known, and since when it has as many, in ticks.
    pub grew: (u64, u64),
    /// The policy wants it to be a superpage, and the rule by which it does.
    pub is_wanted: bool,
    pub cause: Cause,
    /// The policy wanted it, and there was too much memory that was filled and is not used.
    pub is_held: bool,
    /// Attempts that failed, and when the next may be made.
    pub failures: u8,
    pub retry_at: u64,
    /// When it was last looked at, in ticks.
    pub looked_at: u64,
}

impl Extent {
    /// What is known of it. Pages were written if they are in memory and private; how many, and not which, is what
    /// policies look at.
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
        // Nobody clears accessed bits while memory is not reclaimed: each page has had its since it was faulted in.
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

    /// The same as it was before its first page.
    pub(crate) fn facts_when_empty(&self, policy: &Policy, is_shared: bool) -> Facts {
        let empty = Self { populated: 0, swapped: 0, is_reserved: false, ..*self };
        let mut facts = empty.facts(policy, false);
        // What a fork left here has frames of its own.
        let sizes = policy.physical().reserved;
        facts.region.unreserved = if is_shared { Orders::NONE } else { sizes };
        facts
    }
}

/// A population of so many pages.
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
