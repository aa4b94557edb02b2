//! A synthetic host: noise as a time series in the order of runs, and whole experiments on it with the real schedule,
//! stopping rule, estimator and verdict. Used by the simulations in `error_rate`, `power` and `methods`.
#![allow(dead_code)] // Each test binary uses a part of it.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::cell::Cell;
use std::time::Duration;
use superpage_experiment::execute::{Executor, Run, RunError};
use superpage_experiment::procedure::{self, Question, Ran, Stopped, values};
use superpage_experiment::sample;
use superpage_experiment::schedule::Schedule;
use superpage_experiment::spread::MAX_DEVIATION;
use superpage_experiment::stats::stopping::Rule;
use superpage_experiment::stats::{Better, Comparison, Confidence, Sample, Settings, compare};
use superpage_experiment::verdict::{Effect, Margin, Verdict, verdict};

/// The effect of the host on run times, in the order of runs.
#[derive(Clone, Copy, Debug)]
pub enum Noise {
    /// Independent, skewed noise with this coefficient of variation.
    Lognormal(f64),
    /// A slow wander: AR(1) in the logarithm with this phi and stationary deviation, plus 1 % white.
    Wander { phi: f64, deviation: f64 },
    /// Cold or warm host frames: 1.4x with probability 0.15, times 1 % white.
    Bimodal,
    /// 1 % white, and with probability 0.05 a Pareto spike (shape 1.5, from +10 % up, no limit).
    Spikes,
    /// 1 % white on a drift of this much per run.
    Drift(f64),
    /// 1 % white, and every fourth run 3 % slower: in step with the blocks of two arms.
    EveryFourth,
    /// 2 % white, and bursts of 1.3x to 2.3x that begin with this probability at each run and go on
    /// with 0.6: a neighbour on the same host (seen on a cloud guest, 0.03 to 0.08).
    Bursts(f64),
    /// 2 % noise read from a clock whose tick is 4 % of the run.
    Ticks,
    /// 1 % white, and half of the runs 1.2x: two modes, such as well or badly placed frames.
    TwoModes,
    /// 1 % white, and 4 % slower while the host is in its other state, which changes with
    /// probability 0.1 at each run.
    States,
}

/// The models of the error-rate tables.
pub const MODELS: [Noise; 17] = [
    Noise::Lognormal(0.005),
    Noise::Lognormal(0.01),
    Noise::Lognormal(0.025),
    Noise::Lognormal(0.05),
    Noise::Lognormal(0.08),
    Noise::Wander { phi: 0.6, deviation: 0.03 },
    Noise::Wander { phi: 0.75, deviation: 0.03 },
    Noise::Wander { phi: 0.9, deviation: 0.03 },
    Noise::Bimodal,
    Noise::Spikes,
    Noise::Drift(0.002),
    Noise::EveryFourth,
    Noise::Bursts(0.03),
    Noise::Bursts(0.08),
    Noise::Ticks,
    Noise::TwoModes,
    Noise::States,
];

/// The state of a noise model.
pub struct Host {
    noise: Noise,
    random: Pcg64,
    state: f64,
    run: u32,
}

impl Host {
    pub fn new(noise: Noise, seed: u64) -> Host {
        let mut host = Host { noise, random: Pcg64::seed_from_u64(seed), state: 0.0, run: 0 };
        host.state = host.normal(); // The process is stationary from the first run.
        host
    }

