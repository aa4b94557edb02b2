//! `Translate`: the one interface between a TLB and the engine's hot loop.
//!
//! The engine is generic over it and is monomorphised for the geometries that [`crate::dispatch`]
//! knows; nothing here is called through a pointer.

use machine::{Level, Size, Tally};

/// A TLB hierarchy with its page-walk caches.
///
/// Pages have dense numbers, `region << 9 | slot`, below 2^31 and unique over all processes, so that
/// no address-space identifier is needed: a context switch without PCIDs is a [`flush`](Self::flush).
pub trait Translate: Send + 'static {
    /// Looks the page up that holds base page `page` and is mapped with `size`; on a miss, walks the
    /// page table and enters the translation at every level at once.
    fn look_up(&mut self, page: u32, size: Size) -> Level;

    /// Drops the translation of the page of this size that holds `page`, and the page-walk caches:
    /// INVLPG empties them whatever its address (Intel SDM volume 3A, section 4.10.4.1).
    fn invalidate(&mut self, page: u32, size: Size);

    /// Drops every translation, of whatever size, of any of the 512 pages of `region`, and the
    /// page-walk caches.
    fn invalidate_region(&mut self, region: u32);

    /// Drops everything.
    fn flush(&mut self);

    /// What was counted so far.
    fn tally(&self) -> Tally;

    /// Runs `body`, compiled for the widest vectors that this processor has and
    /// [`look_up`](Self::look_up) is written for. A block's loop goes through it once; whatever it
    /// calls on its way must be `#[inline(always)]`, or it is compiled for narrow vectors.
    fn vectorized<R>(body: impl FnOnce() -> R) -> R;
}
