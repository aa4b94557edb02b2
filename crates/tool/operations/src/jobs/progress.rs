//! Progress of an experiment: runs done, and their estimated total.

use experiment::procedure::{Event, Settings};
use experiment::sample::Purpose;
use experiment::stats::stopping::{Rule, min_blocks};

use crate::reporter::Progress;

/// The progress of one experiment.
pub struct Bar {
    names: Vec<String>,
    warm_ups: u32,
    rule: Rule,
    progress: Progress,
    runs: u64,
    /// Estimated number of runs of all arms.
    needed: u64,
}

impl Bar {
    /// Creates a progress bar for these arms; silent if `quiet`.
    pub fn new(names: &[String], settings: &Settings, quiet: bool) -> Self {
        Self {
            names: names.to_vec(),
            warm_ups: settings.warm_ups,
            rule: settings.rule,
            progress: Progress::new(quiet, "starting"),
            runs: 0,
            needed: u64::from(2 * min_blocks(&settings.rule)) * names.len() as u64,
        }
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
                let message = || match run.purpose {
                    Purpose::WarmUp => format!("{name}: warm-up {block} of {}", self.warm_ups),
                    Purpose::Measured => format!("run {}: {name}, block {block}", self.runs + 1),
                };
                if run.purpose == Purpose::Measured {
                    self.needed = self.needed.max(self.runs_of_blocks(block));
                }
                self.progress.tell(self.runs, Some(self.needed), message);
            }
            Event::Ended(sample) => self.runs += u64::from(sample.purpose == Purpose::Measured),
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