    /// Returns the time of the next run of a program that takes `seconds` on a quiet host.
    pub fn run(&mut self, seconds: f64) -> f64 {
        let run = f64::from(self.run);
        self.run += 1;
        let white = |host: &mut Host, deviation: f64| (deviation * host.normal()).exp();
        match self.noise {
            Noise::Lognormal(cv) => seconds * white(self, (cv * cv).ln_1p().sqrt()),
            Noise::Wander { phi, deviation } => {
                self.state = phi * self.state + (1.0 - phi * phi).sqrt() * self.normal();
                seconds * (deviation * self.state).exp() * white(self, 0.01)
            }
            Noise::Bimodal => {
                let cold = if self.uniform() < 0.15 { 1.4 } else { 1.0 };
                seconds * cold * white(self, 0.01)
            }
            Noise::Spikes => {
                let spiked = self.uniform() < 0.05;
                let spike = 0.1 * (1.0 - self.uniform()).powf(-1.0 / 1.5);
                seconds * white(self, 0.01) * if spiked { 1.0 + spike } else { 1.0 }
            }
            Noise::Drift(per_run) => seconds * (per_run * run).exp() * white(self, 0.01),
            Noise::EveryFourth => {
                seconds * white(self, 0.01) * if run % 4.0 == 0.0 { 1.03 } else { 1.0 }
            }
            Noise::Bursts(begins) => {
                let goes_on = if self.state > 1.0 { 0.6 } else { begins };
                let burst = self.uniform() < goes_on;
                self.state = if burst { 1.3 + self.uniform() } else { 1.0 };
                seconds * white(self, 0.02) * self.state
            }
            Noise::TwoModes => {
                let slow = if self.uniform() < 0.5 { 1.2 } else { 1.0 };
                seconds * slow * white(self, 0.01)
            }
            Noise::States => {
                if self.uniform() < 0.1 {
                    self.state = -self.state;
                }
                seconds * white(self, 0.01) * if self.state > 0.0 { 1.04 } else { 1.0 }
            }
            Noise::Ticks => (seconds * white(self, 0.02) / 0.04).round() * 0.04,
        }
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// An experiment: arm 0 takes `seconds`, arm `i` is `effects[i - 1]` times as fast.
pub struct Experiment {
    host: Host,
    /// Time of the reference.
    unit: f64,
    /// Times of the arms, in that unit.
    arms: Vec<f64>,
    seed: u64,
    level: Confidence,
    pub samples: Vec<Sample>,
    schedule: Schedule,
}

impl Experiment {
    pub fn new(noise: Noise, effects: &[f64], seed: u64) -> Experiment {
        Self::of(1.0, noise, effects, seed)
    }

    /// Returns an experiment with a program that takes `seconds`.
    pub fn of(seconds: f64, noise: Noise, effects: &[f64], seed: u64) -> Experiment {
        let arms = std::iter::once(1.0).chain(effects.iter().map(|effect| 1.0 / effect));
        let arms: Vec<f64> = arms.collect();
        let schedule = Schedule::new(arms.len() as u32, seed);
        let host = Host::new(noise, seed);
        Experiment {
            host,
            unit: seconds,
            arms,
            schedule,
            seed,
            level: Confidence::P99,
            samples: Vec::new(),
        }
    }

    /// Runs this many blocks more.
    pub fn blocks(&mut self, count: u32) {
        for _ in 0..count as usize * self.schedule.block_len() {
            let at = self.schedule.next().expect("endless");
            let value = self.unit * self.host.run(self.arms[at.arm as usize]);
            self.samples.push(Sample { at, value });
        }
    }

    /// Runs as `compare` does with its default limits, with a clock that adds up run times. (Further blocks continue
    /// its schedule.)
    pub fn until_stopped(&mut self, rule: &Rule) -> Ran {
        self.run(rule, 300.0, Some(1800.0))
    }

    /// The same with other limits.
    pub fn run(&mut self, rule: &Rule, max_seconds: f64, patience_seconds: Option<f64>) -> Ran {
        let settings = procedure::Settings {
            seed: self.seed,
            warm_ups: 0,
            rule: *rule,
            max_seconds: Some(max_seconds),
            patience_seconds,
        };
        let clock = Cell::new(0.0);
        let (unit, arms) = (self.unit, &self.arms);
        // `compare stream` judges by a rate.
        let has_rate = rule.max_deviation.is_some();
        let mut simulated = Simulated { host: &mut self.host, unit, arms, clock: &clock, has_rate };
        let now = || Duration::from_secs_f64(clock.get());
        let arms = arms.len() as u32;
        let question = Question::default();
        let ran = procedure::run_by(&now, &mut simulated, arms, &settings, &question, &mut |_| ())
            .expect("nothing fails");
        self.samples = values(&ran.samples, |sample| Some(sample.wall_seconds));
        self.level = ran.looks.level(rule.confidence, ran.stopped.end());
        self.schedule.by_ref().take(self.samples.len()).for_each(|_| ());
        ran
    }

    /// Runs as `compare stream` does, on a host whose noise does not depend on the offset of the arrays: runs are given
    /// up while equal runs differ by more than 5 %, three times at most.
    pub fn until_equal_runs_agree(&mut self, rule: &Rule) {
        let mut left = 300.0;
        for attempt in 0..4 {
            let max_deviation = (attempt < 3).then_some(MAX_DEVIATION);
            let ran = self.run(&Rule { max_deviation, ..*rule }, left, Some(1800.0));
            left -= ran.elapsed.as_secs_f64();
            if ran.stopped != Stopped::Deviation {
                break;
            }
        }
    }

    pub fn compared(&self) -> Comparison {
        let settings = Settings { level: self.level, ..Settings::new(self.seed) };
        compare(&self.samples, 0, 1, Better::Lower, &settings).expect("samples")
    }

    pub fn judged(&self) -> (Comparison, Verdict) {
        let compared = self.compared();
        let word = verdict(&Effect::AsPromised, Ok(&compared), &Margin::default());
        (compared, word)
    }
}

struct Simulated<'a> {
    host: &'a mut Host,
    unit: f64,
    arms: &'a [f64],
    clock: &'a Cell<f64>,
    has_rate: bool,
}

impl Executor for Simulated<'_> {
    fn execute(&mut self, run: Run) -> Result<sample::Sample, RunError> {
        let wall_seconds = self.unit * self.host.run(self.arms[run.at.arm as usize]);
        self.clock.set(self.clock.get() + wall_seconds);
        Ok(sample::Sample {
            arm: run.at.arm,
            purpose: run.purpose,
            block: run.at.block,
            slot: run.at.slot,
            wall_seconds,
            metric: self.has_rate.then(|| 1.0 / wall_seconds),
            exit_code: Some(0),
            ..sample::Sample::default()
        })
    }
}

