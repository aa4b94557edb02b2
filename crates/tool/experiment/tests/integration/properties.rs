//! Properties that hold for all samples: scale, exchange of arms, order inside a block, gaps, degenerate input.

use proptest::prelude::*;
use superpage_experiment::schedule::{Schedule, Slot};
use superpage_experiment::stats::{
    Better, Comparison, Interval, Sample, SampleError, Settings, compare,
};

/// Returns samples of two arms in the order of the schedule, with these values: two per arm and block.
fn samples(values: &[f64], seed: u64) -> Vec<Sample> {
    let slots = Schedule::new(2, seed);
    slots.zip(values).map(|(at, value)| Sample { at, value: *value }).collect()
}

fn compared(samples: &[Sample]) -> Comparison {
    compare(samples, 0, 1, Better::Lower, &Settings::new(5)).expect("comparable")
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

fn same(a: Interval, b: Interval) -> bool {
    close(a.low, b.low) && close(a.high, b.high)
}

fn turned(i: Interval) -> Interval {
    Interval { low: 1.0 / i.high, high: 1.0 / i.low }
}

/// Values of 2 to 12 whole blocks of two arms.
fn whole_blocks() -> impl Strategy<Value = Vec<f64>> {
    (2usize..12).prop_flat_map(|blocks| prop::collection::vec(0.5..2.0f64, blocks * 4))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_unit_does_not_matter(values in whole_blocks(), unit in 1e-9..1e9f64) {
        let scaled: Vec<f64> = values.iter().map(|v| v * unit).collect();
        let (a, b) = (compared(&samples(&values, 1)), compared(&samples(&scaled, 1)));
        prop_assert!(close(a.speedup, b.speedup) && close(a.hodges_lehmann(), b.hodges_lehmann()));
        prop_assert!(same(a.interval.unwrap(), b.interval.unwrap()));
        prop_assert_eq!(a.randomization().p, b.randomization().p);
    }

    #[test]
    fn exchanging_the_arms_gives_the_reciprocal(values in whole_blocks()) {
        let samples = samples(&values, 2);
        let forth = compared(&samples);
        let back = compare(&samples, 1, 0, Better::Lower, &Settings::new(5)).unwrap();
        prop_assert!(close(forth.speedup, 1.0 / back.speedup));
        prop_assert!(same(forth.interval.unwrap(), turned(back.interval.unwrap())));
        prop_assert!(close(forth.hodges_lehmann(), 1.0 / back.hodges_lehmann()));
        prop_assert_eq!(forth.randomization().p, back.randomization().p);
    }

    /// A rate is the inverse of a time. Results based on single runs agree exactly. (A median of an even number of
    /// values does not, because it is a mean of two.)
    #[test]
    fn rates_and_times_say_the_same(values in whole_blocks()) {
        let times = samples(&values, 2);
        let rates: Vec<Sample> =
            times.iter().map(|one| Sample { value: 1.0 / one.value, ..*one }).collect();
        let (time, rate) = (
            compared(&times),
            compare(&rates, 0, 1, Better::Higher, &Settings::new(5)).unwrap(),
        );
        prop_assert!(same(time.parts.unwrap().student, rate.parts.unwrap().student));
        prop_assert!(close(time.hodges_lehmann(), rate.hodges_lehmann()));
        prop_assert_eq!(time.randomization().p, rate.randomization().p);
    }

    #[test]
    fn order_does_not_matter_in_the_last_bit(values in whole_blocks(), shift in 0usize..100) {
        let straight = samples(&values, 3);
        let mut shuffled = straight.clone();
        // Exchange each arm's two values in every block, then pass the samples in another order.
        for block in shuffled.chunks_mut(4) {
            let (first, last, inner) = (block[0].value, block[3].value, block[1].value);
            (block[0].value, block[3].value) = (last, first);
            (block[1].value, block[2].value) = (block[2].value, inner);
        }
        let middle = shift % shuffled.len();
        shuffled.rotate_left(middle);
        prop_assert_eq!(compared(&straight), compared(&shuffled));
    }

    #[test]
    fn the_interval_holds_the_estimate_and_reaches_no_farther_than_its_parts(values in whole_blocks()) {
        let c = compared(&samples(&values, 4));
        let (interval, parts) = (c.interval.unwrap(), c.parts.unwrap());
        prop_assert!(interval.contains(c.speedup));
        for part in [Some(parts.student), parts.ranked].into_iter().flatten() {
            prop_assert!(interval.low >= part.low.min(c.speedup) || !part.contains(c.speedup));
            prop_assert!(interval.high <= part.high.max(c.speedup) || !part.contains(c.speedup));
        }
    }

    #[test]
    fn no_finite_positive_sample_gives_nan_or_infinity(
        exponents in prop::collection::vec(-300.0..300.0f64, 8..24),
    ) {
        let values: Vec<f64> = exponents.iter().map(|e| 10f64.powf(*e)).collect();
        let c = compare(&samples(&values, 1), 0, 1, Better::Lower, &Settings::new(1)).unwrap();
        let json = serde_json::to_value(&c).unwrap();
        prop_assert!(json["speedup"].is_number() && json["interval"]["high"].is_number());
        prop_assert!(json["interval"]["low"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn identical_samples_give_a_point() {
    let same = compared(&samples(&[2.5f64.sqrt(); 12], 1));
    assert_eq!(same.interval, Some(Interval { low: 1.0, high: 1.0 }));
    assert_eq!((same.speedup, same.hodges_lehmann(), same.randomization().p), (1.0, 1.0, 1.0));
}

#[test]
fn samples_of_few_digits_are_known_to_the_last_one() {
    let interval = |of: f64| compared(&samples(&[of; 12], 1)).interval.expect("three blocks");
    let (two, four, nine) = (interval(2.5), interval(2.512), interval(2.512_345_678));
    assert!(two.low < 0.99 && two.high > 1.01, "{two:?}");
    assert!(two.high > four.high && four.high > nine.high, "{four:?} {nine:?}");
    assert!(nine.high - nine.low < 1e-7, "{nine:?}");
}

#[test]
fn a_single_block_has_an_estimate_but_no_interval() {
    let samples = samples(&[1.0, 2.0, 2.0, 1.0], 1);
    let one = compared(&samples);
    assert_eq!((one.blocks, one.interval, one.parts), (1, None, None));
    // The arm that runs first takes half of the other's time.
    assert_eq!(one.speedup, if samples[0].at.arm == 0 { 0.5 } else { 2.0 });
}

#[test]
fn a_block_with_a_missing_run_is_left_out_and_counted() {
    let all = samples(&(0..16).map(|i| 1.0 + f64::from(i) / 100.0).collect::<Vec<f64>>(), 1);
    let gap: Vec<Sample> =
        all.iter().filter(|s| s.at.block != 1 || s.at.slot != 2).copied().collect();
    let without: Vec<Sample> = all.iter().filter(|s| s.at.block != 1).copied().collect();
    let (gap, without) = (compared(&gap), compared(&without));
    assert_eq!((gap.blocks, gap.dropped_blocks), (3, 1));
    assert_eq!(without.dropped_blocks, 0);
    assert_eq!(gap.interval, without.interval);
}

#[test]
fn another_arms_gap_does_not_matter() {
    let value = |s: Slot| 1.0 + f64::from(s.slot + s.block) / 50.0;
    let all: Vec<Sample> =
        Schedule::new(3, 1).take(24).map(|at| Sample { at, value: value(at) }).collect();
    let gap: Vec<Sample> =
        all.iter().filter(|s| s.at.arm != 2 || s.at.block > 1).copied().collect();
    assert_eq!(compared(&all), compared(&gap));
    let third = compare(&gap, 0, 2, Better::Lower, &Settings::new(5)).expect("comparable");
    assert_eq!((third.blocks, third.dropped_blocks), (2, 2));
}

#[test]
fn values_without_a_ratio_are_refused_by_name() {
    let with = |value: f64| {
        let mut bad = samples(&[1.0; 12], 1);
        bad[6].value = value;
        compare(&bad, 0, 1, Better::Lower, &Settings::new(1)).expect_err("refused")
    };
    assert!(matches!(with(f64::NAN), SampleError::NotFinite { block: 1, .. }));
    assert!(matches!(with(f64::INFINITY), SampleError::NotFinite { block: 1, .. }));
    assert!(matches!(with(0.0), SampleError::NotPositive { block: 1, .. }));
    assert!(with(-1.0).to_string().contains("block 1: -1 is not above zero"));
    let mut doubled = samples(&[1.0; 12], 1);
    doubled.push(doubled[0]);
    let refused = compare(&doubled, 0, 1, Better::Lower, &Settings::new(1));
    assert!(matches!(refused, Err(SampleError::TooMany { block: 0, .. })));
    let nothing = compare(&[], 0, 1, Better::Lower, &Settings::new(1));
    assert_eq!(nothing, Err(SampleError::NoCompleteBlock { arm: 1, reference: 0 }));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let values: Vec<f64> = (0..80).map(|i| 1.0 + f64::from(i * 37 % 17) / 100.0).collect();
    let text = |seed| {
        let settings = Settings::new(seed);
        let c = compare(&samples(&values, 1), 0, 1, Better::Lower, &settings).expect("comparable");
        serde_json::to_string(&c).expect("serializable")
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    assert!(text(1).contains(r#""settings":{"confidence":0.99,"level":0.99,"seed":1}"#));
}

/// More runs do not help, because all were rounded in the same way.
#[test]
fn figures_of_few_digits_may_be_whatever_is_rounded_to_them() {
    for blocks in [2, 5, 25, 50] {
        let interval = |better, values: [f64; 2]| {
            let slots = Schedule::new(2, 1).take(blocks * 4);
            let samples: Vec<Sample> =
                slots.map(|at| Sample { at, value: values[at.arm as usize] }).collect();
            let found = compare(&samples, 0, 1, better, &Settings::new(5)).unwrap();
            found.interval.unwrap()
        };
        for (better, values, within) in [
            (Better::Lower, [2.0, 1.0], [1.6 / 1.4, 2.4 / 0.6]),
            (Better::Higher, [1.0, 2.0], [1.6 / 1.4, 2.4 / 0.6]),
            (Better::Higher, [10.0, 11.0], [10.51 / 10.49, 11.4 / 9.6]),
            (Better::Lower, [0.5, 0.5], [0.46 / 0.54, 0.54 / 0.46]),
        ] {
            let found = interval(better, values);
            assert!(found.low <= within[0] && found.high >= within[1], "{values:?}: {found:?}");
        }
        if blocks >= 5 {
            assert!(interval(Better::Lower, [30.0, 1.0]).low > 15.0, "that is no rounding");
        }
    }
}
