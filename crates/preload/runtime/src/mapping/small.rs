//! The sub-superpage allocator: small anonymous mappings, packed so that superpages can hold them.
//!
//! Some allocators grow by mappings smaller than a superpage (CPython's object arenas are 1 MiB). However many such
//! mappings there are, no fault finds a mapped, aligned superpage around its address. Here such requests are cut, in
//! ascending order, from an extent that is mapped and advised as a whole. The program gets ordinary private anonymous
//! memory, zeroed and never handed out twice; if it unmaps, moves or protects its block, only that block changes.
//!
//! Life of an extent: mapped -> cut into blocks until one no longer fits -> its tail unmapped.
//! Extents double from 2 MiB to 8 MiB. The first 4 MiB that a process requests are mapped as without the library, so a
//! small program pays nothing.
//!
//! The cost:
//! - Memory: the first touch populates a whole superpage. Wasted is less than one superpage that is not requested yet,
//!   and blocks that the program requested but does not touch. An unmapped block is not reused, and the memory of a
//!   superpage whose other blocks are in use is freed only when the kernel splits the superpage.
//! - Address space, and under `vm.overcommit_memory=2` commit charge: at most one extent ahead. If the kernel refuses
//!   an extent, the request is mapped as without the library.
//! - Under `mlockall(MCL_FUTURE)` an extent would be resident as a whole. The first extent found locked is unmapped,
//!   and there are no more. `MCL_CURRENT` locks the rest of the current extent; without it, blocks still cut from that
//!   extent are not locked.
//!
//! # Safety
//! An extent is mapped, cut and unmapped only under its lock, and a block is handed out once.
//! See docs/decisions/heap.md#7, docs/decisions/pool.md#4.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::counters::Kind;
use crate::lock::{Lock, Rank};
use crate::{contiguity, raw, sizes};

/// Shorter requests are left to the kernel.
const MIN_LENGTH: usize = 64 << 10;
/// The first requests of a process, up to this many bytes in all, are left to the kernel.
const INITIAL_BYTES_LEFT_ALONE: usize = 4 << 20;
const MAX_EXTENT: usize = 8 << 20;

/// Mappings of about one superpage are left to the kernel until they hold this many bytes in all. A program that maps
/// no more would pay for the untouched part of the last mapping, which may be all but a page.
const INITIAL_SINGLE_BYTES_LEFT_ALONE: usize = 8 << 20;

/// The rest of the current extent: `next..end`, ours and untouched. (m): guarded by the lock `EXTENT`.
struct Extent {
    next: usize,
    end: usize,
    /// End of the advised part.
    advised_to: usize,
    /// Size of the last extent.
    grow_by: usize,
    /// Whether to map no more extents.
    refused: bool,
}

static EXTENT: Lock<Extent> =
    Lock::new(Rank::Small, Extent { next: 0, end: 0, advised_to: 0, grow_by: 0, refused: false });
/// (a) Bytes requested so far.
static REQUESTED: AtomicUsize = AtomicUsize::new(0);
/// (a) Bytes requested so far in mappings of about one superpage.
static REQUESTED_SINGLY: AtomicUsize = AtomicUsize::new(0);

/// (a) `[start, end)` of the last block handed out.
static LAST: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// (a) Whether the program unmaps parts of blocks it has just got.
static ARE_TRIMMED: AtomicBool = AtomicBool::new(false);

/// Call when the program unmaps `[start, end)`. A program that unmaps part of a block it has just got wants aligned
/// blocks (Ruby's heap pages of 64 KiB). Cut from an extent, each block would be a VMA of its own, with holes around
/// it. Such a program gets mappings from the kernel, which packs them.
pub fn unmapped(start: usize, end: usize) {
    let [from, to] = LAST.each_ref().map(|at| at.load(Ordering::Relaxed));
    if start < to && from < end {
        if from < start || end < to {
            ARE_TRIMMED.store(true, Ordering::Relaxed);
        }
        LAST[1].store(0, Ordering::Relaxed);
    }
}

/// In a forked child: leaks an extent that another thread was changing, untouched. The next block begins another
/// extent.
pub fn after_fork() {
    EXTENT.after_fork(|extent, was_held| {
        if was_held {
            (extent.next, extent.end) = (0, 0);
        }
    });
}

/// Whether a mapping of about one superpage is among the first ones, which are left to the kernel.
pub fn is_left_alone(length: usize) -> bool {
    length < 2 * sizes::superpage()
        && REQUESTED_SINGLY.fetch_add(length, Ordering::Relaxed) < INITIAL_SINGLE_BYTES_LEFT_ALONE
}

/// Returns a fresh, zeroed, readable and writable private mapping of `length` bytes, and whether it is advised; `None`
/// if the request should go to the kernel.
pub fn take(length: usize) -> Option<(*mut c_void, bool)> {
    if !(MIN_LENGTH..sizes::superpage()).contains(&length) {
        return None;
    }
    if REQUESTED.fetch_add(length, Ordering::Relaxed) < INITIAL_BYTES_LEFT_ALONE {
        return None;
    }
    if ARE_TRIMMED.load(Ordering::Relaxed) {
        return None;
    }
    // An allocator may call with its own lock held: it must not wait for ours.
    let block = EXTENT.try_with(|extent| extent.cut(length)).flatten();
    block.map(|(address, is_advised)| (address as *mut c_void, is_advised))
}

impl Extent {
    fn cut(&mut self, length: usize) -> Option<(usize, bool)> {
        let length = length.next_multiple_of(raw::base_page());
        if self.end - self.next < length {
            self.renew()?;
        }
        let block = self.next;
        self.next += length;
        LAST[0].store(block, Ordering::Relaxed);
        LAST[1].store(self.next, Ordering::Relaxed);
        Some((block, self.next <= self.advised_to))
    }

    /// Unmaps the rest of the extent and maps the next one.
    fn renew(&mut self) -> Option<()> {
        if self.refused {
            return None;
        }
        let superpage = sizes::superpage();
        let size = (self.grow_by * 2).clamp(superpage, MAX_EXTENT.max(superpage));
        let start = raw::map(size, 0).ok()?;
        if is_locked(start, size) {
            unmap(start, size);
            self.refused = true;
            return None;
        }
        if self.end > self.next {
            unmap(self.next, self.end - self.next);
        }
        let advised_to = start + contiguity::advise(Kind::Mmap, start, size);
        *self = Self { next: start, end: start + size, advised_to, grow_by: size, refused: false };
        Some(())
    }
}

/// Whether memory mapped now is locked: only then does the kernel refuse `MADV_DONTNEED`, which changes nothing on
/// untouched memory.
fn is_locked(start: usize, length: usize) -> bool {
    // SAFETY: fresh memory.
    unsafe { raw::madvise(start, length, libc::MADV_DONTNEED) }.is_err()
}

/// Unmaps memory that was mapped here and not handed out.
fn unmap(start: usize, length: usize) {
    // SAFETY: the callers have handed out no address in the range.
    let _ = unsafe { raw::munmap(start, length) };
}
