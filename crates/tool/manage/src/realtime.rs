//! Realtime tasks that run now.
//!
//! A collapse waits for a kernel thread on each CPU, and its own thread may be preempted while it holds the process's
//! mmap lock: with SCHED_FIFO loops on all CPUs one call took up to a second. See docs/decisions/manage.md#9.

use std::time::{Duration, Instant};

use host::Root;
use host::process;

/// How long the list of realtime tasks is believed.
const RENEW: Duration = Duration::from_secs(10);
/// Scheduling policies SCHED_FIFO, SCHED_RR and SCHED_DEADLINE (sched(7)).
const POLICIES: [u32; 3] = [1, 2, 6];

/// Tasks of user programs with a realtime policy.
#[derive(Debug)]
pub struct Realtime {
    tasks: Vec<String>,
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
        let runs =
            |path: &String| root.read(path).is_ok_and(|line| fields(&line).next() == Some("R"));
        self.tasks.iter().any(runs)
    }
}

fn tasks(root: &Root) -> Vec<String> {
    let mut found = Vec::new();
    let own = sys::param::own_pid();
    for pid in process::pids(root).unwrap_or_default().into_iter().filter(|pid| *pid != own) {
        let dir = format!("/proc/{pid}/task");
        for task in root.list(&dir).unwrap_or_default() {
            let path = format!("{dir}/{task}/stat");
            if root.read(&path).is_ok_and(|line| is_realtime(&line)) {
                found.push(path);
            }
        }
    }
    found
}

/// The fields of a line of stat after the name: the state first.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

/// Whether a line of stat is of a task with memory of its own and a realtime policy. The kernel's own realtime threads
/// run for microseconds.
fn is_realtime(line: &str) -> bool {
    let mut fields = fields(line);
    // After the name: state is field 3; vsize 23; policy 41 (proc_pid_stat(5)).
    let has_memory = fields.nth(23 - 3).is_some_and(|size| size != "0");
    let policy = fields.nth(41 - 23 - 1).and_then(|policy| policy.parse().ok());
    has_memory && policy.is_some_and(|policy| POLICIES.contains(&policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, size: u64, policy: u32) -> String {
        let zeros = |count| "0 ".repeat(count);
        format!("1 ({name}) R {}{size} {}{policy} 0 0\n", zeros(19), zeros(17))
    }

    #[test]
    fn user_programs_with_a_realtime_policy_count() {
        for (text, expected) in [
            (line("x", 4096, 1), true),
            (line("x", 4096, 2), true),
            (line("x", 4096, 6), true),
            (line("x", 4096, 0), false),
            (line("migration/0", 0, 1), false),
            (line("a) R 0 (", 4096, 1), true),
            (String::new(), false),
        ] {
            assert_eq!(is_realtime(&text), expected, "{text}");
        }
        assert_eq!(fields(&line("a) S", 1, 0)).next(), Some("R"));
    }

    #[test]
    fn this_machines_tasks_can_be_read() {
        let root = Root::real();
        let own = root.read("/proc/thread-self/stat").unwrap();
        assert!(!is_realtime(&own));
        assert_eq!(fields(&own).next(), Some("R"));
    }
}
