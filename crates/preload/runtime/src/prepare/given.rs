//! Which mappings are as they were handed out: whole, and with nothing done to them through libc.
//! Only such a mapping is kept when it is unmapped.
//!
//! # Safety
//! Words only. A row is claimed by whoever changes its `start` to [`BUSY`].

use std::sync::atomic::{AtomicUsize, Ordering};

use policy::Action;
use policy::live::Event;

use crate::executor;
use crate::mapping::demote;
use crate::raw;
use crate::source::superpage;

/// A mapping, on one page.
#[repr(align(64))]
struct Row {
    /// Its address; 0: none.
    start: AtomicUsize,
    length: AtomicUsize,
    /// The bytes from its beginning that were resident when it was handed out.
    prepared: AtomicUsize,
    /// The thread that got it (its errno's address).
    owner: AtomicUsize,
}

/// No address: somebody is changing the row.
const BUSY: usize = 1;
/// The newest are remembered.
const COUNT: usize = 64;

static ROWS: [Row; COUNT] = [const {
    Row {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        prepared: AtomicUsize::new(0),
        owner: AtomicUsize::new(0),
    }
}; COUNT];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The span of all there ever were, for the many calls outside it.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

impl Row {
    fn claim(&self, start: usize) -> bool {
        let claimed =
            self.start.compare_exchange(start, BUSY, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    }

    fn end(&self) -> usize {
        self.start.load(Ordering::Acquire).saturating_add(self.length.load(Ordering::Relaxed))
    }
}

/// A mapping is handed out, `prepared` bytes of it resident.
pub fn enter(start: usize, length: usize, prepared: usize) {
    let row = ROWS.iter().find(|row| row.claim(0)).or_else(|| {
        let row = &ROWS[NEXT.fetch_add(1, Ordering::Relaxed) % COUNT];
        let old = row.start.load(Ordering::Relaxed);
        (old != BUSY && row.claim(old)).then_some(row)
    });
    let Some(row) = row else { return };
    row.length.store(length, Ordering::Relaxed);
    row.prepared.store(prepared, Ordering::Relaxed);
    row.owner.store(raw::errno_address(), Ordering::Relaxed);
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(start + length, Ordering::Relaxed);
    row.start.store(start, Ordering::Release);
}

/// Forgets the mapping; whether it is exactly `[start, end)`.
pub fn leave(start: usize, end: usize) -> bool {
    may_hold(start, end)
        && ROWS.iter().any(|row| {
            let is_this =
                row.start.load(Ordering::Acquire) == start && row.end() == end && row.claim(start);
            if is_this {
                row.start.store(0, Ordering::Release);
            }
            is_this
        })
}

/// The program does something to `[start, end)` that leaves it not as it was handed out.
pub fn changed(start: usize, end: usize) {
    if !may_hold(start, end) {
        return;
    }
    for row in &ROWS {
        let from = row.start.load(Ordering::Acquire);
        if from > BUSY && from < end && start < row.end() && row.claim(from) {
            row.start.store(0, Ordering::Release);
        }
    }
}

/// Gives back the superpages of `[start, end)` that were resident when they were handed out and that
/// nobody wrote to. For a program that says right after it has mapped memory that its pages are to be
/// small, or to come through a userfaultfd. Only by the thread that has just mapped it: another's
/// writes meanwhile would be lost.
pub fn discard_untouched(start: usize, end: usize) {
    if !may_hold(start, end) {
        return;
    }
    let me = raw::errno_address();
    for row in &ROWS {
        let from = row.start.load(Ordering::Acquire);
        let prepared = from.saturating_add(row.prepared.load(Ordering::Relaxed));
        let (low, high) = (from.max(start), prepared.min(end));
        if from <= BUSY || low >= high || row.owner.load(Ordering::Relaxed) != me {
            continue;
        }
        let size = superpage();
        let facts = executor::facts(low, high - low, size);
        if executor::on(Event::Shown, &facts) != Action::Release {
            continue;
        }
        for at in (low.next_multiple_of(size)..high - high % size).step_by(size) {
            // SAFETY: handed out readable and not changed since; it reads as zero before and after.
            unsafe {
                if demote::is_present(at) && raw::is_zero(at, size) {
                    let _ = raw::madvise(at, size, libc::MADV_DONTNEED);
                }
            }
        }
    }
}

fn may_hold(start: usize, end: usize) -> bool {
    start < HIGHEST.load(Ordering::Relaxed) && end > LOWEST.load(Ordering::Relaxed)
}

/// In a forked child: it shares all of them with its parent.
pub fn after_fork() {
    ROWS.iter().for_each(|row| row.start.store(0, Ordering::Relaxed));
}
