//! A cgroup with a limit, for tests that start a program in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cgroup (version 1 or 2) with a limit, removed on drop.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Makes a cgroup and writes `limit` to a file of its controller: the first of `files` in version 1, the second in
    /// version 2. `None` if the machine has no such controller or we may not make cgroups. `name` must be unique among
    /// the tests of this process.
    pub fn new(controller: &str, files: [&str; 2], limit: u64, name: &str) -> Option<Self> {
        let top = PathBuf::from("/sys/fs/cgroup");
        let [first, unified] = files;
        let (parent, file) = match top.join(controller) {
            parent if parent.is_dir() => (parent, first),
            _ => {
                let given = std::fs::read_to_string(top.join("cgroup.subtree_control")).ok()?;
                given.split_whitespace().any(|one| one == controller).then_some((top, unified))?
            }
        };
        let group = Self(parent.join(format!("superpage-test-{}-{name}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join(file), limit.to_string()).ok()?;
        Some(group)
    }

    /// Makes a cgroup with a memory limit in bytes.
    pub fn of_memory(limit: u64, name: &str) -> Option<Self> {
        Self::new("memory", ["memory.limit_in_bytes", "memory.max"], limit, name)
    }

    /// The cgroup's directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds arguments to an `sh` command so that it joins the cgroup and then execs a program. Append the program and
    /// its arguments afterwards.
    pub fn join<'a>(&self, shell: &'a mut Command) -> &'a mut Command {
        shell.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Retry: a process that has just ended may still be in the cgroup for a moment.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
