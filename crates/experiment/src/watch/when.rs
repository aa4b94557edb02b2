//! When a watch within budget looks: pure, from what its ticks found.
//!
//! One look at the end of a plateau says more than many before it. So a look is made where the program has
//! stopped growing; while it grows, only what [`GROWING`] allows is spent, for programs that never stop.
//! See docs/decisions/watch.md#4.

use std::time::Duration;

/// Share of one CPU's time that ticks and looks may take together, where the program has one CPU or many.
/// See docs/decisions/watch.md#3.
pub const BUDGET: f64 = 0.008;
/// What a program of a few tenths of a second may cost beyond that, so that it is seen at all.
pub(super) const CREDIT: Duration = Duration::from_millis(3);
/// Between ticks, at least; in the first half second an eighth of the time passed.
const PAUSE: Duration = Duration::from_millis(25);
const MIN_PAUSE: Duration = Duration::from_millis(1);
const EARLY: Duration = Duration::from_millis(500);
/// Where the resident size is within this share of what it was a tick ago, it has stopped growing.
const STEADY: f64 = 0.01;
/// The share of the budget that looks at a growing program may take.
const GROWING: f64 = 0.6;
/// While the program grows, memory grown by this factor and by these bytes since the last look is worth another.
const GROWN: f64 = 1.2;
const GROWN_BYTES: u64 = 8 << 20;
/// A look is old after this part of the time that passed, but not sooner than this.
const OLD: u32 = 16;
const OLD_AT_LEAST: Duration = Duration::from_millis(15);
/// The share of it that others leave to the first look at a level well above the last.
const NOT_MUCH_HIGHER: f64 = 0.75;
const AGAIN: f64 = 0.9;

/// What ticks and looks found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Since the program was started.
    pub elapsed: Duration,
    /// Bytes it holds.
    pub held: u64,
    /// How long it has held about as much.
    pub level_for: Duration,
    /// When the last look was, since the program was started, and what it held then.
    pub looked: Option<(Duration, u64)>,
    /// What looks took and [`charged`] for ticks, and the part of it that was looks at a growing program.
    pub spent: Duration,
    pub spent_growing: Duration,
}

/// Why one would look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reason {
    /// It has stopped growing, well above the last look or a little.
    MuchHigher,
    Higher,
    /// It is still growing.
    Growing,
    /// What lies where may change while the size stays.
    Old,
}

impl Facts {
    /// Why to look, if a look is affordable.
    pub(super) fn reason(&self) -> Option<Reason> {
        if self.held == 0 {
            return None;
        }
        let (at, before) = self.looked.unwrap_or_default();
        let is_above = |ratio: f64| self.held as f64 > before as f64 * ratio + f64::from(1 << 20);
        let is_level = !self.level_for.is_zero();
        match self.looked {
            None if is_level => Some(Reason::MuchHigher),
            Some(_) if is_level && is_above(1.25) => Some(Reason::MuchHigher),
            Some(_) if is_level && is_above(1.02) => Some(Reason::Higher),
            _ if !is_level && self.held as f64 > before as f64 * GROWN + GROWN_BYTES as f64 => {
                Some(Reason::Growing)
            }
            Some(_) if self.elapsed > at + (self.elapsed / OLD).max(OLD_AT_LEAST) => {
                Some(Reason::Old)
            }
            _ => None,
        }
    }

    /// Whether a look of that price keeps within the budget, which is `rate` of the time. What has been at a
    /// level for some time is taken to stay as long again.
    pub(super) fn affords(&self, reason: Reason, price: Duration, rate: f64) -> bool {
        let budget = |time: Duration| time.mul_f64(rate) + CREDIT;
        let (time, share) = match reason {
            Reason::MuchHigher => (self.elapsed + self.level_for, 1.0),
            Reason::Higher => (self.elapsed + self.level_for, NOT_MUCH_HIGHER),
            Reason::Growing => (self.elapsed, 1.0),
            Reason::Old => (self.elapsed, AGAIN),
        };
        let is_left = reason != Reason::Growing
            || self.spent_growing + price <= budget(self.elapsed).mul_f64(GROWING);
        is_left && self.spent + price <= budget(time).mul_f64(share)
    }
}

/// Whether what is held is about what was held a tick before.
pub(super) fn is_steady(before: u64, held: u64) -> bool {
    held.abs_diff(before) as f64 <= STEADY * held as f64
}

/// What of the time that ticks took is taken from looks: half the budget at most. Where much is born on the machine ticks take
/// more, and looks must not end for that.
pub(super) fn charged(ticks: Duration, elapsed: Duration) -> Duration {
    ticks.min(elapsed.mul_f64(BUDGET / 2.0))
}

