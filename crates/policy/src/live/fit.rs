//! How much of a piece fits into free memory.

use super::{Facts, Kind};

/// Free memory that is left to everybody else, at most: in superpages of 2 MiB, 32.
const MARGIN: u64 = 64 << 20;
/// Once there was too little, so much more than needed must be free before anything is advised
/// again: pieces that are advised in turn with others that are not would each be a mapping of their
/// own.
const REOPEN: u64 = 64 << 20;
/// The smallest part of a piece that is worth a border in it.
const MIN_PART: u64 = 32 << 20;

/// What is to fit.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Superpages the piece may come to hold, in bytes.
    pub need: u64,
    /// There was too little last time.
    pub was_short: bool,
    /// Whether superpages were had in good time when that was tried just now; `None`: not tried.
    pub tried: Option<bool>,
    /// The rest.
    pub facts: &'a Facts,
}

/// What fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// All of it.
    All,
    /// All of it, though it is more than there can ever be: it will not all be touched.
    Oversized,
    /// So many bytes at its beginning.
    Part(u64),
    /// Nothing.
    Nothing,
    /// It must be tried whether superpages are had in good time.
    Doubtful,
}

impl Wanted<'_> {
    /// What may be advised besides what is promised to others.
    pub fn usable(&self) -> u64 {
        self.usable_of(self.facts.contiguous.unwrap_or(0))
    }

    /// Superpages that would have to be free besides, so that all fits.
    pub fn missing(&self) -> u64 {
        let facts = self.facts;
        let more = if self.was_short { REOPEN } else { 0 };
        let wanted = [self.need, more, self.margin(), facts.outstanding];
        let wanted = wanted.into_iter().fold(0, u64::saturating_add);
        let missing = wanted.saturating_sub(facts.contiguous.unwrap_or(0));
        missing.div_ceil(facts.superpage.max(1))
    }

    /// What may be advised for smaller superpages, besides so many bytes of the largest.
    pub fn usable_smaller(&self, besides: u64) -> u64 {
        match self.facts.smaller {
            0 => 0,
            _ => self.usable_of(self.facts.contiguous_smaller).saturating_sub(besides),
        }
    }

    fn margin(&self) -> u64 {
        MARGIN.min(self.facts.total / 64)
    }

    fn usable_of(&self, contiguous: u64) -> u64 {
        let facts = self.facts;
        let margin = self.margin();
        // The watermarks of the zones, by which allocations begin to wait: with the defaults they
        // are below 3/1000 of the memory and min_free_kbytes (64 MiB).
        let watermarks = margin + facts.total / 256;
        let free = facts.free.saturating_sub(watermarks);
        contiguous.saturating_sub(margin).min(free).saturating_sub(facts.outstanding)
    }

    /// By free blocks of a superpage, and what could be free.
    pub fn fit(&self) -> Fit {
        let facts = self.facts;
        let usable = self.usable();
        let more = if self.was_short { REOPEN } else { 0 };
        if self.need.saturating_add(more) <= usable {
            return Fit::All;
        }
        let has_part = usable >= MIN_PART + more;
        let reclaimable = facts.reclaimable.unwrap_or(0);
        let most_is_contiguous = facts.contiguous.unwrap_or(0) >= facts.free / 8 * 7;
        let exceeds_all = self.need > facts.free.saturating_add(reclaimable);
        if has_part && most_is_contiguous && (exceeds_all || facts.is_reserved()) {
            return Fit::Oversized;
        }
        // Free memory is short because page cache fills it: base pages wait for that as well.
        if reclaimable >= facts.free && reclaimable >= self.need {
            match self.tried {
                None => return Fit::Doubtful,
                Some(true) => return Fit::All,
                Some(false) => {}
            }
        }
        let may_part = facts.kind != Kind::Whole && !facts.is_reserved();
        if may_part && has_part && usable < self.need {
            return Fit::Part(usable);
        }
        Fit::Nothing
    }
}
