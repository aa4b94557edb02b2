//! Converts counts to shares of time: pure arithmetic that all methods share.
//!
//! The result is `None` for zero cycles and for numbers that are not finite.

use crate::{Gain, Interval};

/// Share of the walk time that superpages save: lower bound, best estimate, upper bound. An out-of-order CPU overlaps
/// walks with other work, so between half and all of a walk delays the program. The best estimate is three quarters. In
/// published runs on base pages and on THP, the time saved was the following share of the walk cycles that disappeared:
/// 0.73 (GUPS), 0.78 (XSBench) and 0.64 (canneal) in vMitosis' logs of a Xeon Gold 6252, and 0.71 for LWN's STREAM on a
/// PPC970 (inferred from the printed numbers). See docs/decisions/walk-cost.md#1.
pub const WALK_EXPOSURE: (f64, f64, f64) = (0.5, 0.75, 1.0);

/// Share of cycles for an event that counts cycles with a walk in progress.
pub fn active(walk_cycles: f64, cycles: f64) -> Option<Interval> {
    Interval::exactly(ratio(walk_cycles, cycles)?.min(1.0))
}

/// Share of cycles for an event that sums the walks in progress over cycles. Up to `walkers` walks are concurrent, so
/// the sum can exceed the time.
///
/// The time with at least one walk is at least sum / walkers (all walkers always busy together) and at most the sum
/// (never two walks at once). The best estimate assumes that the walkers are busy independently of each other.
pub fn outstanding(walk_sum: f64, cycles: f64, walkers: u32) -> Option<Interval> {
    let walkers = f64::from(walkers.max(1));
    let sum = ratio(walk_sum, cycles)?;
    let each = (sum / walkers).min(1.0);
    let high = sum.min(1.0);
    // The clamp only corrects rounding.
    let mid = (1.0 - (1.0 - each).powf(walkers)).clamp(each, high);
    Interval::new(each, mid, high)
}

/// Misses times the cost of one, as a share of all cycles (LWN "Huge pages" part 5, section 2).
///
/// # Errors
/// The product exceeds all cycles.
pub fn misses_times_cost(
    misses: f64,
    cost: f64,
    cycles: f64,
) -> Result<Option<Interval>, MoreThanAll> {
    let sound = misses >= 0.0 && cost >= 0.0;
    match ratio(misses * cost, cycles).filter(|_| sound) {
        // Tolerate rounding errors.
        Some(share) if share > 1.0 + 1e-9 => Err(MoreThanAll { share }),
        share => Ok(share.and_then(|share| Interval::exactly(share.min(1.0)))),
    }
}

/// Misses times cost exceed all cycles, so there is no meaningful share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "the misses would take {:.0} % of all cycles at this cost: walks overlap, or the cost is another \
     processor's",
    share * 100.0
)]
pub struct MoreThanAll {
    /// Misses times their cost, as a multiple of all cycles.
    pub share: f64,
}

/// The possible gain from superpages if translation takes `share` of the time.
pub fn gain(share: Interval) -> Gain {
    let (low, mid, high) = WALK_EXPOSURE;
    let felt = Interval::new(low, mid, high).expect("constants in order");
    let left = 1.0 - share.high();
    Gain { saved: share.scaled(felt), speedup_at_most: (left > 0.0).then(|| 1.0 / left) }
}