/// Runs `count` seeded experiments on all processors; returns the results in the order of seeds.
pub fn simulate<T: Send>(count: u64, one: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let one = &one;
                let share = (count * thread / threads)..(count * (thread + 1) / threads);
                scope.spawn(move || share.map(one).collect::<Vec<T>>())
            })
            .collect();
        workers.into_iter().flat_map(|w| w.join().expect("no panic")).collect()
    })
}

/// Returns the number of items for which `is` holds.
pub fn count<T>(items: &[T], is: impl Fn(&T) -> bool) -> u64 {
    items.iter().filter(|item| is(item)).count() as u64
}

/// Returns the share of items for which `is` holds.
pub fn share<T>(items: &[T], is: impl Fn(&T) -> bool) -> f64 {
    count(items, is) as f64 / items.len() as f64
}

/// Returns the exact upper limit (Clopper and Pearson, one-sided 99 %) of a rate, given `hits` in `tries`: the rate at
/// which so few hits have a probability of 1 %.
pub fn upper_limit(hits: u64, tries: u64) -> f64 {
    statrs::function::beta::inv_beta_reg(hits as f64 + 1.0, (tries - hits) as f64, 0.99)
}

/// Returns whether at least this number of hits has a probability of less than 0.1 % at this rate (exact, binomial).
fn is_significantly_over(rate: f64, hits: u64, tries: u64) -> bool {
    let (hits, others) = (hits as f64, (tries - hits) as f64);
    hits > 0.0 && statrs::function::beta::beta_reg(hits, others + 1.0, rate) < 0.001
}

/// Returns whether `hits` in `tries` are consistent with `rate`. With at least `enough` tries, the upper limit must be
/// below `rate`. With fewer tries that cannot be shown for a rate slightly below; then the rate must not be
/// significantly higher.
pub fn is_kept(rate: f64, hits: u64, tries: u64, enough: u64) -> bool {
    match tries >= enough {
        true => upper_limit(hits, tries) < rate,
        false => !is_significantly_over(rate, hits, tries),
    }
}

/// The same for the observed rate instead of its limit: `hits` in `tries` are at most `rate`, or, with fewer than
/// `enough` tries, not significantly more.
pub fn is_at_most(rate: f64, hits: u64, tries: u64, enough: u64) -> bool {
    match tries >= enough {
        true => hits as f64 / tries as f64 <= rate,
        false => !is_significantly_over(rate, hits, tries),
    }
}

/// Returns whether the rate is more than `rate`, or, with fewer than `enough` tries, not significantly less.
pub fn is_more_than(rate: f64, hits: u64, tries: u64, enough: u64) -> bool {
    match tries >= enough {
        true => hits as f64 / tries as f64 > rate,
        false => !is_significantly_over(1.0 - rate, tries - hits, tries),
    }
}

/// Returns the number of experiments to make of `full`: all in the nightly set, otherwise a tenth, always with the
/// first seeds.
pub fn experiments(full: u64) -> u64 {
    testkit::cases(full as usize) as u64
}
