//! Quantiles, medians and tests against published values, `statrs` and simple reference models.

use proptest::prelude::*;
use statrs::distribution::{ContinuousCDF, StudentsT};
use superpage_experiment::stats::Confidence;
use superpage_experiment::stats::describe::{mean, median, quantile_sorted, variance};
use superpage_experiment::stats::random::{Random, Stream};
use superpage_experiment::stats::randomization::{hodges_lehmann, sign_flip};
use superpage_experiment::stats::student::{MAX_BLOCKS, blocks_until, t_between, t_quantile};

fn level(level: f64) -> Confidence {
    Confidence::new(level).expect("in range")
}

#[test]
fn t_quantiles_match_the_printed_table() {
    // NIST/SEMATECH e-Handbook 1.3.6.7.2, columns 0.975 and 0.995.
    for (freedom, p95, p99) in [
        (1, 12.706, 63.657),
        (2, 4.303, 9.925),
        (3, 3.182, 5.841),
        (4, 2.776, 4.604),
        (5, 2.571, 4.032),
        (10, 2.228, 3.169),
        (29, 2.045, 2.756),
        (100, 1.984, 2.626),
    ] {
        assert!((t_quantile(level(0.95), freedom) - p95).abs() < 5.1e-4, "{freedom}");
        assert!((t_quantile(Confidence::P99, freedom) - p99).abs() < 5.1e-4, "{freedom}");
    }
}

#[test]
fn t_quantiles_invert_the_distribution_of_statrs() {
    for freedom in (1..60).chain([100, 101, 999, 4_999]) {
        let distribution = StudentsT::new(0.0, 1.0, f64::from(freedom)).expect("valid");
        for confidence in [0.5, 0.8, 0.95, 0.99, 0.999, 0.9999] {
            let t = t_quantile(level(confidence), freedom);
            let central = 2.0 * distribution.cdf(t) - 1.0;
            assert!((central - confidence).abs() < 1e-9, "{freedom} {confidence}: {central}");
        }
    }
}

#[test]
fn t_between_whole_degrees_lies_between_and_near_the_truth() {
    for freedom in [1.0, 1.5, 2.8, 4.2, 9.9, 40.5] {
        let distribution = StudentsT::new(0.0, 1.0, freedom).expect("valid");
        let exact = distribution.inverse_cdf(0.995);
        let t = t_between(Confidence::P99, freedom);
        assert!((t / exact - 1.0).abs() < 0.05, "{freedom}: {t} {exact}");
    }
    assert_eq!(t_between(Confidence::P99, 3.0), t_quantile(Confidence::P99, 3));
}

#[test]
fn confidence_outside_its_range_is_refused() {
    for bad in [0.49, 1.0, 99.0, f64::NAN, -0.5] {
        assert_eq!(Confidence::new(bad), None);
    }
    let read = |text| serde_json::from_str::<Confidence>(text);
    assert_eq!(read("0.99").expect("in range"), Confidence::P99);
    assert!(read("99").expect_err("refused").to_string().contains("between 0.5 and 0.9999"));
}

#[test]
fn blocks_until_is_the_first_number_that_is_enough() {
    let width = |k: u32| t_quantile(Confidence::P99, 3 * k - 1) / f64::from(k).sqrt();
    for (blocks, target) in [(3, 0.5), (3, 0.1), (5, 0.05), (15, 0.9), (2, 0.03)] {
        let scanned = (blocks + 1..).find(|k| width(*k) <= target * width(blocks));
        assert_eq!(Some(blocks_until(1.0, blocks, target, Confidence::P99)), scanned);
    }
    assert_eq!(blocks_until(1.0, 3, 0.0, Confidence::P99), MAX_BLOCKS);
    assert_eq!(blocks_until(0.0, 3, 1.0, Confidence::P99), 4);
}

#[test]
fn variance_survives_a_large_mean() {
    assert_eq!(mean(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), 5.0);
    assert!((variance(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) - 32.0 / 7.0).abs() < 1e-15);
    assert_eq!(variance(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]), 30.0);
}

