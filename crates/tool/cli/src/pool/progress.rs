//! Progress of a change that takes long, on standard error, and the way to stop it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use experiment::execute::Interrupt;
use host::pool::{Progress, pool_name};

use crate::exit::{self, Done, Failure};
use operations::signals::{self, Interrupting, Interruption};

/// A change this quick needs no report.
const SILENT: Duration = Duration::from_secs(2);
/// How often a line is printed after that.
const EVERY: Duration = Duration::from_secs(5);

/// Watches over one change.
pub struct Watcher {
    /// `None`: signals are somebody else's.
    interrupting: Option<Interrupting>,
    began: Instant,
    last_line: Option<Instant>,
    quiet: bool,
}

impl Watcher {
    /// From now on ^C stops the change, so that it is put back, instead of killing us.
    pub fn new(quiet: bool) -> Result<Self, Failure> {
        let interrupting = signals::interrupt_experiment(Arc::new(Interrupt::default()))?;
        Ok(Self { interrupting: Some(interrupting), began: Instant::now(), last_line: None, quiet })
    }

    /// Only tells how far it is: signals are somebody else's.
    pub fn of_progress(quiet: bool) -> Self {
        Self { interrupting: None, began: Instant::now(), last_line: None, quiet }
    }

    /// What `host::pool` calls after every step.
    pub fn step(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.tick(|| {
            let Progress { request, now, compacting } = progress;
            let doing = if *compacting { ", compacting memory" } else { "" };
            let what = pool_name(request.size, request.node);
            format!("{what}: {now} of {}{doing}", request.target)
        })
    }

    /// The same for any other work: tells how far it is, if that is due.
    pub fn tick(&mut self, line: impl FnOnce() -> String) -> ControlFlow<()> {
        let due = match self.last_line {
            None => self.began.elapsed() > SILENT,
            Some(last) => last.elapsed() > EVERY,
        };
        if due && !self.quiet {
            self.last_line = Some(Instant::now());
            exit::say(&line());
        }
        if self.signal() == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Where it stands that a signal came: for a part that waits by itself.
    pub fn asked(&self) -> Interruption {
        self.interrupting.as_ref().map_or_else(Interruption::default, Interrupting::asked)
    }

    fn signal(&self) -> i32 {
        self.interrupting.as_ref().map_or(0, Interrupting::signal)
    }

    /// How the command ends: by the signal that stopped it, or as `done` says.
    pub fn end(&self, done: Done) -> Done {
        match self.signal() {
            0 => done,
            signal => Done::Signal(signal),
        }
    }
}
