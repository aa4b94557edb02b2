//! Messages and progress of operations. A program sets one reporter; without a reporter, messages are dropped.

use std::sync::OnceLock;

/// Shows messages and progress.
pub trait Reporter: Send + Sync {
    /// Shows one line.
    fn say(&self, line: &str);

    /// Starts a progress display. Without a terminal, it prints occasional lines if `as_lines`, else nothing.
    fn progress(&self, what: &str, as_lines: bool) -> Box<dyn Bar + Send>;
}

/// A progress display of one piece of work.
pub trait Bar {
    /// Shows `done` of `of` steps; `what` describes the current step.
    fn tell(&mut self, done: u64, of: Option<u64>, what: &mut dyn FnMut() -> String);

    /// Calls `print` while the bar is hidden.
    fn aside(&self, print: &mut dyn FnMut());

    /// Removes the display from the screen.
    fn clear(&mut self);
}

static REPORTER: OnceLock<Box<dyn Reporter>> = OnceLock::new();

/// Sets the process's reporter; later calls have no effect.
pub fn report_to(reporter: impl Reporter + 'static) {
    let _ = REPORTER.set(Box::new(reporter));
}

/// Shows one line.
pub fn say(line: &str) {
    if let Some(reporter) = REPORTER.get() {
        reporter.say(line);
    }
}

/// Progress of one piece of work; silent if `quiet`.
pub struct Progress {
    bar: Option<Box<dyn Bar + Send>>,
}

impl Progress {
    /// Starts the progress of separate steps; without a terminal, it prints occasional lines.
    pub fn new(quiet: bool, what: &str) -> Self {
        Self::of(quiet, what, true)
    }

    /// Starts the progress of one pass; without a terminal, it is silent.
    pub fn of_pass(quiet: bool, what: &str) -> Self {
        Self::of(quiet, what, false)
    }

    fn of(quiet: bool, what: &str, as_lines: bool) -> Self {
        let reporter = REPORTER.get().filter(|_| !quiet);
        Self { bar: reporter.map(|reporter| reporter.progress(what, as_lines)) }
    }

    /// Shows the number of steps done, the total if known, and the current step.
    pub fn tell(&mut self, done: u64, of: Option<u64>, what: impl FnOnce() -> String) {
        if let Some(bar) = &mut self.bar {
            let mut what = Some(what);
            bar.tell(done, of, &mut || what.take().map(|what| what()).unwrap_or_default());
        }
    }

    /// Prints other text while the bar is hidden.
    pub fn aside(&self, mut print: impl FnMut()) {
        match &self.bar {
            Some(bar) => bar.aside(&mut print),
            None => print(),
        }
    }

    /// Removes the display from the screen.
    pub fn clear(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.clear();
        }
    }
}
