//! Realtime tasks that run now.
//!
//! A collapse waits for a kernel thread on each CPU, and its own thread may be preempted while it holds the process's
//! mmap lock: with SCHED_FIFO loops on all CPUs one call took up to a second. See docs/decisions/manage.md#9.

use std::time::{Duration, Instant};

use host::Root;
use host::process::{self, Stat};
use units::Pid;

/// How long the list of realtime tasks is believed.
const RENEW: Duration = Duration::from_secs(10);
/// Tasks of user programs with a realtime policy.
#[derive(Debug)]
pub struct Realtime {
    tasks: Vec<Pid>,
    read_at: Instant,
}

impl Realtime {
    /// Reads the policies of all tasks.
    pub fn new(root: &Root) -> Self {
        Self { tasks: tasks(root), read_at: Instant::now() }
    }

    /// Whether a realtime task is running or waits for a CPU now.
    pub fn is_running(&mut self, root: &Root) -> bool {
        if self.read_at.elapsed() >= RENEW {
            *self = Self::new(root);
        }
        self.tasks.iter().any(|task| process::stat(root, *task).is_ok_and(|it| it.state == 'R'))
    }
}

/// Ids of the threads; `/proc/TID` exists for each, although it is not listed.
fn tasks(root: &Root) -> Vec<Pid> {
    let own = sys::param::own_pid();
    let others = process::pids(root).unwrap_or_default().into_iter().filter(|pid| *pid != own);
    let threads =
        others.flat_map(|pid| root.list(&format!("/proc/{pid}/task")).unwrap_or_default());
    let threads = threads.filter_map(|name| name.parse().ok().map(Pid));
    threads.filter(|task| process::stat(root, *task).is_ok_and(|it| is_meant(&it))).collect()
}

/// Whether a thread is a user program's with a realtime policy. The kernel's own realtime threads run for microseconds.
fn is_meant(stat: &Stat) -> bool {
    stat.mapped > 0 && stat.is_realtime()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use host::process::parse;

    use super::*;

    fn stat(name: &str, size: u64, policy: u32) -> Stat {
        let zeros = |count| "0 ".repeat(count);
        let line = format!("1 ({name}) R {}{size} {}{policy} 0 0\n", zeros(19), zeros(17));
        parse::stat(&line, Path::new("stat")).unwrap()
    }

    #[test]
    fn user_programs_with_a_realtime_policy_count() {
        for (stat, expected) in [
            (stat("x", 4096, 1), true),
            (stat("x", 4096, 2), true),
            (stat("x", 4096, 6), true),
            (stat("x", 4096, 0), false),
            (stat("migration/0", 0, 1), false),
            (stat("a) R 0 (", 4096, 1), true),
        ] {
            assert_eq!(is_meant(&stat), expected, "{stat:?}");
        }
    }

    #[test]
    fn this_machines_tasks_can_be_read() {
        let root = Root::real();
        let own = process::stat(&root, sys::param::own_pid()).unwrap();
        assert!(!is_meant(&own), "{own:?}");
        let text = root.read("/proc/thread-self/stat").unwrap();
        assert_eq!(parse::stat(&text, Path::new("stat")).unwrap().state, 'R');
    }
}
