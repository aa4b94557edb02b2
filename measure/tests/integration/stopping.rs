//! The stopping rule and its bounds.

use std::time::Duration;
use superpage_measure::schedule::Schedule;
use superpage_measure::stats::stopping::{Next, Progress, Rule, Time, next, progress};
use superpage_measure::stats::{Confidence, Sample};

fn run(blocks: usize, value: impl Fn(u32, u32, u32) -> f64) -> Vec<Sample> {
    Schedule::new(2, 1)
        .take(4 * blocks)
        .map(|at| Sample { at, value: value(at.block, at.slot, at.arm) })
        .collect()
}

fn judged(samples: &[Sample]) -> Progress {
    progress(samples, 2, &Rule::default()).expect("positive samples")
}

fn seconds(elapsed: u64, limit: u64) -> Time {
    let limit = Some(Duration::from_secs(limit));
    Time { elapsed: Duration::from_secs(elapsed), limit }
}

#[test]
fn five_runs_are_three_blocks() {
    let quiet = |blocks| judged(&run(blocks, |_, _, _| 1.0));
    assert_eq!((quiet(2).enough, quiet(2).runs), (false, 4));
    assert_eq!((quiet(3).enough, quiet(3).runs), (true, 6));
    assert_eq!(quiet(2).estimated_runs_needed, Some(6));
    assert_eq!(quiet(1).estimated_runs_needed, None);
    assert_eq!(quiet(1).relative_half_width, [None, None]);
}

#[test]
fn the_half_width_is_gormans_on_independent_runs() {
    // Arm 1 is exact, arm 0 has 0.98 and 1.02 in each block: block means agree, runs do not.
    let samples =
        run(4, |_, slot, arm| if arm == 1 { 3.0 } else { 0.98 + 0.04 * f64::from(slot / 2) });
    let width = judged(&samples).relative_half_width;
    let deviation = (8.0 * 0.02f64.powi(2) / 7.0).sqrt();
    assert!((width[0].expect("four blocks") - 3.499 * deviation / 8f64.sqrt()).abs() < 1e-5);
    assert_eq!(width[1], Some(0.0));
}

#[test]
fn drift_between_blocks_counts() {
    // Runs of a block agree, blocks differ: eight runs are not eight independent runs.
    let samples = run(4, |block, _, _| 1.0 + 0.01 * f64::from(block % 2));
    let width = judged(&samples).relative_half_width[0].expect("four blocks");
    let deviation = (4.0 * 0.005f64.powi(2) / 3.0).sqrt();
    assert!((width - 5.841 * deviation / 2.0 / 1.005).abs() < 1e-5, "{width}");
}

#[test]
fn the_rule_does_not_see_the_difference_of_arms() {
    let noise = |block: u32, slot: u32| 1.0 + 0.01 * f64::from((block * 7 + slot * 3) % 5);
    let same = judged(&run(5, |b, s, _| noise(b, s)));
    let twice = judged(&run(5, |b, s, arm| noise(b, s) * f64::from(arm + 1)));
    assert_eq!(same.relative_half_width, twice.relative_half_width);
    assert_eq!(same.estimated_runs_needed, twice.estimated_runs_needed);
}

#[test]
fn the_estimate_is_where_the_rule_would_be_met() {
    let noisy = |blocks| judged(&run(blocks, |b, _, _| 1.0 + 0.03 * f64::from(b % 2)));
    let needed = noisy(6).estimated_runs_needed.expect("six blocks");
    assert!(!noisy(6).enough && needed > 12);
    assert!(noisy(needed as usize / 2 + 2).enough, "{needed}");
    assert!(!noisy(needed as usize / 2 - 2).enough, "{needed}");
}

#[test]
fn an_arm_that_always_fails_ends_at_max_runs() {
    let samples: Vec<Sample> =
        run(15, |_, _, _| 1.0).into_iter().filter(|s| s.at.arm == 0).collect();
    let so_far = judged(&samples);
    assert_eq!((so_far.runs, so_far.enough, so_far.estimated_runs_needed), (0, false, None));
    assert_eq!(next(&so_far, 14, &Rule::default(), seconds(0, 9)), Next::Block);
    assert_eq!(next(&so_far, 15, &Rule::default(), seconds(0, 9)), Next::MaxRuns);
}

#[test]
fn a_block_that_will_not_fit_is_not_begun() {
    let so_far = judged(&run(4, |b, _, _| 1.0 + 0.1 * f64::from(b)));
    let rule = Rule::default();
    assert_eq!(next(&so_far, 4, &rule, seconds(40, 60)), Next::Block);
    assert_eq!(next(&so_far, 4, &rule, seconds(40, 50)), Next::MaxTime);
    // Before the least number of blocks only the limit itself stops.
    assert_eq!(next(&so_far, 2, &rule, seconds(40, 50)), Next::Block);
    assert_eq!(next(&so_far, 2, &rule, seconds(50, 50)), Next::MaxTime);
    assert_eq!(next(&so_far, 0, &rule, seconds(0, 50)), Next::Block);
    let unlimited = Time { limit: None, ..seconds(1 << 40, 0) };
    assert_eq!(next(&so_far, 4, &rule, unlimited), Next::Block);
    assert_eq!(next(&judged(&run(3, |_, _, _| 1.0)), 3, &rule, seconds(99, 1)), Next::Enough);
}

#[test]
fn the_default_is_gormans() {
    let rule = Rule::default();
    assert_eq!((rule.min_runs, rule.within, rule.confidence), (5, 0.02, Confidence::P99));
}
