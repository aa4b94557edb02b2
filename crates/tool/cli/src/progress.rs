//! Prints messages and progress on standard error. After two seconds of work, shows the part done and, where known,
//! the remaining time.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use operations::reporter::{Bar, Reporter};

use crate::exit;

pub use operations::reporter::Progress;

const DELAY: Duration = Duration::from_secs(2);
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of progress lines if standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(15);

/// Progress bar template for a known total, with the remaining time.
const COUNTED: &str = "{elapsed_precise} [{bar:30}] {percent} %, {eta} left  {msg}";
const UNCOUNTED: &str = "{spinner} {elapsed_precise}  {msg}";

/// Shows messages and progress of operations on standard error.
pub struct Terminal;

impl Reporter for Terminal {
    fn say(&self, line: &str) {
        exit::say(line);
    }

    fn progress(&self, what: &str, as_lines: bool) -> Box<dyn Bar + Send> {
        match std::io::stderr().is_terminal() {
            true => Box::new(Drawn::new(what)),
            false if as_lines => Box::new(Lines { last: Instant::now() }),
            false => Box::new(Silent),
        }
    }
}

struct Drawn {
    bar: ProgressBar,
    /// Dropping this sender ends the thread before it shows the bar.
    shower: Option<Sender<()>>,
    counted: bool,
}

impl Drawn {
    fn new(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style(UNCOUNTED));
        bar.set_message(what.to_string());
        let (shower, ended) = channel::<()>();
        let shown = bar.clone();
        // A separate thread shows the bar, because the work may not call `tell` for long.
        let show = move || {
            if ended.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(REDRAW_INTERVAL);
            }
        };
        // If the thread cannot start, no bar is shown.
        let _ = std::thread::Builder::new().spawn(show);
        Self { bar, shower: Some(shower), counted: false }
    }
}

impl Bar for Drawn {
    fn tell(&mut self, done: u64, of: Option<u64>, what: &mut dyn FnMut() -> String) {
        if let Some(of) = of {
            self.bar.set_length(of);
            if !std::mem::replace(&mut self.counted, true) {
                self.bar.set_style(style(COUNTED));
            }
        }
        // Limit the position: an estimated total must not show more than 100 %.
        self.bar.set_position(of.map_or(done, |of| done.min(of)));
        self.bar.set_message(what());
    }

    fn aside(&self, print: &mut dyn FnMut()) {
        self.bar.suspend(print);
    }

    fn clear(&mut self) {
        self.shower = None;
        self.bar.finish_and_clear();
    }
}

/// Progress lines in a log, at an interval.
struct Lines {
    last: Instant,
}

impl Bar for Lines {
    fn tell(&mut self, done: u64, of: Option<u64>, what: &mut dyn FnMut() -> String) {
        if self.last.elapsed() > LINE_INTERVAL {
            self.last = Instant::now();
            exit::say(&line(done, of, &what()));
        }
    }

    fn aside(&self, print: &mut dyn FnMut()) {
        print();
    }

    fn clear(&mut self) {}
}

/// Formats a progress line. Without a total, `what` has the count, as in a bar.
fn line(done: u64, of: Option<u64>, what: &str) -> String {
    of.map_or(what.to_string(), |of| format!("{done} of {of} done; {what}"))
}

struct Silent;

impl Bar for Silent {
    fn tell(&mut self, _: u64, _: Option<u64>, _: &mut dyn FnMut() -> String) {}

    fn aside(&self, print: &mut dyn FnMut()) {
        print();
    }

    fn clear(&mut self) {}
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a valid template")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_each_figure_once() {
        assert_eq!(line(3, Some(7), "files read"), "3 of 7 done; files read");
        assert_eq!(line(3_517_795_005, None, "3517 M accesses"), "3517 M accesses");
    }
}
