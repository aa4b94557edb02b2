//! Why the interval is a hull of three: each candidate's coverage and width at a fixed number of blocks.
//! Prints the table that the head of `stats` quotes. Nominal level: 99 %.

use crate::common::{Experiment, Noise, simulate};
use statrs::distribution::{ContinuousCDF, Normal};
use superpage_measure::stats::describe::{median, quantile_sorted};
use superpage_measure::stats::random::{Random, Stream};
use superpage_measure::stats::{Better, Interval, Sample, Settings, compare};

const EXPERIMENTS: u64 = 1_000;

/// A block's values: reference, arm.
type Block = ([f64; 2], [f64; 2]);

fn blocks(samples: &[Sample]) -> Vec<Block> {
    let of = |block: u32, arm: u32| {
        let mut values =
            samples.iter().filter(|s| s.at.block == block && s.at.arm == arm).map(|s| s.value);
        [values.next().expect("two runs"), values.next().expect("two runs")]
    };
    let count = samples.last().expect("samples").at.block + 1;
    (0..count).map(|block| (of(block, 0), of(block, 1))).collect()
}

fn log_ratio(blocks: &[Block]) -> f64 {
    let middle = |of: fn(&Block) -> [f64; 2]| {
        median(&mut blocks.iter().flat_map(of).collect::<Vec<f64>>()).expect("not empty").ln()
    };
    middle(|b| b.0) - middle(|b| b.1)
}

/// The obvious bootstrap: build each resample, sort it, take its middle.
fn naive_bootstrap(blocks: &[Block], resamples: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed, Stream::Bootstrap);
    let mut ratios: Vec<f64> = (0..resamples)
        .map(|_| {
            let drawn: Vec<Block> =
                blocks.iter().map(|_| blocks[random.below(blocks.len() as u32) as usize]).collect();
            log_ratio(&drawn)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// Bias-corrected and accelerated (Efron 1987), jackknife over blocks. Measured and rejected.
fn bca(blocks: &[Block], ratios: &[f64]) -> Interval {
    let normal = Normal::standard();
    let point = log_ratio(blocks);
    let below = ratios.iter().filter(|r| **r < point).count() as f64;
    let ties = ratios.iter().filter(|r| **r == point).count() as f64;
    let count = ratios.len() as f64;
    let bias =
        normal.inverse_cdf(((below + ties / 2.0) / count).clamp(0.5 / count, 1.0 - 0.5 / count));
    let without: Vec<f64> = (0..blocks.len())
        .map(|left| log_ratio(&[&blocks[..left], &blocks[left + 1..]].concat()))
        .collect();
    let centre = without.iter().sum::<f64>() / without.len() as f64;
    let cubes: f64 = without.iter().map(|v| (centre - v).powi(3)).sum();
    let squares: f64 = without.iter().map(|v| (centre - v).powi(2)).sum();
    let acceleration = if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 };
    let end = |q: f64| {
        let z = bias + normal.inverse_cdf(q);
        let level = normal.cdf(bias + z / (1.0 - acceleration * z));
        quantile_sorted(ratios, level).expect("not empty").exp()
    };
    let (a, b) = (end(0.005), end(0.995));
    Interval { low: a.min(b), high: a.max(b) }
}

#[test]
fn only_the_hull_keeps_its_promise_with_few_blocks() {
    println!("coverage % (half width %) of the true ratio 1.05 at 99 %");
    println!(
        "{:22} {:>6} | {:>15} {:>15} {:>15} {:>15} {:>15}",
        "noise", "blocks", "bootstrap", "BCa", "between", "within", "hull"
    );
    for noise in [
        Noise::Lognormal(0.02),
        Noise::Bimodal,
        Noise::EveryFourth,
        Noise::Wander { phi: 0.75, deviation: 0.03 },
    ] {
        for count in [2, 3, 5, 10] {
            let results = simulate(EXPERIMENTS, |seed| {
                let mut experiment = Experiment::new(noise, &[1.05], seed);
                experiment.blocks(count);
                let blocks = blocks(&experiment.samples);
                let compared = experiment.compared();
                let parts = compared.parts.expect("two blocks");
                let accelerated = bca(&blocks, &naive_bootstrap(&blocks, 500, seed));
                let hull = compared.interval.expect("two blocks");
                [
                    parts.bootstrap,
                    accelerated,
                    parts.between,
                    parts.within.unwrap_or(parts.between),
                    hull,
                ]
            });
            let name = format!("{noise:?}");
            print!("{:22} {:>6} |", &name[..name.len().min(22)], count);
            for method in 0..5 {
                let covered = results.iter().filter(|r| r[method].contains(1.05)).count();
                let mut widths: Vec<f64> =
                    results.iter().map(|r| (r[method].high / r[method].low).ln() / 2.0).collect();
                let width = median(&mut widths).expect("not empty");
                let percent = 100.0 * covered as f64 / EXPERIMENTS as f64;
                print!(" {percent:>6.1} ({:>6.2})", 100.0 * width);
                if method == 4 {
                    assert!(percent >= 99.0, "{noise:?}, {count} blocks: {percent}");
                }
            }
            println!();
        }
    }
}

#[test]
fn the_fast_bootstrap_is_the_obvious_one() {
    for seed in 0..20 {
        let mut experiment = Experiment::new(Noise::Bimodal, &[1.2], seed);
        experiment.blocks(2 + seed as u32);
        let settings = Settings::new(seed);
        let compared = compare(&experiment.samples, 0, 1, Better::Lower, &settings);
        let fast = compared.expect("samples").parts.expect("two blocks").bootstrap;
        let slow = naive_bootstrap(&blocks(&experiment.samples), 2_000, seed);
        let end = |q| quantile_sorted(&slow, q).expect("not empty").exp();
        assert!((fast.low - end(0.005)).abs() < 1e-12 && (fast.high - end(0.995)).abs() < 1e-12);
    }
}
