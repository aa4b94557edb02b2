//! Properties of the prefault rule: batch sizes, jumps, ends of mappings, and the bound on waste.

use proptest::prelude::*;
use superpage_policy::ahead::Prefault;

#[test]
fn batches_double_up_to_the_limit_and_a_surprise_ends_that() {
    let mut rule = Prefault::new(3);
    let mut unit = 100;
    for expected in [1, 2, 4, 8, 8, 8] {
        assert_eq!(rule.at(unit, 10_000), expected);
        unit += expected;
        assert_eq!(rule.predicted(), unit);
    }
    assert_eq!(rule.at(unit + 1, 10_000), 1);
    assert_eq!(rule.at(unit + 2, 10_000), 2);
}

#[test]
fn a_limit_of_zero_prepares_what_is_touched() {
    for mut rule in [Prefault::new(0), Prefault::up_to(0), Prefault::up_to(1)] {
        assert!((0..100).all(|unit| rule.at(unit, 100) == 1));
    }
}

#[test]
fn a_limit_in_units_is_never_exceeded() {
    for (units, order) in [(2, 1), (3, 1), (4, 2), (31, 4), (32, 5)] {
        assert_eq!(Prefault::up_to(units), Prefault::new(order));
    }
}

proptest! {
    /// A program that touches in order, from any start, gets all its pages and none beyond, in few batches.
    #[test]
    fn a_sequence_is_covered_exactly(start in 0u64..1 << 40, length in 1u64..5000, limit in 0u32..20) {
        let mut rule = Prefault::new(limit);
        let (end, mut at, mut batches) = (start + length, start, 0);
        while at < end {
            let count = rule.at(at, end);
            prop_assert!((1..=1 << limit).contains(&count));
            at += count;
            batches += 1;
        }
        prop_assert_eq!(at, end);
        let whole = (1u64 << limit).min(length);
        prop_assert!(batches <= length / whole + u64::from(whole.ilog2()) + 2);
    }

    /// The pages prepared beyond the last touch are fewer than a batch, and fewer than were touched in order before.
    /// The program touches `touched` units and then stops.
    #[test]
    fn waste_is_bounded_by_the_window_and_by_what_was_touched(touched in 1u64..5000, limit in 0u32..20) {
        let mut rule = Prefault::new(limit);
        let mut prepared = 0;
        while prepared < touched {
            prepared += rule.at(prepared, u64::MAX);
        }
        let waste = prepared - touched;
        prop_assert!(waste < 1 << limit);
        prop_assert!(waste <= touched);
    }

    /// Touches far apart from each other never prepare any other page.
    #[test]
    fn random_touches_prepare_nothing(units in prop::collection::vec(0u64..1 << 30, 1..200)) {
        let mut rule = Prefault::new(9);
        for unit in units {
            // Double each number, so that no two units are adjacent.
            prop_assert_eq!(rule.at(unit * 2, u64::MAX), 1);
        }
    }

    /// No touched address causes an overflow.
    #[test]
    fn any_numbers_are_taken(touches in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50), limit in any::<u32>()) {
        let mut rule = Prefault::new(limit);
        for (unit, end) in touches {
            let count = rule.at(unit, end);
            prop_assert!(count >= 1 && (count == 1 || count <= end - unit));
            let again = rule.at(rule.predicted(), end);
            prop_assert!(again >= 1);
        }
    }
}
