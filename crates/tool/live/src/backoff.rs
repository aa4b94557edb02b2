//! Backs off when free superpages run out. A request that finds none costs a compaction of milliseconds in the calling
//! thread, and usually fails. See docs/decisions/live.md#8.

use host::{FreeContiguity, Root};
use units::PageSize;

use crate::extent::BYTES;

/// Ticks of back-off before the kernel is asked to compact again; doubled after each failure.
const MIN_REST: u64 = 100_000;
/// Maximum ticks of that back-off.
const MAX_REST: u64 = 10_000_000;

/// Ticks between counts of free superpages during the back-off.
const COUNT_AFTER: u64 = 5_000;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    /// Number of superpages that were free when a request was refused; the kernel keeps these for others, or below its
    /// watermarks.
    kept: u64,
    failures: u8,
    /// When the kernel may be asked even if no further superpage is free, in ticks.
    retry_at: u64,
    /// When free superpages may be counted again, in ticks.
    count_at: u64,
}

impl Backoff {
    /// Returns whether to ask the kernel. `free` counts the free superpages.
    pub(crate) fn may_ask(&mut self, now: u64, free: impl FnOnce() -> Option<u64>) -> bool {
        if now < self.count_at {
            return false;
        }
        let is_due = now >= self.retry_at;
        match free() {
            Some(free) if free > self.kept => true,
            Some(_) if is_due => {
                self.retry_at = now + MIN_REST;
                true
            }
            None if is_due => true,
            _ => {
                self.count_at = now + COUNT_AFTER;
                false
            }
        }
    }

    /// Returns whether the back-off holds now, without counting free superpages.
    pub(crate) fn waits(&self, now: u64) -> bool {
        now < self.count_at && now < self.retry_at
    }

    pub(crate) fn refused(&mut self, now: u64, free: Option<u64>) {
        self.kept = free.unwrap_or(0);
        self.retry_at = now + (MIN_REST << self.failures.min(16)).min(MAX_REST);
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn had(&mut self) {
        (self.kept, self.failures) = (0, 0);
    }
}

/// Returns the number of free superpages that a program can get.
pub(crate) fn free(root: &Root) -> Option<u64> {
    FreeContiguity::for_programs(root, PageSize::new(BYTES).ok()?).ok()?.superpages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_asked_until_something_changes_or_a_compaction_is_due() {
        let mut backoff = Backoff::default();
        assert!(backoff.may_ask(0, || Some(1)));
        assert!(backoff.may_ask(0, || Some(0)), "a compaction is due at first");
        assert!(!backoff.may_ask(1, || Some(0)), "and not again, though it helped");
        backoff.had();
        assert!(!backoff.may_ask(COUNT_AFTER, || Some(1)), "it was counted a moment ago");
        assert!(backoff.may_ask(1 + COUNT_AFTER, || Some(1)));
        let mut now = MIN_REST;
        assert!(backoff.may_ask(now, || Some(0)));
        backoff.refused(now, Some(3));
        assert!(!backoff.may_ask(now + 1, || Some(3)), "these are kept");
        assert!(backoff.may_ask(now + 1 + COUNT_AFTER, || Some(4)));
        for rest in [MIN_REST, 2 * MIN_REST, 4 * MIN_REST, 8 * MIN_REST] {
            assert!(!backoff.may_ask(now + rest - 1, || None), "{rest}");
            now += rest + COUNT_AFTER;
            assert!(backoff.may_ask(now, || None), "{rest}");
            backoff.refused(now, None);
        }
        for _ in 0..4 {
            now += MAX_REST;
            assert!(backoff.may_ask(now, || Some(0)), "never later");
            backoff.refused(now, Some(0));
        }
        backoff.had();
        assert!(backoff.may_ask(now, || Some(1)));
    }
}
