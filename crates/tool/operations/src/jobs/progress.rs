//! Progress of an experiment: runs done, and their estimated total.

use std::time::{Duration, Instant};

use experiment::procedure::{Event, Settings};
use experiment::sample::Purpose;
use experiment::stats::stopping::{Rule, min_blocks};
use host::{Before, Root};

use crate::reporter::{Progress, say};

/// The progress of one experiment.
pub struct Bar {
    names: Vec<String>,
    warm_ups: u32,
    rule: Rule,
    progress: Progress,
    is_quiet: bool,
    /// The machine before the runs, until the first run has ended: then it is known what others use, and a command that
    /// cannot run has one line of error.
    before: Option<Before>,
    runs: u64,
    /// Estimated number of runs of all arms.
    needed: u64,
    /// When the first warm-up began.
    began: Instant,
    /// Time limit, of which no more than the rest is left.
    limit: Option<Duration>,
    /// Whether two blocks are made even if the limit is too short.
    is_soft: bool,
    /// Time spent in runs, with warm-ups, and their number.
    spent: (Duration, u32),
    run_began: Instant,
}

impl Bar {
    /// Creates a progress bar for these arms; silent if `quiet`.
    pub fn new(names: &[String], settings: &Settings, quiet: bool) -> Self {
        Self {
            names: names.to_vec(),
            warm_ups: settings.warm_ups,
            rule: settings.rule,
            progress: Progress::new(quiet, "starting"),
            is_quiet: quiet,
            before: None,
            runs: 0,
            needed: u64::from(2 * min_blocks(&settings.rule)) * names.len() as u64,
            began: Instant::now(),
            limit: settings.max_seconds.map(Duration::from_secs_f64),
            is_soft: settings.patience_seconds.is_some(),
            spent: (Duration::ZERO, 0),
            run_began: Instant::now(),
        }
    }

    /// Tells after the first run what load others make, unless quiet.
    pub fn warns_of_load(self, before: &Before) -> Self {
        Self { before: (!self.is_quiet).then(|| before.clone()), ..self }
    }

    /// What is left, from the mean duration of the runs so far: `, about 40 s left`. Empty before the first run ends.
    fn left(&self, warm_ups_left: u64) -> String {
        let (spent, runs) = self.spent;
        let Some(mean) = spent.checked_div(runs) else { return String::new() };
        let runs = self.needed.saturating_sub(self.runs) + warm_ups_left;
        let left = mean.as_secs_f64() * runs as f64;
        let limit =
            self.limit.map(|limit| limit.saturating_sub(self.began.elapsed()).as_secs_f64());
        let left = limit.map_or(left, |limit| left.min(limit));
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
                let (name, block) = (&self.names[run.at.arm as usize], run.at.block + 1);
                if run.purpose == Purpose::Measured {
                    self.needed = self.needed.max(self.runs_of_blocks(block));
                }
                let arms = self.names.len() as u64;
                let warm_ups_left = match run.purpose {
                    Purpose::WarmUp => {
                        u64::from(self.warm_ups.saturating_sub(block)) * arms + arms
                            - u64::from(run.at.arm)
                    }
                    Purpose::Measured => 0,
                };
                let left = self.left(warm_ups_left);
                let message = || match run.purpose {
                    Purpose::WarmUp => {
                        format!("{name}: warm-up {block} of {}{left}", self.warm_ups)
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
            Event::Short { needed, limit } if !self.is_quiet => {
                let [needed, limit] = [needed, limit].map(|time| time.as_secs_f64().ceil());
                let then = match self.is_soft {
                    false => "it is kept, and there may be no interval",
                    true => "they are made nevertheless",
                };
                let what = if self.is_soft { "its part of --max-time," } else { "--max-time" };
                self.progress.aside(|| {
                    say(&format!(
                        "{what} {limit:.0}s is too short for a verdict: the warm-ups and two blocks of runs take about \
                         {needed:.0} s; {then}"
                    ));
                });
            }
            Event::Short { .. } => {}
            Event::Block(progress, most) => {
                if let Some(needed) = progress.estimated_runs_needed(&self.rule) {
                    let all = u64::from(needed.min(*most)) * self.names.len() as u64;
                    self.needed = all.max(self.runs);
                }
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
}
