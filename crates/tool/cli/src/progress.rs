//! Progress on standard error, of work that takes longer than two seconds: how much of it is done and
//! how long it will take yet, where that is known.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit;

/// Work this quick needs no report.
const SILENT: Duration = Duration::from_secs(2);
/// How often the elapsed time is drawn again, whatever the work does.
const REDRAWN: Duration = Duration::from_millis(200);
/// How often a line is printed where there is no terminal.
const EVERY: Duration = Duration::from_secs(15);

/// So many of so many, with the time that is left.
const COUNTED: &str = "{elapsed_precise} [{bar:30}] {percent} %, {eta} left  {msg}";
/// Nobody knows how many there will be.
const UNCOUNTED: &str = "{spinner} {elapsed_precise}  {msg}";

/// Progress of one piece of work.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Dropped at the end: then nobody shows the bar any more.
    shower: Option<Sender<()>>,
    lines: bool,
    counted: bool,
    last_line: Instant,
}

impl Progress {
    /// Of steps that are told one by one, or silence. Where there is no terminal, lines now and then:
    /// they go into a log.
    pub fn new(quiet: bool, what: &str) -> Self {
        Self::of(quiet, what, true)
    }

    /// Of one pass: nobody reads lines about it where there is no terminal.
    pub fn of_pass(quiet: bool, what: &str) -> Self {
        Self::of(quiet, what, false)
    }

    fn of(quiet: bool, what: &str, lines: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            bar.set_style(style(UNCOUNTED));
            bar.set_message(what.to_string());
            bar
        });
        let shower = bar.clone().map(|bar| {
            let (shower, ended) = channel::<()>();
            // Not from `tell`: the work may have nothing to tell for long.
            let show = move || {
                if ended.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout) {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(REDRAWN);
                }
            };
            // Without a thread there is no bar.
            let _ = std::thread::Builder::new().spawn(show);
            shower
        });
        let lines = lines && !terminal && !quiet;
        Self { bar, shower, lines, counted: false, last_line: Instant::now() }
    }

    /// Tells how far it is, of how much if that is known, and what it does.
    pub fn tell(&mut self, done: u64, of: Option<u64>, what: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            if let Some(of) = of {
                bar.set_length(of);
                if !std::mem::replace(&mut self.counted, true) {
                    bar.set_style(style(COUNTED));
                }
            }
            // A count that was about right must not show more than all.
            bar.set_position(of.map_or(done, |of| done.min(of)));
            bar.set_message(what());
        } else if self.lines && self.last_line.elapsed() > EVERY {
            self.last_line = Instant::now();
            let of = of.map_or(String::new(), |of| format!(" of {of}"));
            exit::say(&format!("{done}{of} done; {}", what()));
        }
    }

    /// Prints something else meanwhile: the bar is off the screen until that is done.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes it off the screen.
    pub fn clear(&mut self) {
        self.shower = None;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a valid template")
}
