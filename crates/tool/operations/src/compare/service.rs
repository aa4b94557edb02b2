//! `compare --service`: a server that is started, loaded and stopped for each run. Translates flags, or a suite file
//! with the same options, to a [`Service`].

use std::path::PathBuf;

use experiment::service::{Cpus, DIRECTORY, PORT, Service};
use host::Root;
use launch::Word;
use sys::user::User;

use crate::Failure;
use crate::jobs::arms;

/// Service flags of `compare`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Services")]
pub struct ServiceArgs {
    /// Compare a server: the command that starts it, in the foreground. For each run it is started, loaded and stopped.
    /// Only the service gets the arm's pages, and only its CPU time, faults and memory are measured. In this command
    /// and those below, {port} is a free port and {dir} an empty directory, new for each run.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["workload", "command", "predict"], requires = "load")]
    pub service: Option<String>,

    /// Command that loads the service: its time is compared, or the numbers it prints if --metric is given. This and
    /// the commands below are run by `sh -c`.
    #[arg(long, value_name = "COMMAND", requires = "service")]
    pub load: Option<String>,

    /// Command that succeeds once the service is ready; it is repeated until then [default: the service is ready when
    /// {port} accepts connections, or without a {port} after one second].
    #[arg(long, value_name = "COMMAND", requires = "service")]
    pub ready: Option<String>,

    /// How long the service may take to be ready [default: 60s].
    #[arg(long, value_name = "TIME", requires = "service", value_parser = arms::seconds)]
    pub ready_timeout: Option<f64>,

    /// Command before the service is started, such as one that creates a database in {dir}.
    #[arg(long, value_name = "COMMAND", requires = "service")]
    pub setup: Option<String>,

    /// Command before the load, when the service is ready, such as one that fills a database. It is not timed.
    #[arg(long, value_name = "COMMAND", requires = "service")]
    pub prepare: Option<String>,

    /// Command that stops the service [default: SIGTERM is sent to it].
    #[arg(long, value_name = "COMMAND", requires = "service")]
    pub stop: Option<String>,

    /// How long the service may take to stop before it is killed [default: 10s].
    #[arg(long, value_name = "TIME", requires = "service", value_parser = arms::seconds)]
    pub stop_timeout: Option<f64>,

    /// Command after the service has stopped; {dir} is removed after it.
    #[arg(long, value_name = "COMMAND", requires = "service")]
    pub teardown: Option<String>,

    /// Run the service and these commands as USER, in {dir}, which USER owns (root only).
    #[arg(long = "as", value_name = "USER", requires = "service")]
    pub user: Option<String>,

    /// Read these options, --arm and --metric from FILE (TOML), without their dashes: service = "redis-server --port
    /// {port}". FILE:NAME selects one of several entries.
    #[arg(long, value_name = "FILE", conflicts_with_all = OWN)]
    pub suite: Option<PathBuf>,
}

/// Flags that conflict with `--suite`.
const OWN: [&str; 13] = [
    "workload",
    "command",
    "predict",
    "service",
    "load",
    "ready",
    "ready_timeout",
    "setup",
    "prepare",
    "stop",
    "stop_timeout",
    "teardown",
    "user",
];

impl ServiceArgs {
    /// Returns the texts of all commands.
    pub fn texts(&mut self) -> [&mut Option<String>; 7] {
        let Self { service, load, ready, setup, prepare, stop, teardown, .. } = self;
        [service, load, ready, setup, prepare, stop, teardown]
    }

    /// Returns the words of the command that starts the service.
    pub fn words(&self) -> Result<Option<Vec<Word>>, Failure> {
        let Some(text) = &self.service else { return Ok(None) };
        match launch::split_words(text) {
            Some(words) if !words.is_empty() => {
                Ok(Some(words.into_iter().map(Word::from).collect()))
            }
            Some(_) => {
                Err(Failure::usage("--service is empty; give the command that starts a server"))
            }
            None => Err(Failure::usage(format!("--service: unclosed quote in `{text}`"))),
        }
    }

    /// Returns the service's commands and limits, and the user they run as.
    pub fn around(&self) -> Result<Option<(Service, Option<User>)>, Failure> {
        let (Some(service), Some(load)) = (&self.service, &self.load) else { return Ok(None) };
        let user = self.user.as_deref().map(find).transpose()?;
        let mut around = Service {
            setup: self.setup.clone(),
            ready: self.ready.clone(),
            prepare: self.prepare.clone(),
            load: load.clone(),
            stop: self.stop.clone(),
            teardown: self.teardown.clone(),
            user: self.user.clone(),
            ready_seconds: self.ready_timeout.unwrap_or(60.0),
            stop_seconds: self.stop_timeout.unwrap_or(10.0),
            cpus: Cpus::from_root(&Root::real()),
            of_service:
                "user_seconds system_seconds minor_faults major_faults max_rss_bytes memory".into(),
            of_load: "wall_seconds metric more_metrics exit_code signal".into(),
            ..Service::default()
        };
        let uses = |mark: &str| {
            service.contains(mark) || around.commands().any(|(_, text)| text.contains(mark))
        };
        (around.uses_port, around.uses_directory) = (uses(PORT), user.is_some() || uses(DIRECTORY));
        Ok(Some((around, user)))
    }
}

/// Returns the user of `--as`, if this process may switch to that user.
fn find(name: &str) -> Result<User, Failure> {
    let found = User::find(name).map_err(Failure::cannot)?;
    let Some(user) = found else {
        return Err(Failure::usage(format!(
            "--as {name}: there is no such user; see `getent passwd`"
        )));
    };
    match sys::param::effective_user() {
        own if own == 0 || own == user.id => Ok(user),
        _ => Err(Failure::cannot(format!(
            "--as {name}: only root can start programs as another user; run superpage as root, or as {name}"
        ))),
    }
}

/// Splits `NAME=REGEX`, a named metric of a service: the name is a word directly before `=`.
pub fn named(metric: &str) -> Option<(&str, &str)> {
    let (name, regex) = metric.split_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_name);
    (is_word && !regex.is_empty()).then_some((name, regex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_a_name_where_a_word_is_before_its_first_equals_sign() {
        assert_eq!(named(r"p99.9=99\.9% ([0-9.]+)"), Some(("p99.9", r"99\.9% ([0-9.]+)")));
        assert_eq!(named("GET=a=(.*)"), Some(("GET", "a=(.*)")));
        for regex in [r#""GET","([0-9.]+)"#, "tps = ([0-9.]+)", "=x", "x=", "9=x", "a|b=c"] {
            assert_eq!(named(regex), None, "{regex}");
        }
    }

    #[test]
    fn marks_and_users_are_found_in_any_command() {
        let args = |service: &str, load: &str| ServiceArgs {
            service: Some(service.to_string()),
            load: Some(load.to_string()),
            ..ServiceArgs::default()
        };
        let marks = |args: ServiceArgs| {
            let (around, _) = args.around().expect("no user is asked for").expect("a service");
            (around.uses_port, around.uses_directory)
        };
        assert_eq!(marks(args("a", "b")), (false, false));
        assert_eq!(marks(args("a -p {port}", "b")), (true, false));
        assert_eq!(marks(args("a", "b {port} {dir}/x")), (true, true));
        assert_eq!(args("a 'b c'", "").words().unwrap().unwrap(), ["a", "b c"]);
        assert!(args("a 'b", "").words().is_err() && args(" ", "").words().is_err());
        let nobody = ServiceArgs { user: Some("no such user".into()), ..args("a", "b") };
        assert!(nobody.around().unwrap_err().to_string().contains("no such user"));
    }
}
