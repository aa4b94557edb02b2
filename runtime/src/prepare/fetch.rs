//! Fetching the beginning of what is handed out: whoever asked for memory touches it soon, mostly from its beginning,
//! and the caches' own prefetching knows nothing of a new place. Used by `area`.
//!
//! Measured on the reference machine (`bench touch --latency`'s loop, one touch in each base page, ns, its timer's 20
//! included; medians): the first touch in a superpage 450 without and 60 with it, the next two 160 and 40, all further ones 20 to
//! 30 either way. Where the zeroes lay (in memory, or written through the caches) made no difference.
//!
//! # Safety
//! Hints only.

use crate::raw;

/// Base pages of a superpage whose first lines are fetched: until the caches see the stride themselves.
const PAGES: usize = 3;

/// Begins to fetch the superpage's first lines, to be written. A hint: it waits for nothing and cannot fault.
pub fn beginning_of(address: usize) {
    for line in (0..PAGES).map(|page| address + page * raw::base_page()) {
        // SAFETY: hints change nothing that a program can see. The 3DNow form has been there since the first x86-64
        // (AMD's manual, volume 3); processors that do not know it do nothing.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}
