//! False positives and coverage of the whole pipeline (schedule, stopping rule with its limits,
//! estimator, verdict) on synthetic hosts, for a program of a second. `--nocapture` prints the tables.
//!
//! Monte Carlo error: 2,000 experiments cannot distinguish 0.9 % from 1.1 %, so "the observed rate is under 1 %" would
//! prove little, and "not significantly over 1 %" less. The test asserts the strong form: the exact one-sided 99 %
//! *upper* limit of the rate, given the observations, is below 1 %. The seeds are fixed, so the test cannot flicker;
//! other seeds would pass as well, unless the true rate is near 1 %.
//!
//! The nightly set asserts this for each model. With a tenth of the experiments the strong form holds for all models
//! together, and the rate of each model is not significantly over 1 %.

use crate::common::{
    self, Experiment, Host, MODELS, Noise, count, is_kept, share, simulate, upper_limit,
};
use std::ops::Range;
use superpage_experiment::schedule::Slot;
use superpage_experiment::stats::stopping::Rule;
use superpage_experiment::stats::{Better, Comparison, Sample, Settings, compare};
use superpage_experiment::verdict::Verdict;

/// Experiments for each model in the nightly set.
const EXPERIMENTS: u64 = 2_000;

/// The promised error rate.
const RATE: f64 = 0.01;

/// Errors of each model, and of all together.
#[derive(Default)]
struct Errors {
    hits: u64,
    tries: u64,
}

impl Errors {
    #[track_caller]
    fn add(&mut self, what: &str, hits: u64, tries: u64) {
        assert!(is_kept(RATE, hits, tries, EXPERIMENTS), "{what}: {hits} of {tries}");
        self.hits += hits;
        self.tries += tries;
    }

    #[track_caller]
    fn are_few_together(&self, what: &str) {
        let Self { hits, tries } = *self;
        println!("{what}: {hits} of {tries} in all");
        assert!(is_kept(RATE, hits, tries, EXPERIMENTS), "{what}: {hits} of {tries} in all");
    }
}

fn experiments(noise: Noise, effect: f64, seeds: Range<u64>) -> Vec<(Comparison, Verdict)> {
    simulate(seeds.end - seeds.start, |index| {
        let mut experiment = Experiment::new(noise, &[effect], seeds.start + index);
        experiment.until_stopped(&Rule::default());
        experiment.judged()
    })
}

fn covers(comparison: &Comparison, truth: f64) -> bool {
    comparison.interval.is_some_and(|i| i.contains(truth))
}

fn half_width(comparison: &Comparison) -> f64 {
    comparison.interval.map_or(f64::NAN, |i| (i.high / i.low).ln() / 2.0)
}

fn average(results: &[(Comparison, Verdict)], of: impl Fn(&Comparison) -> f64) -> f64 {
    results.iter().map(|(c, _)| of(c)).sum::<f64>() / results.len() as f64
}

#[test]
fn identical_arms_are_called_different_in_under_one_percent() {
    println!(
        "{:45} {:>9} {:>8} {:>6} {:>6} {:>8} {:>6} {:>9}",
        "A/A", "false +", "limit", "same", "undec.", "covered", "runs", "+- width"
    );
    let made = common::experiments(EXPERIMENTS);
    let (mut all_wrong, mut all_missed) = (Errors::default(), Errors::default());
    for noise in MODELS {
        let results = experiments(noise, 1.0, 0..made);
        let wrong = count(&results, |(_, v)| matches!(v, Verdict::Faster(_) | Verdict::Slower(_)));
        let missed = count(&results, |(c, _)| !covers(c, 1.0));
        let limit = upper_limit(wrong, made);
        println!(
            "{:45} {:>7.2} % {:>6.2} % {:>4.0} % {:>4.0} % {:>6.2} % {:>6.1} {:>7.2} %",
            format!("{noise:?}"),
            100.0 * wrong as f64 / made as f64,
            100.0 * limit,
            100.0 * share(&results, |(_, v)| matches!(v, Verdict::Same { .. })),
            100.0 * share(&results, |(_, v)| matches!(v, Verdict::Undecided { .. })),
            100.0 - 100.0 * missed as f64 / made as f64,
            average(&results, |c| 2.0 * f64::from(c.blocks)),
            100.0 * average(&results, half_width),
        );
        all_wrong.add(&format!("{noise:?}: false verdicts"), wrong, made);
        all_missed.add(&format!("{noise:?}: missed"), missed, made);
    }
    all_wrong.are_few_together("false verdicts");
    all_missed.are_few_together("missed");
}

