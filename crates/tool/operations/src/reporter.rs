//! Messages and progress of operations: a program says once where they go. Without a reporter they are dropped.

use std::sync::OnceLock;

/// What shows messages and progress to people.
pub trait Reporter: Send + Sync {
    /// Shows one line.
    fn say(&self, line: &str);

    /// Begins to show progress of one piece of work; in lines now and then where that is all that can be shown and
    /// `as_lines`.
    fn progress(&self, what: &str, as_lines: bool) -> Box<dyn Bar + Send>;
}

/// Progress of one piece of work as it is shown.
pub trait Bar {
    /// Shows that `done` steps of `of` are done; `what` is being done.
    fn tell(&mut self, done: u64, of: Option<u64>, what: &mut dyn FnMut() -> String);

    /// Calls `print` while nothing of the bar is on the screen.
    fn aside(&self, print: &mut dyn FnMut());

    /// Removes it from the screen.
    fn clear(&mut self);
}

static REPORTER: OnceLock<Box<dyn Reporter>> = OnceLock::new();

/// Sets the process's reporter. The first one stays.
pub fn report_to(reporter: impl Reporter + 'static) {
    let _ = REPORTER.set(Box::new(reporter));
}

/// Shows one line.
pub fn say(line: &str) {
    if let Some(reporter) = REPORTER.get() {
        reporter.say(line);
    }
}

/// Progress of one piece of work, or silence.
pub struct Progress {
    bar: Option<Box<dyn Bar + Send>>,
}

impl Progress {
    /// Of steps that are told one by one. Without a terminal, lines now and then: they go into a log.
    pub fn new(quiet: bool, what: &str) -> Self {
        Self::of(quiet, what, true)
    }

    /// Of one pass: without a terminal, nothing.
    pub fn of_pass(quiet: bool, what: &str) -> Self {
        Self::of(quiet, what, false)
    }

    fn of(quiet: bool, what: &str, as_lines: bool) -> Self {
        let reporter = REPORTER.get().filter(|_| !quiet);
        Self { bar: reporter.map(|reporter| reporter.progress(what, as_lines)) }
    }

    /// Shows how far the work is, of how much if that is known, and what is being done.
    pub fn tell(&mut self, done: u64, of: Option<u64>, what: impl FnOnce() -> String) {
        if let Some(bar) = &mut self.bar {
            let mut what = Some(what);
            bar.tell(done, of, &mut || what.take().map(|what| what()).unwrap_or_default());
        }
    }

    /// Prints something else meanwhile: the bar is off the screen until that is done.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        let Some(bar) = &self.bar else { return print() };
        let (mut print, mut printed) = (Some(print), None);
        bar.aside(&mut || printed = print.take().map(|print| print()));
        match (printed, print) {
            (Some(printed), _) => printed,
            (None, Some(print)) => print(),
            (None, None) => unreachable!("`print` was called, and what it returned was kept"),
        }
    }

    /// Removes it from the screen.
    pub fn clear(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.clear();
        }
    }
}
