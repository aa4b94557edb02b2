//! Compares a service: a server that is started, loaded by a client, and stopped in each run.
//!
//! An arm's configuration applies only to the service, and only the service and its descendants are watched and
//! counted. The other phases are shell commands. A run is a `Session`:
//!
//! ```text
//! setup -> the service starts -> ready -> prepare -> load (timed) -> the service stops -> teardown
//! ```
//!
//! Service and phases each run below a guard (`sys::guard`), so that none of their processes outlives superpage. They
//! have their own process groups: ^C at the terminal reaches only superpage, which then stops them in order.

mod error;
mod phase;
mod session;
pub mod words;

use serde::{Deserialize, Serialize};

pub use error::ServiceError;
pub use session::Cpus;
pub(crate) use session::Session;

/// Placeholder for the port in commands.
pub const PORT: &str = "{port}";
/// Placeholder for the directory in commands.
pub const DIRECTORY: &str = "{dir}";

/// Configuration of a service. Commands are for `sh -c`; the service itself is the compared command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Command before the service starts.
    pub setup: Option<String>,
    /// Command that succeeds once the service is ready. `null`: it is ready when its port accepts connections, or after
    /// a moment.
    pub ready: Option<String>,
    /// Command between ready and load.
    pub prepare: Option<String>,
    /// The timed command, which prints the metrics.
    pub load: String,
    /// Command that stops the service. `null`: SIGTERM stops it.
    pub stop: Option<String>,
    /// Command after the service has stopped.
    pub teardown: Option<String>,
    /// User who runs service and phases. `null`: the user of superpage.
    pub user: Option<String>,
    /// Maximum seconds to become ready.
    #[serde(deserialize_with = "units::seconds")]
    pub ready_seconds: f64,
    /// Maximum seconds to stop.
    #[serde(deserialize_with = "units::seconds")]
    pub stop_seconds: f64,
    /// CPUs of service and load. `null`: all CPUs.
    pub cpus: Option<Cpus>,
    /// Whether a port is chosen for each run.
    pub uses_port: bool,
    /// Whether a directory is created for each run.
    pub uses_directory: bool,
    /// The sample fields that describe the service and its descendants, from its start to its end.
    pub of_service: String,
    /// The sample fields that describe the load.
    pub of_load: String,
}

/// Times of a run's phases other than the load, and how the service stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Duration of `setup` in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub setup_seconds: Option<f64>,
    /// Seconds from the start of the service until it was ready.
    #[serde(deserialize_with = "units::seconds")]
    pub ready_seconds: f64,
    /// Duration of `prepare` in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub prepare_seconds: Option<f64>,
    /// Seconds from the stop request until the service had stopped.
    #[serde(deserialize_with = "units::seconds")]
    pub stop_seconds: f64,
    /// Port of the service.
    pub port: Option<u16>,
    /// Whether the service did not stop on request, and was killed.
    pub was_killed: bool,
}

impl Phases {
    /// Returns the seconds that the service had run before the load.
    pub fn before_load(&self) -> f64 {
        self.ready_seconds + self.prepare_seconds.unwrap_or(0.0)
    }

    /// Returns the seconds of the run without the load.
    pub fn seconds(&self) -> f64 {
        self.setup_seconds.unwrap_or(0.0) + self.before_load() + self.stop_seconds
    }
}

impl Service {
    /// Says how readiness is detected without a command.
    pub fn readiness(&self) -> Option<&'static str> {
        match (&self.ready, self.uses_port) {
            (Some(_), _) => None,
            (None, true) => Some("when its port accepted connections"),
            (None, false) => Some("after one second, which it survived"),
        }
    }

    /// Replaces every `mark` in the commands by `text`.
    pub fn replacing(mut self, mark: &str, text: &str) -> Self {
        let optional = [
            &mut self.setup,
            &mut self.ready,
            &mut self.prepare,
            &mut self.stop,
            &mut self.teardown,
        ];
        for command in optional.into_iter().flatten().chain([&mut self.load]) {
            *command = command.replace(mark, text);
        }
        self
    }

    /// Returns the commands by phase, in the order of execution.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("setup", self.setup.as_deref()),
            ("ready", self.ready.as_deref()),
            ("prepare", self.prepare.as_deref()),
            ("load", Some(self.load.as_str())),
            ("stop", self.stop.as_deref()),
            ("teardown", self.teardown.as_deref()),
        ];
        all.into_iter().filter_map(|(name, command)| Some((name, command?)))
    }
}
