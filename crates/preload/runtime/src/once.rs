//! A boolean about this process, computed once. Threads that ask at the same time may each compute it.

use std::sync::atomic::{AtomicU8, Ordering};

/// A cached boolean.
pub struct OnceBool(AtomicU8);

impl OnceBool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    /// Makes an empty cache.
    pub const fn new() -> Self {
        Self(AtomicU8::new(Self::UNKNOWN))
    }

    /// The cached boolean, computed by `find_out` if there is none yet.
    pub fn get_or_init(&self, find_out: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::UNKNOWN => {
                let is_so = find_out();
                self.0.store(if is_so { Self::YES } else { Self::NO }, Ordering::Relaxed);
                is_so
            }
            answer => answer == Self::YES,
        }
    }
}
