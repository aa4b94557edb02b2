//! A service under comparison: a server that is started, loaded by a client, and stopped, anew for each run.
//!
//! Only the service gets what an arm says, and only it and what it starts is watched and counted. The phases around
//! it are commands of the shell. A run of it is a [`Session`]:
//!
//! ```text
//! setup -> the service starts -> ready -> prepare -> load (timed) -> the service stops -> teardown
//! ```
//!
//! Service and phases each run below a guard (`sys::guard`), so that nothing of them outlives superpage, and in process
//! groups of their own, so that ^C at the terminal reaches superpage alone, which then stops them in order.

mod error;
mod phase;
mod session;
pub mod words;

use serde::{Deserialize, Serialize};

pub use error::ServiceError;
pub use session::Cpus;
pub(crate) use session::Session;

/// What stands for the port in commands.
pub const PORT: &str = "{port}";
/// And for the directory.
pub const DIRECTORY: &str = "{dir}";

/// How a service is run. Commands are for `sh -c`; the service itself is the command that is compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Before the service.
    pub setup: Option<String>,
    /// Succeeds once the service is ready. `null`: it is when its port accepts connections, or after a moment.
    pub ready: Option<String>,
    /// Between ready and load.
    pub prepare: Option<String>,
    /// What is timed, and prints the figures.
    pub load: String,
    /// Asks the service to stop. `null`: SIGTERM does.
    pub stop: Option<String>,
    /// After the service.
    pub teardown: Option<String>,
    /// Whom service and phases run as. `null`: as superpage.
    pub user: Option<String>,
    /// How long it may take to be ready.
    #[serde(deserialize_with = "units::seconds")]
    pub ready_seconds: f64,
    /// How long it may take to stop.
    #[serde(deserialize_with = "units::seconds")]
    pub stop_seconds: f64,
    /// Where service and load run. `null`: on all CPUs.
    pub cpus: Option<Cpus>,
    /// Whether a port is chosen for each run.
    pub uses_port: bool,
    /// Whether a directory is made for each run.
    pub uses_directory: bool,
    /// The fields of samples that are of the service and what it starts, from its start to its end.
    pub of_service: String,
    /// And those that are of the load.
    pub of_load: String,
}

/// What a run of a service took besides the load, and how it stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Of `setup`.
    #[serde(deserialize_with = "units::seconds")]
    pub setup_seconds: Option<f64>,
    /// From the start of the service until it was ready.
    #[serde(deserialize_with = "units::seconds")]
    pub ready_seconds: f64,
    /// Of `prepare`.
    #[serde(deserialize_with = "units::seconds")]
    pub prepare_seconds: Option<f64>,
    /// From its being asked to stop until it had.
    #[serde(deserialize_with = "units::seconds")]
    pub stop_seconds: f64,
    /// Its port.
    pub port: Option<u16>,
    /// Whether it did not stop when asked, and was killed.
    pub was_killed: bool,
}

impl Phases {
    /// How long the service had run when it was loaded.
    pub fn before_load(&self) -> f64 {
        self.ready_seconds + self.prepare_seconds.unwrap_or(0.0)
    }

    /// What the run took besides the load.
    pub fn seconds(&self) -> f64 {
        self.setup_seconds.unwrap_or(0.0) + self.before_load() + self.stop_seconds
    }
}

impl Service {
    /// In which way it is known to be ready, where no command says so.
    pub fn readiness(&self) -> Option<&'static str> {
        match (&self.ready, self.uses_port) {
            (Some(_), _) => None,
            (None, true) => Some("when its port accepted connections"),
            (None, false) => Some("after one second, which it survived"),
        }
    }

    /// The same with every `mark` in its commands replaced.
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

    /// Its commands by phase, in the order in which they run.
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
