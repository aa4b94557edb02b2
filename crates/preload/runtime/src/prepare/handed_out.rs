//! Mappings that are still as mmap returned them: whole, and changed by no libc call. Only such a mapping is kept when
//! it is unmapped.
//!
//! # Safety
//! Atomics only. A thread claims an entry by changing its `start` to [`BUSY`].

use std::sync::atomic::{AtomicUsize, Ordering};

use advisor::Action;
use advisor::Event;

use crate::executor;
use crate::sizes::superpage;
use crate::write_protect::{self, WriteProtect};
use crate::{pagemap, raw};

/// A mapping. (c): a thread claims the entry through `start`. The entry lies on one page.
#[repr(align(64))]
struct Entry {
    /// Address; 0: no mapping.
    start: AtomicUsize,
    length: AtomicUsize,
    /// Bytes from its beginning that were resident when it was handed out.
    prepared: AtomicUsize,
    /// The thread that got it (address of its errno).
    owner: AtomicUsize,
}

/// Not an address: a thread is changing the entry.
const BUSY: usize = 1;
/// Number of entries; a new mapping replaces an old one.
const COUNT: usize = 64;

static ENTRIES: [Entry; COUNT] = [const {
    Entry {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        prepared: AtomicUsize::new(0),
        owner: AtomicUsize::new(0),
    }
}; COUNT];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// (a) Bounds of all mappings ever entered: most calls lie outside.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

impl Entry {
    fn claim(&self, start: usize) -> bool {
        let claimed =
            self.start.compare_exchange(start, BUSY, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    }

    fn end(&self) -> usize {
        self.start.load(Ordering::Acquire).saturating_add(self.length.load(Ordering::Relaxed))
    }
}

/// Adds a mapping that is handed out, with `prepared` resident bytes.
pub fn enter(start: usize, length: usize, prepared: usize) {
    let entry = ENTRIES.iter().find(|entry| entry.claim(0)).or_else(|| {
        let entry = &ENTRIES[NEXT.fetch_add(1, Ordering::Relaxed) % COUNT];
        let old = entry.start.load(Ordering::Relaxed);
        (old != BUSY && entry.claim(old)).then_some(entry)
    });
    let Some(entry) = entry else { return };
    entry.length.store(length, Ordering::Relaxed);
    entry.prepared.store(prepared, Ordering::Relaxed);
    entry.owner.store(raw::errno_address(), Ordering::Relaxed);
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(start + length, Ordering::Relaxed);
    entry.start.store(start, Ordering::Release);
}

/// Removes the mapping; `false` if there is none that is exactly `[start, end)`.
pub fn leave(start: usize, end: usize) -> bool {
    may_hold(start, end)
        && ENTRIES.iter().any(|entry| {
            let is_this = entry.start.load(Ordering::Acquire) == start
                && entry.end() == end
                && entry.claim(start);
            if is_this {
                entry.start.store(0, Ordering::Release);
            }
            is_this
        })
}

/// Call when the program changes anything in `[start, end)`: removes the mappings there.
pub fn changed(start: usize, end: usize) {
    if !may_hold(start, end) {
        return;
    }
    for entry in &ENTRIES {
        let from = entry.start.load(Ordering::Acquire);
        if from > BUSY && from < end && start < entry.end() && entry.claim(from) {
            entry.start.store(0, Ordering::Release);
        }
    }
}

/// Discards superpages of `[start, end)` that were resident when they were handed out and that no thread has written
/// to. Serves a program that asks for base pages, or registers a userfaultfd, right after mapping memory. Acts only in
/// the thread that mapped the memory, and blocks other threads that write meanwhile.
pub fn discard_untouched(start: usize, end: usize) {
    if !may_hold(start, end) {
        return;
    }
    let me = raw::errno_address();
    for entry in &ENTRIES {
        let from = entry.start.load(Ordering::Acquire);
        let prepared = from.saturating_add(entry.prepared.load(Ordering::Relaxed));
        let (low, high) = (from.max(start), prepared.min(end));
        if from <= BUSY || low >= high || entry.owner.load(Ordering::Relaxed) != me {
            continue;
        }
        let size = superpage();
        let facts = executor::facts(low, high - low, size);
        if executor::decide(Event::Shown, &facts) != Action::Release {
            continue;
        }
        let (low, high) = (low.next_multiple_of(size), high - high % size);
        let _held_up = match write_protect::has_one_thread() || low >= high {
            true => None,
            false => match WriteProtect::new() {
                Some(guard) if guard.protect(low, high - low) => Some(guard),
                _ => continue,
            },
        };
        for at in (low..high).step_by(size) {
            // SAFETY: readable when handed out, not changed since, and no thread writes; it reads as zero before and
            // after.
            unsafe {
                if pagemap::is_resident(at) != Some(false) && raw::is_zero(at, size) {
                    let _ = raw::madvise(at, size, libc::MADV_DONTNEED);
                }
            }
        }
    }
}

fn may_hold(start: usize, end: usize) -> bool {
    start < HIGHEST.load(Ordering::Relaxed) && end > LOWEST.load(Ordering::Relaxed)
}

/// In a forked child: removes all mappings, which the child shares with its parent.
pub fn after_fork() {
    ENTRIES.iter().for_each(|entry| entry.start.store(0, Ordering::Relaxed));
}
