//! Properties of prefault from outside: ahead of whoever goes in order, and bounded waste.

use proptest::prelude::*;
use superpage_ahead::Sequence;

#[test]
fn the_next_batch_is_ordered_when_the_last_one_is_entered() {
    let mut it = Sequence::from(0, 16);
    assert_eq!(it.seen(0, 100), 1..2);
    assert_eq!(it.seen(0, 100), 2..6, "unit 1 is the rest of the first batch");
    assert_eq!(it.seen(1, 100), 6..6, "not in the last batch yet");
    assert_eq!(it.seen(2, 100), 6..14);
    assert_eq!(it.seen(6, 100), 14..22, "the limit: half of 16");
    assert_eq!(it.seen(22, 100), 23..30, "the program was faster");
    assert_eq!(it.followed(40, 100), 41..48, "much faster");
    assert_eq!(it.seen(50, 100), 51..51, "a surprise");
    assert_eq!(it.seen(3, 100), 51..51, "something behind");
}

proptest! {
    /// Whatever is seen: nothing is ordered twice or beyond the end, and of what lies ahead of the
    /// furthest place seen no more than the bound is prepared.
    #[test]
    fn what_is_ordered_lies_ahead_and_within_the_bound(
        steps in prop::collection::vec((0u64..6, any::<bool>()), 1..400),
        units in 0u64..200,
    ) {
        let end = 1000;
        let mut it = Sequence::from(0, units);
        let (mut at, mut furthest) = (0u64, 0u64);
        for (step, jumps) in steps {
            at += if jumps { step * 20 } else { step };
            if at >= end {
                break;
            }
            let before = it.predicted();
            let ordered = it.seen(at, end);
            prop_assert!(ordered.end <= end);
            prop_assert!(ordered.is_empty() || ordered.start >= before.min(at + 1));
            furthest = furthest.max(ordered.end);
            prop_assert!(furthest.saturating_sub(at + 1) <= units.max(1));
        }
    }

    /// Who goes in order and is seen at every unit touches nothing unprepared after the first units.
    #[test]
    fn an_observed_sequence_is_never_late(length in 10u64..3000, units in 4u64..100) {
        let mut it = Sequence::from(0, units);
        let mut prepared = 0..0;
        for unit in 0..length {
            prop_assert!(unit < 2 || prepared.end > unit, "{unit}");
            let ordered = it.seen(unit, length);
            if !ordered.is_empty() {
                prop_assert!(prepared.end <= ordered.start);
                prepared = ordered;
            }
        }
        prop_assert_eq!(prepared.end, length);
    }
}
