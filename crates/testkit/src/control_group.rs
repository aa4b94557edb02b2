//! A control group with a limit, for a test that starts a program in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A control group of either version with a limit; it goes with this.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// With `limit` in the file of its controller: the first of `files` in version 1, the second in version 2. `None`: the
    /// machine has no such controller, or we may not make groups. `name` is one that no other test of this process uses.
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

    /// With a limit on memory, in bytes.
    pub fn of_memory(limit: u64, name: &str) -> Option<Self> {
        Self::new("memory", ["memory.limit_in_bytes", "memory.max"], limit, name)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds to a command of `sh` what joins the group and becomes the program whose words are added next.
    pub fn join<'a>(&self, shell: &'a mut Command) -> &'a mut Command {
        shell.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process that has just ended may still be in it, and the kernel moves charges on afterwards.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
