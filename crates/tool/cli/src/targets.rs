//! Flags that say which running processes a command is about.

use host::Root;
use operations::Failure;
use regex::Regex;
use services::{SelectError, Target};
use units::Pid;

/// Which running processes are meant; together they add up.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Processes")]
pub struct TargetArgs {
    /// Process; repeatable
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub pid: Vec<Pid>,

    /// Processes of a cgroup and of the groups below it, by its path in /proc/PID/cgroup; repeatable
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<String>,

    /// Processes of a systemd unit, such as redis.service; repeatable
    #[arg(long, value_name = "UNIT")]
    pub unit: Vec<String>,

    /// Processes whose name or command line matches a regular expression; repeatable
    #[arg(long = "match", value_name = "REGEX", value_parser = pattern)]
    pub pattern: Vec<Regex>,
}

impl TargetArgs {
    /// The targets, in the order of the flags above; empty if no flag was given.
    pub fn targets(&self) -> Vec<Target> {
        let pids = self.pid.iter().copied().map(Target::Pid);
        let cgroups = self.cgroup.iter().cloned().map(Target::Cgroup);
        let units = self.unit.iter().cloned().map(Target::Unit);
        let patterns = self.pattern.iter().cloned().map(Target::Match);
        pids.chain(cgroups).chain(units).chain(patterns).collect()
    }
}

/// Fails if one of `targets` means no process now.
pub fn check(root: &Root, targets: &[Target]) -> Result<(), Failure> {
    match targets {
        [] => Ok(()),
        targets => services::select(root, targets).map(drop).map_err(failure),
    }
}

/// The failure of a selection: a target that means no process is wrong usage; a /proc that cannot be read is the machine's.
pub fn failure(error: SelectError) -> Failure {
    match error {
        SelectError::Read(error) => Failure::cannot(error),
        error => Failure::usage(error),
    }
}

/// Parses a process id.
pub fn pid(text: &str) -> Result<Pid, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.map(Pid).ok_or_else(|| "expected a process ID above 0".to_string())
}

fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        let message = error.to_string();
        message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        targets: TargetArgs,
    }

    #[test]
    fn flags_add_up_and_mistakes_say_what_is_expected() {
        let line = "x --pid 7 --pid 8 --cgroup /a --unit redis --match ^post";
        let parsed = Line::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(parsed.targets.targets().len(), 5);
        for (line, expected) in
            [("x --pid 0", "process ID above 0"), ("x --match (", "unclosed group")]
        {
            let error = Line::try_parse_from(line.split(' ')).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
