//! Progress of a slow change on standard error, and its cancellation.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use experiment::execute::Interrupt;
use host::pool::{Progress, pool_name};

use crate::exit::{self, Done, Failure};
use operations::signals::{self, Interrupting, Interruption};

const DELAY: Duration = Duration::from_secs(2);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Prints progress of one change and catches signals.
pub struct Watcher {
    /// `None`: the caller handles signals.
    interrupting: Option<Interrupting>,
    began: Instant,
    last_line: Option<Instant>,
    quiet: bool,
}

impl Watcher {
    /// Creates a watcher that catches signals: ^C then stops and undoes the change instead of killing this process.
    pub fn new(quiet: bool) -> Result<Self, Failure> {
        let interrupting = signals::interrupt_experiment(Arc::new(Interrupt::default()))?;
        Ok(Self { interrupting: Some(interrupting), began: Instant::now(), last_line: None, quiet })
    }

    /// Creates a watcher that only prints progress; the caller handles signals.
    pub fn of_progress(quiet: bool) -> Self {
        Self { interrupting: None, began: Instant::now(), last_line: None, quiet }
    }

    /// Callback of `host::pool` after every step of a change.
    pub fn step(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.tick(|| {
            let Progress { request, now, compacting } = progress;
            let doing = if *compacting { ", compacting memory" } else { "" };
            let what = pool_name(request.size, request.node);
            format!("{what}: {now} of {}{doing}", request.target)
        })
    }

    /// Prints `line` if one is due. Breaks if a signal arrived.
    pub fn tick(&mut self, line: impl FnOnce() -> String) -> ControlFlow<()> {
        let due = match self.last_line {
            None => self.began.elapsed() > DELAY,
            Some(last) => last.elapsed() > LINE_INTERVAL,
        };
        if due && !self.quiet {
            self.last_line = Some(Instant::now());
            exit::say(&line());
        }
        if self.signal() == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Returns the interruption flag, for code that waits by itself.
    pub fn asked(&self) -> Interruption {
        self.interrupting.as_ref().map_or_else(Interruption::default, Interrupting::asked)
    }

    fn signal(&self) -> i32 {
        self.interrupting.as_ref().map_or(0, Interrupting::signal)
    }

    /// Returns the signal that interrupted the command, else `done`.
    pub fn end(&self, done: Done) -> Done {
        match self.signal() {
            0 => done,
            signal => Done::Signal(signal),
        }
    }
}