#[test]
fn sign_flip_counts_patterns() {
    // All differences have the same sign, so only the two extreme patterns reach the observed mean.
    assert_eq!(sign_flip(&[0.1, 0.2, 0.15, 0.3, 0.1], 1).p, 2.0 / 32.0);
    assert_eq!(sign_flip(&[0.0; 4], 1).p, 1.0);
    // Fisher's test on Darwin's maize (differences in eighths of an inch, 15 pairs): 1726 of 32768
    // patterns (Fisher 1935, The Design of Experiments, section 21: 863 each side).
    let maize = [49., -67., 8., 16., 6., 23., 28., 41., 14., 29., 56., 24., 75., 60., -48.];
    assert_eq!(sign_flip(&maize, 1).p, 1726.0 / 32768.0);
    // Above sixteen blocks patterns are sampled; the same seed gives the same sample.
    let many: Vec<f64> = (0..30).map(|i| 0.3 + f64::from(i % 7) - 3.0).collect();
    assert_eq!(sign_flip(&many, 7), sign_flip(&many, 7));
    assert!(!sign_flip(&many, 7).exact);
}

#[test]
fn a_drawn_sign_flip_agrees_with_the_exact_one() {
    let sixteen: Vec<f64> = (0..16).map(|i| f64::from((i * 7) % 11) - 3.5).collect();
    // A seventeenth block of zero changes no sum, but switches to sampling.
    let seventeen: Vec<f64> = sixteen.iter().copied().chain([0.0]).collect();
    let (exact, drawn) = (sign_flip(&sixteen, 3), sign_flip(&seventeen, 3));
    assert!(exact.exact && !drawn.exact);
    assert!((exact.p - drawn.p).abs() < 4.0 * (exact.p * (1.0 - exact.p) / 1e4).sqrt());
}

#[test]
fn hodges_lehmann_is_the_median_of_walsh_averages() {
    assert_eq!(hodges_lehmann(&[1.0, 2.0, 4.0]), Some(2.25)); // 1 1.5 2 2.5 3 4
    assert_eq!(hodges_lehmann(&[]), None);
    assert!(hodges_lehmann(&[1.0, 1.0, 1.0, 1.0, 1.0, 1e6]).is_some_and(|v| v == 1.0));
}

#[test]
fn below_is_uniform() {
    let mut random = Random::new(1, Stream::Padding);
    let mut seen = [0u32; 7];
    (0..70_000).for_each(|_| seen[random.below(7) as usize] += 1);
    let chi: f64 = seen.iter().map(|n| (f64::from(*n) - 1e4).powi(2) / 1e4).sum();
    assert!(chi < 22.5, "{chi}"); // 99.9 % of chi squared, 6 degrees of freedom
    assert_eq!(random.below(0), 0);
    assert_eq!(random.below(1), 0);
}

proptest! {
    #[test]
    fn median_is_the_middle_of_the_sorted(mut values in prop::collection::vec(-1e9..1e9f64, 1..40)) {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let naive = if n % 2 == 1 { sorted[n / 2] } else { sorted[n / 2 - 1] / 2.0 + sorted[n / 2] / 2.0 };
        prop_assert_eq!(median(&mut values), Some(naive));
        prop_assert!((quantile_sorted(&sorted, 0.5).unwrap() - naive).abs() <= 1e-6);
    }

    #[test]
    fn quantiles_mirror(mut values in prop::collection::vec(-1e3..1e3f64, 1..40), q in 0.0..1.0f64) {
        values.sort_by(f64::total_cmp);
        let mirrored: Vec<f64> = values.iter().rev().map(|v| -v).collect();
        let (a, b) = (quantile_sorted(&values, q), quantile_sorted(&mirrored, 1.0 - q));
        prop_assert!((a.unwrap() + b.unwrap()).abs() < 1e-9);
    }
}