/// Converts nanoseconds to cycles of a clock of `mhz`, for calibrators that report nanoseconds.
pub fn ns_to_cycles(ns: f64, mhz: f64) -> Option<f64> {
    let cycles = ns * mhz / 1000.0;
    (ns >= 0.0 && mhz > 0.0 && cycles.is_finite()).then_some(cycles)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    let ratio = part / whole;
    (part >= 0.0 && whole > 0.0 && ratio.is_finite()).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_numbers_give_a_share_or_none(
            a in any::<f64>(), b in any::<f64>(), c in any::<f64>(), walkers in any::<u32>(),
        ) {
            let priced = misses_times_cost(a, b, c).ok().flatten();
            let shares = [active(a, b), outstanding(a, b, walkers), priced];
            for share in shares.into_iter().flatten() {
                prop_assert!(Interval::new(share.low(), share.mid(), share.high()).is_some());
                let gain = gain(share);
                prop_assert!(gain.saved.high() <= share.high());
                prop_assert!(gain.speedup_at_most.is_none_or(|most| most >= 1.0));
            }
        }

        #[test]
        fn one_walker_makes_outstanding_walks_active_ones(sum in 0.0..2e9f64, cycles in 1.0..1e9f64) {
            let (one, active) = (outstanding(sum, cycles, 1).unwrap(), active(sum, cycles).unwrap());
            prop_assert!((one.mid() - active.mid()).abs() < 1e-9);
            prop_assert!((one.low() - active.low()).abs() < 1e-9);
        }

        #[test]
        fn more_walks_are_more_time(
            less in 0.0..1e9f64, more in 0.0..1e9f64, cycles in 1.0..1e9f64, walkers in 1u32..5,
        ) {
            let (a, b) = (less, less + more);
            let (a, b) =
                (outstanding(a, cycles, walkers).unwrap(), outstanding(b, cycles, walkers).unwrap());
            prop_assert!(a.low() <= b.low() && a.high() <= b.high());
            prop_assert!(a.mid() <= b.mid() + 1e-12);
        }
    }

    #[test]
    fn nothing_counted_is_unknown_and_not_zero() {
        assert_eq!(active(0.0, 0.0), None);
        assert_eq!(active(1.0, 0.0), None);
        assert_eq!(active(f64::NAN, 1.0), None);
        assert_eq!(misses_times_cost(-1.0, -1.0, 1.0), Ok(None));
        assert_eq!(misses_times_cost(1.0, 1.0, 0.0), Ok(None));
        assert_eq!(active(0.0, 1.0), Interval::exactly(0.0));
    }

    #[test]
    fn a_price_above_all_the_time_is_no_share() {
        assert_eq!(misses_times_cost(1.0, 100.0, 100.0), Ok(Interval::exactly(1.0)));
        let above = misses_times_cost(9_492_000.0, 5630.0, 29_953_650_000.0).unwrap_err();
        assert!(above.to_string().contains("178 % of all cycles"), "{above}");
    }

    #[test]
    fn all_time_translating_bounds_nothing() {
        assert_eq!(gain(Interval::exactly(1.0).unwrap()).speedup_at_most, None);
        let half = gain(Interval::exactly(0.5).unwrap());
        assert_eq!(half.speedup_at_most, Some(2.0));
    }

    /// LWN "Huge pages" part 5: STREAM on a PPC970MP. 9492 samples of one per 1000 misses, 599073 samples of one per
    /// 50000 cycles, and 563 cycles per miss. The article then runs it with 16 MiB pages.
    #[test]
    fn stream_on_a_ppc970_as_published() {
        let (misses, cycles) = (9492.0 * 1000.0, 599_073.0 * 50_000.0);
        let share = misses_times_cost(misses, 563.0, cycles).unwrap().unwrap();
        assert_eq!(format!("{:.2}", share.mid() * 100.0), "17.84");
        let measured = 1.0 - 11.95 / 13.69;
        assert_eq!(format!("{:.1}", measured * 100.0), "12.7");
        let saved = gain(share).saved;
        assert!(saved.low() <= measured && measured <= saved.high());
        assert!((saved.mid() - measured).abs() < 0.01, "{saved:?} against {measured}");
    }

    /// The same article, section 2.3: sampled cycles of table walks divided by sampled misses give the cost of a miss,
    /// printed without its fraction. (Section 2.4 prints 17.57 %, but its inputs give 17.47 %. The cycles of that run
    /// are not published, so it is not tested.)
    #[test]
    fn the_cost_of_a_miss_on_a_ppc970_as_published() {
        let cost = ratio(543_702.0 * 10_000.0, 9644.0 * 1000.0).unwrap();
        assert_eq!(cost.floor(), 563.0);
    }

    /// Calibrator's output in both units (LWN part 5, section 2.2). The article gives no clock. The T2600's lines imply
    /// 2.16 GHz (inferred), and the Athlon's two lines agree only for 2.009 to 2.037 GHz (inferred).
    #[test]
    fn costs_in_nanoseconds_are_the_published_cycles() {
        for (ns, mhz, cycles) in [(8.80, 2160.0, 19.0), (9.57, 2010.0, 19.0), (18.17, 2010.0, 37.0)]
        {
            assert_eq!(ns_to_cycles(ns, mhz).unwrap().round(), cycles, "{ns} ns at {mhz} MHz");
        }
        assert_eq!(ns_to_cycles(1.0, 0.0), None);
    }

    /// vMitosis' logs, native, one socket: seconds on base pages and on THP, and walks in progress per cycle of both
    /// runs. The run time saved lies between half and all of the walk time that disappeared.
    #[test]
    fn what_superpages_gave_back_on_a_cascade_lake_lies_within_the_bounds() {
        for (name, base, thp, walks_base, walks_thp) in [
            ("GUPS", 134.0, 66.0, 1.55, 0.61),
            ("XSBench", 138.0, 114.0, 0.34, 0.11),
            ("canneal", 174.0, 140.0, 0.74, 0.41),
        ] {
            let busy = |walks: f64, seconds: f64| {
                outstanding(walks * 1e9, 1e9, 2).unwrap().mid() * seconds
            };
            let felt = (base - thp) / (busy(walks_base, base) - busy(walks_thp, thp));
            assert!((WALK_EXPOSURE.0..=WALK_EXPOSURE.2).contains(&felt), "{name}: {felt}");
            assert!((felt - WALK_EXPOSURE.1).abs() < 0.12, "{name}: {felt}");
        }
    }
}
