//! How much of a piece of memory is advised: pure.
//!
//! Why and how: docs/decisions/contiguity.md.
//!
//! Nothing can be taken back while a program touches one large piece, so what is advised must be
//! there beforehand: free blocks of a superpage, less what was advised before and is still to be
//! touched. A first touch that finds none of them left goes into direct compaction, some
//! milliseconds each.

/// Free memory that is left to everybody else, at most: in superpages of 2 MiB, 32.
const MARGIN: usize = 64 << 20;
/// Once there was too little, so much more than needed must be free before anything is advised
/// again: pieces that are advised in turn with others that are not would each be a mapping of their
/// own.
pub const REOPEN: usize = 64 << 20;
/// The smallest part of a piece that is worth a border in it.
const MIN_PART: usize = 32 << 20;

/// What is known when a piece is mapped; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Superpages the piece may come to hold.
    pub need: usize,
    /// Free in blocks of a superpage or more.
    pub contiguous: usize,
    /// Free in blocks of any size.
    pub free: usize,
    /// Could be free: clean page cache and the like.
    pub reclaimable: usize,
    /// Memory of the machine.
    pub total: usize,
    /// Advised before, and not touched yet.
    pub outstanding: usize,
    /// Whether there was too little last time.
    pub was_short: bool,
    /// Whether the piece may be advised in part.
    pub may_part: bool,
    /// Whether it is address space that is reserved and will hardly be touched as a whole.
    pub is_reserved: bool,
    /// Whether superpages were had in good time when that was tried just now; `None`: not tried.
    pub tried: Option<bool>,
}

/// What is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All of it.
    All,
    /// All of it, though it is more than there can ever be: it will not all be touched.
    Oversized,
    /// So many bytes at its beginning.
    Part(usize),
    /// Nothing.
    Nothing,
    /// It must be tried whether superpages are had in good time.
    Doubtful,
}

impl Facts {
    /// What may be advised besides what is promised to others.
    pub fn usable(&self) -> usize {
        let margin = MARGIN.min(self.total / 64);
        // The watermarks of the zones, by which allocations begin to wait: with the defaults they
        // are below 3/1000 of the memory and min_free_kbytes (64 MiB).
        let watermarks = margin + self.total / 256;
        let contiguous = self.contiguous.saturating_sub(margin);
        contiguous.min(self.free.saturating_sub(watermarks)).saturating_sub(self.outstanding)
    }

    /// Decides.
    pub fn decide(&self) -> Decision {
        let usable = self.usable();
        let more = if self.was_short { REOPEN } else { 0 };
        if self.need.saturating_add(more) <= usable {
            return Decision::All;
        }
        let has_part = usable >= MIN_PART + more;
        let most_is_contiguous = self.contiguous >= self.free / 8 * 7;
        let exceeds_all = self.need > self.free.saturating_add(self.reclaimable);
        if has_part && most_is_contiguous && (exceeds_all || self.is_reserved) {
            return Decision::Oversized;
        }
        // Free memory is short because page cache fills it: base pages wait for that as well.
        if self.reclaimable >= self.free && self.reclaimable >= self.need {
            match self.tried {
                None => return Decision::Doubtful,
                Some(true) => return Decision::All,
                Some(false) => {}
            }
        }
        if self.may_part && has_part && usable < self.need {
            return Decision::Part(usable);
        }
        Decision::Nothing
    }
}
