//! Progress on standard error, of work that takes longer than two seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work this quick needs no report.
const SILENT: Duration = Duration::from_secs(2);
/// How often a line is printed where there is no terminal.
const EVERY: Duration = Duration::from_secs(15);

/// Progress of one piece of work: of so many steps, or of an unknown length.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    began: Instant,
    last_line: Instant,
    shown: bool,
}

impl Progress {
    /// Of `steps` steps (0: unknown), or silence.
    pub fn new(steps: usize, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
            let style = match steps {
                0 => "{spinner} {elapsed_precise}  {msg}",
                _ => "{elapsed_precise} [{bar:30}] {pos}/{len}  {msg}",
            };
            bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
            bar
        });
        let now = Instant::now();
        Self { bar, lines: !terminal && !quiet, began: now, last_line: now, shown: false }
    }

    /// Shows how far it is, and what it does.
    pub fn step(&mut self, done: usize, of: usize, what: &str) {
        if let Some(bar) = &self.bar {
            if !self.shown && self.began.elapsed() > SILENT {
                self.shown = true;
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_string());
        } else if self.lines && self.last_line.elapsed() > EVERY {
            self.last_line = Instant::now();
            crate::exit::say(&format!("{done} of {of} done; {what}"));
        }
    }

    /// Does work that tells nothing of itself; what it is, is shown once it has taken long.
    pub fn during<T>(mut self, what: &str, work: impl FnOnce() -> T) -> T {
        let Some(bar) = self.bar.take() else { return work() };
        let (done, ended) = std::sync::mpsc::channel::<()>();
        let what = what.to_string();
        let watcher = std::thread::spawn(move || {
            if ended.recv_timeout(SILENT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                bar.set_message(what);
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(200));
                let _ = ended.recv();
                bar.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        let _ = watcher.join();
        result
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
