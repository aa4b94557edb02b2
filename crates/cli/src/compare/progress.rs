//! Progress on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use experiment::procedure::{Event, Settings};
use experiment::sample::Purpose;
use experiment::stats::stopping::{Rule, min_blocks};
use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal.
const EVERY: Duration = Duration::from_secs(15);

/// The progress of one experiment.
pub struct Bar {
    names: Vec<String>,
    warm_ups: u32,
    rule: Rule,
    bar: Option<ProgressBar>,
    lines: bool,
    last_line: Instant,
    runs: u64,
}

impl Bar {
    /// A bar for these arms, or silence.
    pub fn new(names: &[String], settings: &Settings, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let length = u64::from(2 * min_blocks(&settings.rule)) * names.len() as u64;
        let bar = (terminal && !quiet).then(|| {
            let bar = ProgressBar::new(length);
            let style = "{elapsed_precise} [{bar:30}] {pos}/{len} runs  {msg}";
            bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self {
            names: names.to_vec(),
            warm_ups: settings.warm_ups,
            rule: settings.rule,
            bar,
            lines: !terminal && !quiet,
            last_line: Instant::now(),
            runs: 0,
        }
    }

    /// Shows what happened.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Begins(run) => {
                let name = &self.names[run.at.arm as usize];
                let message = match run.purpose {
                    Purpose::WarmUp => {
                        format!("{name}: warm-up {} of {}", run.at.block + 1, self.warm_ups)
                    }
                    Purpose::Measured => format!("{name}, block {}", run.at.block + 1),
                };
                self.say(message);
            }
            Event::Ended(sample) if sample.purpose == Purpose::Measured => {
                self.runs += 1;
                if let Some(bar) = &self.bar {
                    bar.set_position(self.runs);
                }
            }
            Event::Ended(_) => {}
            Event::Block(progress, most) => {
                let needed = progress.estimated_runs_needed(&self.rule);
                if let (Some(bar), Some(needed)) = (&self.bar, needed) {
                    bar.set_length(self.all(needed.min(*most)).max(self.runs));
                }
            }
        }
    }

    /// Takes the bar off the screen.
    pub fn clear(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Runs of all arms, for so many of each.
    fn all(&self, runs: u32) -> u64 {
        u64::from(runs) * self.names.len() as u64
    }

    fn say(&mut self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        } else if self.lines && self.last_line.elapsed() > EVERY {
            self.last_line = Instant::now();
            crate::exit::say(&format!("runs done: {}; {message}", self.runs));
        }
    }
}
