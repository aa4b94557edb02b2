//! `Translate`: the interface between a TLB and the engine's hot loop.
//!
//! The engine is generic over this trait and is monomorphised for the types that
//! [`crate::dispatch`] makes, so no call goes through a pointer.

use machine::{Level, Size, Tally};

/// A TLB hierarchy with its page-walk caches.
///
/// Page numbers are dense (`region << 9 | slot`), below 2^31, and unique over all processes, so entries need no
/// address-space identifier. A context switch without PCIDs is a [`flush`](Self::flush).
pub trait Translate: Send + 'static {
    /// Looks up the page of size `size` that contains base page `page`. On a miss, walks the page table and enters the
    /// translation into both TLB levels.
    fn look_up(&mut self, page: u32, size: Size) -> Level;

    /// Drops the translation of the page of size `size` that contains `page`, and empties the
    /// page-walk caches, as INVLPG does for any address (Intel SDM volume 3A, section 4.10.4.1).
    fn invalidate(&mut self, page: u32, size: Size);

    /// Drops every translation of any size for the 512 pages of `region`, and empties the page-walk
    /// caches.
    fn invalidate_region(&mut self, region: u32);

    /// Drops all translations and empties the page-walk caches.
    fn flush(&mut self);

    /// Returns the counts since the TLB was made.
    fn tally(&self) -> Tally;

    /// Runs `body`, compiled for the vectors that [`look_up`](Self::look_up) uses. Pass the loop
    /// over a whole block. Every function that the loop calls must be `#[inline(always)]`;
    /// otherwise it is compiled for narrower vectors.
    fn vectorized<R>(body: impl FnOnce() -> R) -> R;
}
