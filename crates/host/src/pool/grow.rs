//! Growing a pool: in steps, again while it makes progress, and never beyond what the machine can
//! spare. Knows no files: the pool is the caller's, so that every course of events can be tested.
//! See docs/decisions/settings.md#2.

use std::ops::ControlFlow;

use super::error::PoolError;

/// A pool that can be grown. The kernel's, and in tests one that behaves badly on purpose.
pub(super) trait Growable {
    /// Asks for `pages` persistent pages; says how many there are then.
    fn set(&mut self, pages: u64) -> Result<u64, PoolError>;
    /// How many more pages may be taken before the machine runs out; `None` where that is unknown.
    fn spare(&mut self) -> Option<u64>;
    /// Moves free memory together. False where that cannot be done.
    fn compact(&mut self) -> bool;
    /// Tells how far it is, and hears whether to stop.
    fn report(&mut self, pages: u64, compacting: bool) -> ControlFlow<()>;
}

/// What growing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    pub got: u64,
    /// Attempts: 1 if everything came at once.
    pub rounds: u32,
    pub compactions: u32,
    pub end: End,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Reached,
    /// The machine has nothing more to spare.
    NoMemory,
    /// The kernel gave nothing more, twice in a row.
    Stalled,
    /// Somebody asked to stop.
    Stopped,
}

/// No pool that still grows needs more attempts; each may cost the kernel seconds of reclaim.
const MAX_ROUNDS: u32 = 16;
/// Attempts without a single page before it is given up. Two, because the first may only have
/// triggered the reclaim and compaction that lets the second succeed.
const PATIENCE: u32 = 2;

/// Grows from `before` to `target` in steps of at most `step` pages.
pub(super) fn grow_in_steps(
    means: &mut impl Growable,
    before: u64,
    target: u64,
    step: u64,
    compact_first: bool,
    may_compact: bool,
) -> Result<Growth, PoolError> {
    let mut done = Growth { got: before, rounds: 1, compactions: 0, end: End::Reached };
    let mut stalled = 0;
    let mut compact = compact_first && may_compact;
    while done.got < target {
        if compact {
            if means.report(done.got, true).is_break() {
                return Ok(Growth { end: End::Stopped, ..done });
            }
            done.compactions += u32::from(means.compact());
        }
        compact = false;
        let spare = means.spare().unwrap_or(u64::MAX);
        let ask = target.min(done.got.saturating_add(step.min(spare).max(1)));
        if spare == 0 {
            return Ok(Growth { end: End::NoMemory, ..done });
        }
        let got = means.set(ask)?;
        // Fewer than before: somebody else shrinks it. That is no progress either.
        stalled = if got > done.got { 0 } else { stalled + 1 };
        done.got = got;
        if means.report(got, false).is_break() {
            return Ok(Growth { end: End::Stopped, ..done });
        }
        if got < ask {
            if stalled >= PATIENCE || done.rounds >= MAX_ROUNDS {
                return Ok(Growth { end: End::Stalled, ..done });
            }
            done.rounds += 1;
            compact = may_compact;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pool that gives up to `gives[n]` pages at the n-th write, and so many more for each
    /// compaction.
    struct Fake {
        has: u64,
        gives: Vec<u64>,
        writes: usize,
        left: u64,
        compactions: u32,
        stop_after: usize,
    }

    impl Growable for Fake {
        fn set(&mut self, pages: u64) -> Result<u64, PoolError> {
            let give = self.gives.get(self.writes).copied().unwrap_or(0);
            self.writes += 1;
            let more = pages.saturating_sub(self.has).min(give).min(self.left);
            self.has += more;
            self.left -= more;
            Ok(self.has)
        }
        fn spare(&mut self) -> Option<u64> {
            Some(self.left)
        }
        fn compact(&mut self) -> bool {
            self.compactions += 1;
            true
        }
        fn report(&mut self, _: u64, _: bool) -> ControlFlow<()> {
            if self.writes >= self.stop_after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }

    fn fake(gives: &[u64]) -> Fake {
        let gives = gives.to_vec();
        Fake { has: 0, gives, writes: 0, left: 1 << 40, compactions: 0, stop_after: usize::MAX }
    }

    #[test]
    fn all_at_once_is_one_round_without_compaction() {
        let mut pool = fake(&[512]);
        let done = grow_in_steps(&mut pool, 0, 512, 512, false, true).unwrap();
        assert_eq!(done, Growth { got: 512, rounds: 1, compactions: 0, end: End::Reached });
    }

    #[test]
    fn goes_on_while_it_makes_progress_and_compacts_between() {
        let mut pool = fake(&[100, 0, 50, 0, 0, 999]);
        let done = grow_in_steps(&mut pool, 0, 512, 512, false, true).unwrap();
        assert_eq!((done.got, done.end, done.rounds), (150, End::Stalled, 5));
        assert_eq!(pool.compactions, 4);
        let mut pool = fake(&[100, 0, 50, 0, 0]);
        grow_in_steps(&mut pool, 0, 512, 512, true, false).unwrap();
        assert_eq!(pool.compactions, 0);
    }

    #[test]
    fn stops_when_told_and_when_memory_is_out() {
        let mut pool = Fake { stop_after: 3, ..fake(&[10; 100]) };
        let done = grow_in_steps(&mut pool, 0, 512, 10, false, false).unwrap();
        assert_eq!((done.got, done.end), (30, End::Stopped));
        let mut pool = Fake { left: 25, ..fake(&[10; 100]) };
        let done = grow_in_steps(&mut pool, 0, 512, 10, false, false).unwrap();
        assert_eq!((done.got, done.end), (25, End::NoMemory));
    }

    proptest! {
        #[test]
        fn always_ends_and_never_claims_more_than_there_is(
            gives in proptest::collection::vec(0u64..100, 0..60),
            left in 0u64..3000, target in 0u64..3000, step in 0u64..700,
        ) {
            let mut pool = Fake { left, ..fake(&gives) };
            let done = grow_in_steps(&mut pool, 0, target, step, true, true).unwrap();
            prop_assert_eq!(done.got, pool.has);
            prop_assert!(done.got <= target.min(left));
            prop_assert_eq!(done.end == End::Reached, done.got == target);
            prop_assert!(done.rounds <= MAX_ROUNDS);
        }
    }
}
