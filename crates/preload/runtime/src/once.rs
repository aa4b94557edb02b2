//! A yes or no about this process that is found out once. Who asks at the same time may find it out twice.

use std::sync::atomic::{AtomicU8, Ordering};

/// An answer, once there is one.
pub struct OnceBool(AtomicU8);

impl OnceBool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    /// Nobody has asked yet.
    pub const fn new() -> Self {
        Self(AtomicU8::new(Self::UNKNOWN))
    }

    /// The answer; `find_out` is called by who asks first.
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