/// The true ratio is the scale factor `s` of `arm ~ reference / s`: under bimodal noise both arms have
/// the same mixture, so the ratio of medians in the limit of many runs is `s` too.
#[test]
fn the_interval_contains_the_true_ratio() {
    println!("{:45} {:>6} {:>8} {:>8} {:>9}", "true ratio", "", "covered", "wrong", "+- width");
    let half = EXPERIMENTS / 2;
    let made = common::experiments(half);
    let mut all_missed = Errors::default();
    for noise in MODELS {
        let mut missed = 0;
        for (truth, seeds) in [(1.05, 2 * half..2 * half + made), (2.0, 3 * half..3 * half + made)]
        {
            let results = experiments(noise, truth, seeds);
            let missed_here = count(&results, |(c, _)| !covers(c, truth));
            let wrong = count(&results, |(_, v)| matches!(v, Verdict::Slower(_)));
            println!(
                "{:45} {:>6} {:>6.2} % {:>8} {:>7.2} %",
                format!("{noise:?}"),
                truth,
                100.0 - 100.0 * missed_here as f64 / made as f64,
                wrong,
                100.0 * average(&results, half_width),
            );
            assert_eq!(wrong, 0, "{noise:?}, {truth}: called slower");
            missed += missed_here;
        }
        all_missed.add(&format!("{noise:?}: missed"), missed, 2 * made);
    }
    all_missed.are_few_together("missed");
}

/// Runs are given up and repeated if equal runs differed, which favours repetitions that happen to agree.
#[test]
fn repeating_until_equal_runs_agree_keeps_the_error() {
    let made = common::experiments(EXPERIMENTS);
    let (mut all_wrong, mut all_missed) = (Errors::default(), Errors::default());
    for noise in MODELS {
        let results = simulate(made, |seed| {
            let mut experiment = Experiment::new(noise, &[1.0], seed);
            experiment.until_equal_runs_agree(&Rule::default());
            experiment.judged()
        });
        let wrong = count(&results, |(_, v)| matches!(v, Verdict::Faster(_) | Verdict::Slower(_)));
        let missed = count(&results, |(c, _)| !covers(c, 1.0));
        println!("{:45} {wrong} called different, {missed} missed", format!("{noise:?}"));
        all_wrong.add(&format!("{noise:?}: false verdicts"), wrong, made);
        all_missed.add(&format!("{noise:?}: missed"), missed, made);
    }
    all_wrong.are_few_together("false verdicts");
    all_missed.are_few_together("missed");
}

#[test]
fn a_third_arm_twice_as_fast_does_not_disturb_the_other_two() {
    let made = common::experiments(EXPERIMENTS);
    let mut all_missed = Errors::default();
    for noise in [Noise::Lognormal(0.02), Noise::EveryFourth, Noise::Drift(0.002)] {
        let results = simulate(made, |seed| {
            let mut experiment = Experiment::new(noise, &[1.0, 2.0], seed);
            experiment.until_stopped(&Rule::default());
            experiment.judged()
        });
        let missed = count(&results, |(c, _)| !covers(c, 1.0));
        println!("three arms, {noise:?}: {missed} of {made} missed");
        all_missed.add(&format!("{noise:?}: missed"), missed, made);
    }
    all_missed.are_few_together("missed");
}

/// A control: the same host and estimator, but all runs of one arm before all of the other. The result must be wrong;
/// otherwise the tables above would prove nothing about the schedule.
#[test]
fn without_the_schedule_drift_becomes_a_verdict() {
    let results = simulate(100, |seed| {
        let mut host = Host::new(Noise::Drift(0.002), seed);
        let slots = (0..2).flat_map(|arm| (0..20).map(move |run| (arm, run)));
        let samples: Vec<Sample> = slots
            .map(|(arm, run)| {
                let at = Slot { block: run / 2, slot: run % 2 + 2 * arm, arm };
                Sample { at, value: host.run(1.0) }
            })
            .collect();
        compare(&samples, 0, 1, Better::Lower, &Settings::new(seed)).expect("samples")
    });
    assert!(count(&results, |c| !covers(c, 1.0)) > 90);
}
