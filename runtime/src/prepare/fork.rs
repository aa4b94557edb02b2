//! What a forked child gets of the area: what was handed out, and nothing of the stock.
//!
//! The stock is marked `MADV_WIPEONFORK` before a fork: the child finds fresh, empty pages there, nothing
//! is shared, and the parent's stay whole superpages (`MADV_DONTFORK` would leave holes in the child's
//! address space, for others to map into). What is handed out loses the mark first. A mark stays until
//! then, so a process that forks again and again pays once. The child has no thread; it starts its own
//! with its first request.
//!
//! `_Fork` and a raw `clone` run no handlers: their child shares the stock until somebody writes, and
//! finds it zero as well.
//!
//! # Safety
//! Marks are flags of mappings of our own; states change under the lock.

use super::area::{self, Area, EMPTY};
use super::thread;
use super::watch::Watch;
use crate::raw;
use crate::source::superpage;

/// Before the process forks, and before [`lock`].
pub fn before_fork() {
    area::with(Area::mark);
}

/// For `fork`: nothing changes until [`unlock`].
pub fn lock() {
    area::take_lock();
}

/// For `fork`, in both processes.
pub fn unlock() {
    area::release_lock();
}

/// In the child.
pub fn after_fork() {
    thread::after_fork();
    area::with(Area::forget_stock);
}

impl Area {
    fn mark(&mut self) {
        let mut first = None;
        let end = self.count;
        let rows = self.busy_rows();
        for at in rows.chain([end]) {
            let is_marked = at < end && {
                let row = self.row(at);
                row.is_stock() && !row.is_wiped
            };
            match first {
                None if is_marked => first = Some((at, at + 1)),
                Some((from, to)) if is_marked && to == at => first = Some((from, at + 1)),
                Some((from, to)) => {
                    self.wipe_on_fork(from, to);
                    first = is_marked.then_some((at, at + 1));
                }
                None => {}
            }
        }
    }

    fn wipe_on_fork(&mut self, from: usize, to: usize) {
        let (start, length) = (self.address(from), (to - from) * superpage());
        // SAFETY: memory of ours; a flag of its mapping.
        if unsafe { raw::madvise(start, length, libc::MADV_WIPEONFORK) }.is_ok() {
            (from..to).for_each(|at| self.row(at).is_wiped = true);
        }
    }

    fn forget_stock(&mut self) {
        for at in self.busy_rows() {
            let row = self.row(at);
            if !row.is_stock() {
                continue;
            }
            if row.is_wiped {
                *row = EMPTY;
            } else {
                // SAFETY: nobody has it. Where it cannot be unmapped, the next request maps over it.
                let _ = unsafe { self.empty(at, at + 1) };
                *self.row(at) = EMPTY;
            }
        }
        (self.stock, self.dirty, self.is_filling) = (0, 0, false);
        self.watch = Watch::new();
    }
}
