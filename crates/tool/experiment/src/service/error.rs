//! Errors of a service, with the remedy.

use crate::execute::RunError;

/// Why a run of a service returned no sample.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The service did not become ready.
    #[error(
        "the service was not ready after {seconds} s{asked}{said}; try the commands by hand, or raise --ready-timeout"
    )]
    NotReady {
        /// Waiting time in seconds.
        seconds: f64,
        /// Last output of the `ready` command.
        asked: String,
        /// Last output of the service.
        said: String,
    },
    /// The service ended by itself.
    #[error(
        "the service {how} {when}{said}; it must run until it is stopped: try its command by hand"
    )]
    Ended {
        /// Exit code or signal, as text.
        how: String,
        /// Phase in which it ended.
        when: &'static str,
        /// Last output of the service.
        said: String,
    },
    /// The started process has ended, but its descendants still run.
    #[error(
        "the service went into the background ({processes}) and was stopped; keep it in the foreground, e.g. \
         redis-server --daemonize no, nginx -g 'daemon off;', postgres instead of pg_ctl start"
    )]
    Background {
        /// The running processes.
        processes: String,
    },
    /// A phase's command failed.
    #[error("--{phase} {how}{said}; try the command by hand{remedy}")]
    Phase {
        /// The phase.
        phase: &'static str,
        /// Exit code or signal, as text.
        how: String,
        /// Last output of the command.
        said: String,
        /// An additional remedy.
        remedy: &'static str,
    },
    /// No port is available.
    #[error(
        "no free port from 20000 to 29999 for {{port}}: {0}; write a port of your own into the commands"
    )]
    Port(std::io::Error),
    /// The directory could not be created.
    #[error(
        "the directory for {{dir}} cannot be made: {0}; is TMPDIR full, or may it not be written?"
    )]
    Directory(std::io::Error),
    /// The directory could not be removed.
    #[error("the directory for {{dir}}: {0}")]
    Left(sys::scratch::Left),
    /// A shell would split this path.
    #[error(
        "the directory for {{dir}} would be {0}, which a shell would take apart; set TMPDIR to a plain path"
    )]
    Path(std::path::PathBuf),
    /// The shell could not be started.
    #[error("--{0}: the shell `sh` could not be started: {1}; is it along PATH{2}?")]
    Shell(&'static str, std::io::Error, &'static str),
}

impl RunError {
    pub(crate) fn service(arm: &str, source: ServiceError) -> Self {
        Self::Service { arm: arm.to_string(), source }
    }

    pub(crate) fn in_arm(self, arm: &str) -> Self {
        match self {
            Self::Service { source, .. } => Self::service(arm, source),
            error => error,
        }
    }
}

pub(super) fn how(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, code) => format!("exited with code {}", code.unwrap_or(-1)),
    }
}

/// Returns the last three lines of the standard error of `who`, or of its standard output if standard error is empty.
pub(super) fn said(who: &str, stderr: &str, stdout: &str) -> String {
    let is_empty = stderr.trim().is_empty();
    let (stream, text) = if is_empty { ("output", stdout) } else { ("errors", stderr) };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    let last: Vec<String> = last
        .iter()
        .map(|line| line.chars().take(160).filter(|c| !c.is_control()).collect())
        .collect();
    match last.is_empty() {
        true => format!("; {who} printed nothing"),
        false => format!("; last {stream} of {who}: `{}`", last.join(" | ")),
    }
}
