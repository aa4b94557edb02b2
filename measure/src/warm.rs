//! Warming memory: in a virtual machine, a frame that nobody used lately may cost its first toucher
//! several times what a warm one costs, because the host took it back and must give it again.
//! Then the order of runs decides the result: after a run on base pages the next run on superpages
//! was seen to take 10.4 s instead of 4.8 s, all of it in the kernel.
//!
//! So before each run as much memory as any arm used is touched and given back, outside the timed
//! region: once as base pages, which come out of small free blocks, and once as superpages, which
//! come out of whole ones (warming one kind left the other cold: 4.2 s instead of 0.4 s for 4 GiB).
//! Never more superpages than lie free: asking for more would compact memory, and the arms would
//! then run on a machine better than the one they are compared on.

use machine::{FreeContiguity, MemInfo, Root};
use sys::mem::{Advice, Backing, Mapping};
use units::PageSize;

/// Mapped and touched at a time, so that a signal is noticed soon.
const PIECE: u64 = 64 << 20;
/// The most to touch, of what is available: warming must never push anything out.
const MOST_OF_AVAILABLE: f64 = 0.8;
/// The most superpages to touch, of those that lie free.
const MOST_OF_FREE_SUPERPAGES: f64 = 0.9;
/// A run's frames are not exactly those of the last one.
const MARGIN: f64 = 1.1;

/// Touches memory enough for `peak_bytes`, as base pages and as superpages of `superpage`, and
/// gives it back. Says how much as base pages; less where the machine has less, or when `stop`
/// says so.
pub fn warm(root: &Root, peak_bytes: u64, superpage: PageSize, stop: impl Fn() -> bool) -> u64 {
    let available = MemInfo::read(root).ok().and_then(|memory| memory.available);
    let most = available.map_or(0.0, |bytes| bytes.bytes() as f64 * MOST_OF_AVAILABLE);
    let wanted = (peak_bytes as f64 * MARGIN).min(most) as u64;
    let touched = touch(root, wanted, Advice::NoHugePage, &stop);
    let free = FreeContiguity::read(root, superpage).ok().and_then(|free| free.in_superpages);
    let whole = free.map_or(0.0, |bytes| bytes.bytes() as f64 * MOST_OF_FREE_SUPERPAGES) as u64;
    touch(root, superpage.floor(wanted.min(whole)), Advice::HugePage, &stop);
    touched
}

fn touch(root: &Root, wanted: u64, advice: Advice, stop: &impl Fn() -> bool) -> u64 {
    let mut held = Vec::new();
    let mut touched = 0;
    while touched < wanted && !stop() {
        let Ok(mut piece) =
            Mapping::anonymous(PIECE.min(wanted - touched) as usize, Backing::Pages)
        else {
            break;
        };
        // A kernel without THP refuses the advice; then all memory is base pages anyway.
        let _ = piece.advise(advice);
        if piece.advise(Advice::PopulateWrite).is_err() {
            let page = root.page_size().bytes() as usize;
            piece.bytes_mut().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        }
        touched += piece.len() as u64;
        held.push(piece);
    }
    touched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touches_what_was_asked_and_holds_nothing() {
        let superpage = PageSize::new(2 << 20).unwrap();
        let touched = warm(&Root::real(), 100 << 20, superpage, || false);
        assert!((110 << 20..112 << 20).contains(&touched), "{touched}");
        assert_eq!(warm(&Root::real(), 100 << 20, superpage, || true), 0);
        assert_eq!(warm(&Root::at("/no/such/root"), 100 << 20, superpage, || false), 0);
    }
}
