//! Warms memory. In a virtual machine, the first touch of a frame that nobody used lately may cost several times as
//! much as that of a warm frame, because the host took the frame back and must provide it again. Then the order of runs
//! decides the result: after a run on base pages, the next run on superpages took 10.4 s instead of 4.8 s, with all the
//! extra time in the kernel.
//!
//! So before each run, outside the timed region, as much memory as any arm used is touched and released. Before an
//! arm on base pages it is touched as base pages (from small free blocks), before an arm on superpages as superpages
//! (from whole blocks). (Warming one kind left the other cold: 4.2 s instead of 0.4 s for 4 GiB.) Never more
//! superpages are touched than are free, because compaction would leave the runs more superpages than the machine
//! really had. See docs/decisions/compare.md#1.

use host::{FreeContiguity, MemInfo, Root};
use sys::mem::{Advice, Backing, Mapping};
use units::{ByteSize, PageSize};

/// Bytes mapped and touched at a time; small enough to notice a signal soon.
const CHUNK: u64 = 64 << 20;
/// Maximum share of free memory to touch, because warming must never evict memory.
const MAX_OF_FREE: f64 = 0.8;
/// Maximum share of the free superpages to touch.
const MAX_OF_FREE_SUPERPAGES: f64 = 0.9;
/// Factor by which more memory is touched than a run used, because a run's frames are not exactly
/// those of the previous run.
const MARGIN: f64 = 1.1;

/// The kind of free blocks that a run takes its memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Small blocks, for base pages.
    Small,
    /// Whole superpages.
    Whole,
    /// Either kind: it is unknown which.
    Both,
}

/// Touches enough memory for `peak_bytes` from `blocks` (superpages of `superpage`), and releases it. Returns the
/// number of bytes held at once; fewer if the machine has less, or when `stop` returns true.
pub fn warm(
    root: &Root,
    peak_bytes: u64,
    superpage: PageSize,
    blocks: Blocks,
    stop: impl Fn() -> bool,
) -> u64 {
    // Use free, not available memory: available memory may be page cache, such as the program's own input.
    let free = MemInfo::read(root).ok().and_then(|memory| memory.free);
    let allowed = host::cgroup::memory_headroom(root);
    let most = free.into_iter().chain(allowed).min().unwrap_or(ByteSize(0));
    let most = most.bytes() as f64 * MAX_OF_FREE;
    let wanted = (peak_bytes as f64 * MARGIN).min(most) as u64;
    let mut touched = 0;
    if blocks != Blocks::Whole {
        touched = touch(root, wanted, Advice::NoHugePage, &stop);
    }
    if blocks != Blocks::Small {
        let free = FreeContiguity::read(root, superpage).ok().and_then(|free| free.in_superpages);
        let most = free.map_or(0.0, |bytes| bytes.bytes() as f64 * MAX_OF_FREE_SUPERPAGES);
        let wanted = superpage.floor(wanted.min(most as u64));
        touched = touched.max(touch(root, wanted, Advice::HugePage, &stop));
    }
    touched
}

fn touch(root: &Root, wanted: u64, advice: Advice, stop: &impl Fn() -> bool) -> u64 {
    let mut held = Vec::new();
    let mut touched = 0;
    while touched < wanted && !stop() {
        let Ok(mut piece) =
            Mapping::anonymous(CHUNK.min(wanted - touched) as usize, Backing::Pages)
        else {
            break;
        };
        // A kernel without THP refuses the advice, and then all memory is base pages anyway.
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
        // Page cache is not free, so a machine that has read many files has little.
        let free = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.free);
        let allowed = host::cgroup::memory_headroom(&Root::real());
        let free = free.into_iter().chain(allowed).min().unwrap_or(ByteSize(0));
        testkit::require!(free >= ByteSize::mib(512), "{free} are free");
        let superpage = PageSize::new(2 << 20).unwrap();
        let warm =
            |root: Root, blocks, stop| super::warm(&root, 100 << 20, superpage, blocks, || stop);
        for blocks in [Blocks::Small, Blocks::Both] {
            let touched = warm(Root::real(), blocks, false);
            assert!((110 << 20..112 << 20).contains(&touched), "{touched}");
        }
        // Fewer superpages may be free, but only whole ones are touched, and no more than requested.
        let whole = warm(Root::real(), Blocks::Whole, false);
        assert!(whole % superpage.bytes() == 0 && whole < 112 << 20, "{whole}");
        assert_eq!(warm(Root::real(), Blocks::Both, true), 0);
        assert_eq!(warm(Root::at("/no/such/root"), Blocks::Both, false), 0);
    }
}