/// How long to rest after a tick. Ticks take half the budget at most; a look is paid for before it is made. A program of
/// a few tenths of a second may be at its peak for milliseconds and end: so long, ticks may take a twenty-fifth.
pub(super) fn pause(ticked: Duration, elapsed: Duration) -> Duration {
    match elapsed < EARLY {
        true => (elapsed / 8).clamp(MIN_PAUSE, PAUSE).max(ticked * 25),
        false => PAUSE.max(ticked.div_f64(BUDGET / 2.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn millis(millis: f64) -> Duration {
        Duration::from_secs_f64(millis / 1e3)
    }

    /// 0.3 s after the start, 300 MiB.
    fn facts() -> Facts {
        Facts {
            elapsed: millis(300.0),
            held: 300 * MIB,
            level_for: Duration::ZERO,
            looked: None,
            spent: Duration::ZERO,
            spent_growing: Duration::ZERO,
        }
    }

    #[test]
    fn ticks_leave_half_the_budget_to_looks_however_long_they_take() {
        for micros in [1, 50, 1_000, 100_000] {
            let took = Duration::from_micros(micros);
            let share = |elapsed| took.as_secs_f64() / pause(took, elapsed).as_secs_f64();
            assert!(share(EARLY) <= BUDGET / 2.0 + 1e-9, "{micros} us");
            assert!(share(millis(100.0)) <= 0.04 + 1e-9, "{micros} us");
        }
    }

    #[test]
    fn dear_ticks_leave_half_the_budget_to_looks() {
        let (second, cheap) = (Duration::from_secs(1), millis(1.0));
        assert_eq!(charged(cheap, second), cheap);
        assert_eq!(charged(second, second), second.mul_f64(BUDGET / 2.0));
    }

    #[test]
    fn a_program_of_a_fifth_of_a_second_has_a_tick_in_its_last_eighth() {
        let (mut at, mut ticks) = (Duration::ZERO, 0);
        while at < millis(200.0) {
            assert!(pause(Duration::from_micros(30), at) <= (at / 8).max(MIN_PAUSE));
            at += pause(Duration::from_micros(30), at);
            ticks += 1;
        }
        assert!(ticks < 50, "{ticks}");
    }

    #[test]
    fn a_plateau_is_looked_at_and_growth_seldom() {
        let growing = facts();
        assert_eq!(growing.reason(), Some(Reason::Growing));
        let level = Facts { level_for: millis(20.0), ..facts() };
        assert_eq!(level.reason(), Some(Reason::MuchHigher));
        let price = millis(5.0);
        assert!(!growing.affords(Reason::Growing, price, BUDGET));
        assert!(level.affords(Reason::MuchHigher, price, BUDGET));
        let cases = [(30, Reason::MuchHigher), (200, Reason::MuchHigher), (280, Reason::Higher)];
        for (before, reason) in cases {
            let looked = Some((millis(200.0), before * MIB));
            assert_eq!(Facts { looked, ..level }.reason(), Some(reason), "{before}");
        }
        // Old after a sixteenth of the time, however much is held now.
        let again =
            |at, before| Facts { looked: Some((millis(at), before * MIB)), ..level }.reason();
        assert_eq!((again(290.0, 300), again(280.0, 300)), (None, Some(Reason::Old)));
        assert_eq!(again(280.0, 900), Some(Reason::Old));
    }

    #[test]
    fn looks_at_growth_leave_enough_for_the_plateau() {
        // A look is half a millisecond; the program grows for 0.3 s, and then stays.
        let price = millis(0.5);
        let (mut facts, mut looks) = (facts(), 0);
        for tick in 1..15 {
            facts.elapsed = millis(20.0 * f64::from(tick));
            while facts.affords(Reason::Growing, price, BUDGET) {
                facts.spent += price;
                facts.spent_growing += price;
                looks += 1;
            }
        }
        // Three fifths of 5.2 ms.
        assert_eq!(looks, 6);
        let level = Facts { elapsed: millis(300.0), level_for: millis(20.0), ..facts };
        assert!(level.affords(Reason::MuchHigher, 5 * price, BUDGET));
    }

    #[test]
    fn a_level_may_be_paid_for_by_its_own_length() {
        let at = |level| Facts { level_for: millis(level), spent: millis(3.0), ..facts() };
        let price = millis(2.8);
        assert!(!at(20.0).affords(Reason::MuchHigher, price, BUDGET));
        assert!(at(70.0).affords(Reason::MuchHigher, price, BUDGET));
    }

    #[test]
    fn nothing_held_is_not_looked_at() {
        assert_eq!(Facts { held: 0, level_for: millis(20.0), ..facts() }.reason(), None);
    }

    #[test]
    fn what_is_steady_differs_by_a_hundredth() {
        assert!(is_steady(0, 0) && is_steady(99, 100) && is_steady(101, 100));
        assert!(!is_steady(98, 100) && !is_steady(0, 1));
    }
}
