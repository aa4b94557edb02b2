//! A lock that may be taken inside malloc and across fork.
//!
//! Held for microseconds (a few system calls), so whoever waits yields. `fork` takes every one of
//! them before a process forks, so that no child is born with a lock whose holder does not exist
//! in it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::raw;

/// A value behind a lock.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by whoever holds `taken`.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `work` with the value. Not reentrant: `work` must not come back here.
    ///
    /// Signals wait meanwhile: a handler that maps memory or forks would wait for this thread, which
    /// waits for the handler.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let before = raw::set_signals(u64::MAX);
        self.take();
        // SAFETY: `taken` is ours until `release`.
        let result = work(unsafe { &mut *self.value.get() });
        self.release();
        raw::set_signals(before);
        result
    }

    /// The value, for whoever took the lock with [`Self::take`].
    ///
    /// # Safety
    /// The caller holds it, and nothing else of this thread uses the value meanwhile.
    pub unsafe fn taken(&self) -> &T {
        // SAFETY: the contract.
        unsafe { &*self.value.get() }
    }

    /// Takes the lock until [`Self::release`].
    pub fn take(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            while self.taken.load(Ordering::Relaxed) {
                raw::pause();
            }
        }
    }

    /// Gives it back: only after [`Self::take`], also in the child of a fork in between.
    pub fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }
}
