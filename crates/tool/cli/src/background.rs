//! Processes that still run when a launched program ends: a daemon goes into the background, and its first process exits.
//!
//! This process becomes the subreaper of its descendants, so that daemons stay below it until it ends.

use std::time::Duration;

use experiment::process_tree::ProcessTree;
use host::Root;
use host::process::Stat;
use sys::SysError;
use units::Pid;

/// The descendants of this process that are started from now on.
#[derive(Clone, Debug)]
pub struct Descendants(ProcessTree);

/// A process that still runs after the program that started it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its pid.
    pub pid: Pid,
    /// Its name, at most 15 bytes.
    pub name: String,
}

impl Descendants {
    /// Makes this process the subreaper. Call it before the program is started.
    ///
    /// # Errors
    /// The kernel refuses (before Linux 3.4).
    pub fn new() -> Result<Self, SysError> {
        sys::prctl::become_subreaper()?;
        Ok(Self(ProcessTree::below_us(Root::real())))
    }

    /// The descendants that are alive.
    pub fn members(&self) -> Vec<Pid> {
        self.0.members()
    }

    /// Blocks until the child `pid` has exited, and does not reap it. Reaps other children, as the first process would:
    /// a script may wait until a daemon's pid is gone.
    ///
    /// # Errors
    /// `pid` is not a child of this process.
    pub fn until_exit(&self, pid: Pid) -> Result<(), SysError> {
        const PAUSE: Duration = Duration::from_millis(50);
        while sys::wait::has_ended_within(pid, PAUSE) == Some(false) {
            sys::wait::reap_others(pid);
        }
        sys::wait::until_exit(pid)
    }

    /// The descendants that still run, without the child `pid`, which has ended. Waits for at most 0.2 s for those that
    /// end now.
    pub fn left(&self, pid: Pid) -> Vec<Left> {
        const PAUSE: Duration = Duration::from_millis(20);
        let is_left = |(one, stat): &(Pid, Stat)| *one != pid && !stat.is_dead();
        let mut left = Vec::new();
        for _ in 0..10 {
            left = self.0.processes();
            left.retain(is_left);
            if left.is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        left.into_iter().map(|(pid, stat)| Left { pid, name: stat.name }).collect()
    }
}

/// Formats that the program went into the background, with the processes that run and a remedy. `reads`: the words that
/// read a running process, before its pid. `None` if nothing is left.
pub fn words(left: &[Left], reads: &str) -> Option<String> {
    const MOST: usize = 4;
    let first = left.first()?;
    let named = |one: &Left| format!("{} ({})", one.pid, report::format::name(&one.name, 20));
    let mut pids: Vec<String> = left.iter().take(MOST).map(named).collect();
    if left.len() > MOST {
        pids.push(format!("{} more", left.len() - MOST));
    }
    let (noun, verb) = match left.len() {
        1 => ("process", "runs"),
        _ => ("processes", "run"),
    };
    let foreground = match first.name.as_str() {
        "redis-server" | "valkey-server" => "with --daemonize no",
        "nginx" => "with -g 'daemon off;'",
        _ => "with its option that keeps it in the foreground",
    };
    Some(format!(
        "the program went into the background, and {noun} {} still {verb}; {reads} {}, or start the program {foreground}",
        pids.join(", "),
        first.pid
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named_with_a_remedy() {
        let left = |pid, name: &str| Left { pid: Pid(pid), name: name.to_string() };
        assert_eq!(words(&[], "give --pid"), None);
        let one = words(&[left(7, "redis-server")], "give --pid").unwrap_or_default();
        assert!(one.contains("process 7 (redis-server) still runs; give --pid 7"), "{one}");
        assert!(one.ends_with("--daemonize no"), "{one}");
        let many: Vec<Left> = (1..7).map(|pid| left(pid, "a\u{1b}b")).collect();
        let many = words(&many, "give --pid").unwrap_or_default();
        assert!(many.contains("4 (a\\u{1b}b), 2 more still run;"), "{many}");
        assert!(!many.contains('\u{1b}'), "{many}");
    }
}
