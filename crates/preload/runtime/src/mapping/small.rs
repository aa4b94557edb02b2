//! The sub-superpage allocator: small anonymous mappings, placed side by side so that superpages can hold them.
//!
//! Some allocators grow by mappings smaller than a superpage (CPython's object arenas are 1 MiB):
//! however many there are, no fault ever finds a mapped, aligned superpage around it. Here such
//! requests are cut, ascending, out of an extent that is mapped and advised as a whole. What the
//! program gets is ordinary private anonymous memory of its own, zero and never handed out twice;
//! it may unmap, move or protect its block, and only that block changes.
//!
//! Life of an extent: mapped -> cut into blocks until one no longer fits -> its tail unmapped.
//! Extents double from 2 MiB to 8 MiB. The first 4 MiB a process asks for stay as they were, so a
//! small program pays nothing.
//!
//! The price:
//! - Memory: a touch brings in the whole superpage around it. That is less than one superpage of
//!   what nobody has asked for yet, and besides it whatever blocks the program asked for and does
//!   not touch. A block that is unmapped is not used again, and the memory of a superpage whose
//!   other blocks live on comes back only when the kernel splits it.
//! - Address space, and under `vm.overcommit_memory=2` commit: at most one extent ahead. Where the
//!   kernel refuses an extent, the request is mapped as it came.
//! - Under `mlockall(MCL_FUTURE)` an extent would be resident as a whole. The first that is found
//!   locked is given back, and there are no more. `MCL_CURRENT` locks the rest of the extent at hand;
//!   without it, blocks still cut from that extent are not locked.
//!
//! # Safety
//! An extent is mapped, cut and unmapped only under its lock, and a block is handed out once.
//! See docs/decisions/heap.md#7, docs/decisions/pool.md#4.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::counters::Kind;
use crate::lock::{Lock, Rank};
use crate::{contiguity, raw, sizes};

/// Shorter requests, and so much of what a process asks for first, are left to the kernel.
const MIN_LENGTH: usize = 64 << 10;
const INITIAL_BYTES_LEFT_ALONE: usize = 4 << 20;
const MAX_EXTENT: usize = 8 << 20;

/// So much of mappings of one superpage is left to the kernel first: a program that maps no more than these pays for the part
/// of the last one that it does not touch, which may be all but a page.
const INITIAL_SINGLE_BYTES_LEFT_ALONE: usize = 8 << 20;

/// (m) What is left of the current extent: `next..end`, all of it ours and untouched.
struct Extent {
    next: usize,
    end: usize,
    /// Where its advice ends.
    advised_to: usize,
    /// Size of the last one.
    grow_by: usize,
    /// Whether there are to be no more.
    refused: bool,
}

static EXTENT: Lock<Extent> =
    Lock::new(Rank::Small, Extent { next: 0, end: 0, advised_to: 0, grow_by: 0, refused: false });
/// (a) Bytes that were asked for so far.
static REQUESTED: AtomicUsize = AtomicUsize::new(0);
/// (a) The same in mappings of one superpage.
static REQUESTED_SINGLY: AtomicUsize = AtomicUsize::new(0);

/// (a) Where the block that was handed out last begins and ends.
static LAST: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// (a) Whether the program gives back parts of what it just got.
static ARE_TRIMMED: AtomicBool = AtomicBool::new(false);

/// The program unmaps `[start, end)`. Who gives back a part of what it just got wants blocks aligned: out of an extent each
/// would be a mapping of its own, with holes beside it (Ruby's heap pages of 64 KiB). It gets what the kernel gives,
/// which packs them.
pub fn unmapped(start: usize, end: usize) {
    let [from, to] = LAST.each_ref().map(|at| at.load(Ordering::Relaxed));
    if start < to && from < end {
        if from < start || end < to {
            ARE_TRIMMED.store(true, Ordering::Relaxed);
        }
        LAST[1].store(0, Ordering::Relaxed);
    }
}

/// In a forked child. The extent that another thread was changing is nobody's there: it stays as it
/// is, untouched, and the next block begins another.
pub fn after_fork() {
    EXTENT.after_fork(|extent, was_held| {
        if was_held {
            (extent.next, extent.end) = (0, 0);
        }
    });
}

/// Whether a mapping is among the first of about one superpage.
pub fn is_left_alone(length: usize) -> bool {
    length < 2 * sizes::superpage()
        && REQUESTED_SINGLY.fetch_add(length, Ordering::Relaxed) < INITIAL_SINGLE_BYTES_LEFT_ALONE
}

/// A fresh, zeroed, readable and writable private mapping of `length` bytes, and whether it is advised;
/// `None` where the plain path serves better.
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
    // An allocator may come here with a lock of its own: it does not wait for ours.
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

    /// Gives back the tail and maps the next extent.
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

/// Whether memory mapped here is locked: exactly then the kernel refuses `MADV_DONTNEED`, which
/// changes nothing about memory that nobody has touched.
fn is_locked(start: usize, length: usize) -> bool {
    // SAFETY: fresh memory.
    unsafe { raw::madvise(start, length, libc::MADV_DONTNEED) }.is_err()
}

/// Gives back memory that was mapped here and handed to nobody.
fn unmap(start: usize, length: usize) {
    // SAFETY: as the callers say, nobody has an address in there.
    let _ = unsafe { raw::munmap(start, length) };
}
