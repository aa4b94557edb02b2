//! Progress of an experiment: runs done, and their estimated total.

use std::time::{Duration, Instant};

use experiment::procedure::{Event, Settings};
use experiment::sample::Purpose;
use experiment::stats::stopping::min_blocks;
use host::{Before, Root};

use crate::reporter::{Progress, say};

const TOO_SHORT: &str = "is too short for a verdict: with warm-ups";

/// Says that `--max-time` of `limit` seconds is too short: one block or round takes `one` seconds, two take `two`.
pub(crate) fn one_is_made(unit: &str, limit: f64, one: f64, two: f64) -> String {
    let [limit, one, two] = [limit, one, two].map(f64::ceil);
    format!(
        "--max-time {limit:.0}s {TOO_SHORT}, one {unit}, which is always made, takes about {one:.0} s; two, which give an \
         interval, {two:.0} s"
    )
}

/// The progress of one experiment.
pub struct Bar {
    names: Vec<String>,
    settings: Settings,
    progress: Progress,
    is_quiet: bool,
    /// The machine before the runs, until the first run has ended: then it is known what others use, and a command that
    /// cannot run has one line of error.
    before: Option<Before>,
    runs: u64,
    /// Estimated number of runs of all arms.
    needed: u64,
    /// Time spent in runs, with warm-ups, and their number.
    spent: (Duration, u32),
    run_began: Instant,
}

impl Bar {
    /// Creates a progress bar for these arms; silent if `quiet`.
    pub fn new(names: &[String], settings: &Settings, quiet: bool) -> Self {
        let new = Self {
            names: names.to_vec(),
            settings: *settings,
            progress: Progress::new(quiet, "starting"),
            is_quiet: quiet,
            before: None,
            runs: 0,
            needed: 0,
            spent: (Duration::ZERO, 0),
            run_began: Instant::now(),
        };
        Self { needed: new.least(), ..new }
    }

    /// Tells after the first run what load others make, unless quiet.
    pub fn warns_of_load(self, before: &Before) -> Self {
        Self { before: (!self.is_quiet).then(|| before.clone()), ..self }
    }

    /// Lowers the estimate to the blocks that fit into the limit, and to those that are always made. The mean duration of
    /// the runs so far stands for the others.
    fn fit(&mut self) {
        let (spent, runs) = self.spent;
        let limit = self.settings.limit_with_warm_ups();
        let (Some(limit), Some(mean)) = (limit, spent.checked_div(runs)) else { return };
        let warm_ups = mean * self.settings.warm_ups * self.names.len() as u32;
        let block = mean.as_secs_f64() * self.runs_of_blocks(1) as f64;
        let blocks = limit.saturating_sub(warm_ups).as_secs_f64() / block.max(1e-9);
        let blocks = (blocks as u32).max(self.settings.guaranteed_blocks());
        self.needed = self.least().min(self.runs_of_blocks(blocks));
    }

    /// Number of runs that the stopping rule makes at least.
    fn least(&self) -> u64 {
        self.runs_of_blocks(min_blocks(&self.settings.rule))
    }

    /// What is left, from the mean duration of the runs so far: `, about 40 s left`. Empty before the first run ends.
    fn left(&self, warm_ups_left: u64) -> String {
        let (spent, runs) = self.spent;
        let Some(mean) = spent.checked_div(runs) else { return String::new() };
        let runs = self.needed.saturating_sub(self.runs) + warm_ups_left;
        let left = mean.as_secs_f64() * runs as f64;
        let left =
            if left < 90.0 { format!("{left:.0} s") } else { format!("{:.0} min", left / 60.0) };
        format!(", about {left} left")
    }

    /// Number of runs of this many blocks: two of each arm.
    fn runs_of_blocks(&self, blocks: u32) -> u64 {
        2 * u64::from(blocks) * self.names.len() as u64
    }

