//! Flags that say which running processes a command is about.

use clap::builder::NonEmptyStringValueParser;
use host::Root;
use operations::Failure;
use regex::Regex;
use services::{SelectError, Selected, Target};
use units::Pid;

/// Selects running processes; several flags add up.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Processes")]
pub struct TargetArgs {
    /// Process; repeatable
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub pid: Vec<Pid>,

    /// Processes of a cgroup and of the groups below it, by its path in /proc/PID/cgroup; repeatable
    #[arg(long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub cgroup: Vec<String>,

    /// Processes of a systemd unit, such as redis.service; repeatable
    #[arg(long, value_name = "UNIT", value_parser = NonEmptyStringValueParser::new())]
    pub unit: Vec<String>,

    /// Processes whose name or command line matches a regular expression; repeatable
    #[arg(long = "match", value_name = "REGEX", value_parser = pattern)]
    pub pattern: Vec<Regex>,
}

/// The same for a command whose arguments are processes: `superpage map 1234`.
#[derive(Debug, clap::Args)]
pub struct ProcessArgs {
    /// Process; same as --pid
    #[arg(value_name = "PID", value_parser = pid)]
    pids: Vec<Pid>,

    #[command(flatten)]
    flags: TargetArgs,
}

impl ProcessArgs {
    /// The targets: the arguments first, then the flags; empty if nothing was given.
    pub fn targets(&self) -> Vec<Target> {
        let pids = self.pids.iter().copied().map(Target::Pid);
        pids.chain(self.flags.targets()).collect()
    }
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
        targets => select(root, targets).map(drop),
    }
}

/// Selects the processes that any of `targets` means.
pub fn select(root: &Root, targets: &[Target]) -> Result<Selected, Failure> {
    services::select(root, targets).map_err(|error| failure(error, services::hides_processes(root)))
}

/// The failure of a selection: a target that means no process is wrong usage, unless the process may be hidden; a /proc
/// that cannot be read is the machine's.
fn failure(error: SelectError, are_hidden: bool) -> Failure {
    let hidden = match &error {
        SelectError::NoSuchProcess(pid) => format!("pid {pid} does not exist or is hidden"),
        SelectError::NoCgroup(path) => format!("no process is in cgroup {path:?}, or it is hidden"),
        SelectError::NoUnit(unit) => {
            format!("no process belongs to unit {unit:?}, or it is hidden")
        }
        SelectError::NoMatch(pattern) => {
            format!("no name and no command line matches {pattern:?}, or the process is hidden")
        }
        SelectError::Read(_) => return Failure::cannot(error),
        SelectError::NoMemory(_) => return Failure::usage(error),
    };
    match are_hidden {
        true => Failure::cannot(format!(
            "{hidden}: /proc is mounted with hidepid; run as its owner or root"
        )),
        false => Failure::usage(error),
    }
}

/// Parses a process id.
pub fn pid(text: &str) -> Result<Pid, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.map(Pid).ok_or_else(|| "expected a process ID above 0".to_string())
}

fn pattern(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("an empty expression matches every process; give `.` to mean that".to_string());
    }
    Regex::new(text).map_err(report::format::regex_reason)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        processes: ProcessArgs,
    }

    #[test]
    fn a_process_that_may_be_hidden_is_no_wrong_usage() {
        let errors: [fn() -> SelectError; 4] = [
            || SelectError::NoSuchProcess(Pid(7)),
            || SelectError::NoCgroup("/x".into()),
            || SelectError::NoUnit("x".into()),
            || SelectError::NoMatch("x".into()),
        ];
        for error in errors {
            let (plain, hidden) = (failure(error(), false), failure(error(), true));
            assert!(!plain.is_cannot() && !plain.to_string().contains("hidepid"), "{plain}");
            assert!(hidden.is_cannot() && hidden.to_string().contains("hidepid"), "{hidden}");
        }
        assert!(!failure(SelectError::NoMemory(Pid(7)), true).is_cannot());
    }

    #[test]
    fn flags_add_up_and_mistakes_say_what_is_expected() {
        let line = "x 5 --pid 7 6 --pid 8 --cgroup /a --unit redis --match ^post";
        let parsed = Line::try_parse_from(line.split(' ')).unwrap();
        let targets = parsed.processes.targets();
        let pids = targets.iter().filter_map(|target| match target {
            Target::Pid(pid) => Some(pid.0),
            _ => None,
        });
        assert_eq!((pids.collect::<Vec<_>>(), targets.len()), (vec![5, 6, 7, 8], 7));
        for (line, expected) in [
            ("x 0", "process ID above 0"),
            ("x --pid 0", "process ID above 0"),
            ("x --match (", "unclosed group"),
        ] {
            let error = Line::try_parse_from(line.split(' ')).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
