//! Why an operation failed, as one line, and the kind of failure.

use std::fmt::{self, Display};
use std::io::ErrorKind;

use design::DesignError;
use experiment::execute::RunError;
use experiment::fragment::GoalError;
use host::ReadError;
use host::journal::JournalError;
use host::pool::PoolError;
use host::pool::ensure::WantedError;
use launch::LaunchError;
use record::RecordError;
use trace::TraceError;
use walk_cost::from::FromError;
use walk_cost::live::CountersUnavailable;

/// Why an operation failed.
#[derive(Debug)]
pub struct Failure {
    kind: FailureKind,
    line: String,
    /// Further errors, one line each.
    further: Vec<String>,
}

/// The kind of failure, from which a command makes its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Wrong usage, or an error of superpage.
    Usage,
    /// Not possible on this machine.
    Cannot,
    /// Only root may do it.
    Denied,
    /// A signal arrived before the operation was complete.
    Interrupted(i32),
    /// A launcher did not find the program.
    NotFound,
    /// A launcher cannot execute the program.
    NotExecutable,
    /// Another failure of a launcher.
    Launcher,
}

impl Failure {
    fn new(kind: FailureKind, line: impl Display) -> Self {
        Self { kind, line: line.to_string(), further: Vec::new() }
    }

    /// Creates a failure for wrong usage or an error of superpage.
    pub fn usage(why: impl Display) -> Self {
        Self::new(FailureKind::Usage, why)
    }

    /// Creates a failure from usage errors, one per line. `lines` has at least one.
    pub fn mistakes(lines: impl IntoIterator<Item = String>) -> Self {
        let mut lines = lines.into_iter();
        let line = lines.next().unwrap_or_default();
        Self { further: lines.collect(), ..Self::usage(line) }
    }

    /// Creates a failure for what is not possible on this machine.
    pub fn cannot(why: impl Display) -> Self {
        Self::new(FailureKind::Cannot, why)
    }

    /// Creates the failure that a signal arrived before `what` was complete. The process ends by that signal after its
    /// results are written.
    pub fn interrupted(signal: i32, what: impl Display) -> Self {
        Self::new(FailureKind::Interrupted(signal), format!("{what} was interrupted"))
    }

    /// Creates the failure of a launcher to start a program. Its exit code is reserved for launchers.
    pub fn of_launcher(error: &LaunchError) -> Self {
        let kind = match error {
            LaunchError::ProgramNotFound(_) => FailureKind::NotFound,
            LaunchError::NotExecutable(..) => FailureKind::NotExecutable,
            LaunchError::Start { source, .. } if source.kind() == ErrorKind::NotFound => {
                FailureKind::NotFound
            }
            LaunchError::Start { .. } => FailureKind::NotExecutable,
            _ => FailureKind::Launcher,
        };
        Self::new(kind, error)
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns all lines of the failure.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.line).chain(&self.further).map(String::as_str)
    }

    /// Returns whether the machine or the user's rights are the cause, not wrong usage.
    pub fn is_cannot(&self) -> bool {
        matches!(self.kind, FailureKind::Cannot | FailureKind::Denied)
    }

    /// Returns the same failure with `what` in front of its line.
    pub fn on(self, what: &str) -> Self {
        Self { line: format!("{what}: {}", self.line), ..self }
    }

    /// Returns the same failure, with the exit code that is reserved for launchers.
    pub fn in_launcher(self) -> Self {
        Self { kind: FailureKind::Launcher, ..self }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::ThpOff(_)
            | LaunchError::NoThp
            | LaunchError::ThpAlways
            | LaunchError::ThpSizeOff(_)
            | LaunchError::NoThpSize { .. }
            | LaunchError::LargerThp(..)
            | LaunchError::NoSuperpages
            | LaunchError::NoLibrary
            | LaunchError::LibraryPath(_)
            | LaunchError::NoSuchPool(..)
            | LaunchError::PoolEmpty { .. }
            | LaunchError::InPlaceAlways
            | LaunchError::InPlace(_) => Self::cannot(error),
            _ => Self::usage(error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Launch(error) => error.into(),
            RunError::System(error) => Self::cannot(error),
            RunError::Journal(error) => error.into(),
            error => Self::usage(error),
        }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::cannot(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        if error.is_usage() {
            Self::usage(error)
        } else if error.is_denied() {
            Self::new(FailureKind::Denied, error)
        } else {
            Self::cannot(error)
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        PoolError::from(error).into()
    }
}

impl From<WantedError> for Failure {
    fn from(error: WantedError) -> Self {
        Self::usage(error)
    }
}

impl From<DesignError> for Failure {
    /// Creates a failure with one line per error, in line order.
    fn from(error: DesignError) -> Self {
        match &error {
            // After a TOML syntax error, later errors may be spurious, so report only the first.
            DesignError::File { file, problems } if problems[0].key.is_empty() => {
                let more = match problems.len() {
                    1 => String::new(),
                    count => format!("; and {} more: superpage design check {file}", count - 1),
                };
                Self::usage(format!("{}{more}", problems[0].in_file(file)))
            }
            DesignError::File { file, problems } => {
                Self::mistakes(problems.iter().map(|problem| problem.in_file(file)))
            }
            _ => Self::usage(error),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::usage(error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        if error.is_cannot() { Self::cannot(error) } else { Self::usage(error) }
    }
}

impl From<GoalError> for Failure {
    fn from(error: GoalError) -> Self {
        if error.is_cannot() { Self::cannot(error) } else { Self::usage(error) }
    }
}

impl From<FromError> for Failure {
    fn from(error: FromError) -> Self {
        Self::usage(error)
    }
}

impl From<CountersUnavailable> for Failure {
    fn from(why: CountersUnavailable) -> Self {
        match why {
            CountersUnavailable::NoProcess => Self::usage(why),
            _ => Self::cannot(why),
        }
    }
}