    /// Updates the bar for an event.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Begins(run) => {
                // After the first block the procedure says how many runs the limits allow.
                if self.runs < self.runs_of_blocks(1) {
                    self.fit();
                }
                let (name, block) = (&self.names[run.at.arm as usize], run.at.block + 1);
                if run.purpose == Purpose::Measured {
                    self.needed = self.needed.max(self.runs_of_blocks(block));
                }
                let arms = self.names.len() as u64;
                let warm_ups_left = match run.purpose {
                    Purpose::WarmUp => {
                        u64::from(self.settings.warm_ups.saturating_sub(block)) * arms + arms
                            - u64::from(run.at.arm)
                    }
                    Purpose::Measured => 0,
                };
                let left = self.left(warm_ups_left);
                let message = || match run.purpose {
                    Purpose::WarmUp => {
                        format!("{name}: warm-up {block} of {}{left}", self.settings.warm_ups)
                    }
                    Purpose::Measured => {
                        format!("run {}: {name}, block {block}{left}", self.runs + 1)
                    }
                };
                self.run_began = Instant::now();
                self.progress.tell(self.runs, Some(self.needed), message);
            }
            Event::Ended(sample) => {
                self.runs += u64::from(sample.purpose == Purpose::Measured);
                self.spent = (self.spent.0 + self.run_began.elapsed(), self.spent.1 + 1);
                let before = self.before.take();
                if let Some(warning) = before.and_then(|before| before.warning(&Root::real())) {
                    self.progress.aside(|| say(&warning));
                }
            }
            Event::Short { one_block, needed, limit } if !self.is_quiet => {
                let [one_block, needed, limit] =
                    [one_block, needed, limit].map(|time| time.as_secs_f64());
                let said = match self.settings.guaranteed_blocks() {
                    1 => one_is_made("block of two runs per arm", limit, one_block, needed),
                    _ => format!(
                        "its part of --max-time, {:.0}s {TOO_SHORT}, two blocks of two runs per arm, which are always \
                         made, take about {:.0} s",
                        limit.ceil(),
                        needed.ceil()
                    ),
                };
                self.progress.aside(|| say(&said));
            }
            Event::Short { .. } => {}
            Event::Block(progress, most) => {
                let arms = self.names.len() as u64;
                let needed = progress.estimated_runs_needed(&self.settings.rule);
                let needed = needed.map_or(self.needed, |needed| u64::from(needed) * arms);
                self.needed = needed.min(u64::from(*most) * arms).max(self.runs);
            }
        }
    }

    /// Removes the bar from the screen.
    pub fn clear(&mut self) {
        self.progress.clear();
    }
}

#[cfg(test)]
mod tests {
    use experiment::execute::Run;
    use experiment::schedule::Slot;
    use experiment::stats::stopping::Rule;

    use super::*;

    #[test]
    fn the_total_is_never_below_the_runs_of_the_block_that_runs() {
        let settings = Settings {
            seed: 1,
            warm_ups: 0,
            rule: Rule { min_runs: 4, ..Rule::default() },
            max_seconds: None,
            patience_seconds: None,
        };
        let mut bar = Bar::new(&["base", "thp", "hugetlb"].map(String::from), &settings, true);
        assert_eq!(bar.needed, 12);
        let mut needed_in = |block, purpose| {
            let at = Slot { block, slot: 0, arm: 0 };
            bar.show(&Event::Begins(Run { at, purpose, environment_padding: 0, seed: 1 }));
            bar.needed
        };
        assert_eq!(needed_in(7, Purpose::WarmUp), 12);
        assert_eq!([0, 1, 2].map(|block| needed_in(block, Purpose::Measured)), [12, 12, 18]);
    }

    /// Runs of 35 s: in two minutes one block of two arms is made, in five minutes and a half two, where the rule asks for
    /// three. What is left counts these runs alone.
    #[test]
    fn the_total_is_of_the_runs_that_the_time_allows() {
        let settings = |max_seconds| Settings {
            seed: 1,
            warm_ups: 1,
            rule: Rule::default(),
            max_seconds,
            patience_seconds: None,
        };
        for (seconds, runs, left) in [
            (Some(120.0), 4, ", about 3 min left"),
            (Some(351.0), 8, ", about 5 min left"),
            (Some(3600.0), 12, ", about 8 min left"),
            (None, 12, ", about 8 min left"),
        ] {
            let mut bar = Bar::new(&["base", "thp"].map(String::from), &settings(seconds), true);
            bar.spent = (Duration::from_secs(35), 1);
            let at = Slot { block: 0, slot: 1, arm: 1 };
            let purpose = Purpose::WarmUp;
            bar.show(&Event::Begins(Run { at, purpose, environment_padding: 0, seed: 1 }));
            assert_eq!((bar.needed, bar.left(1).as_str()), (runs, left), "{seconds:?}");
        }
    }
}
