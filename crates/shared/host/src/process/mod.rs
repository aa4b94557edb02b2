//! Processes: their ancestry, their memory, and their mappings as streams.
//!
//! A process may end while its files are read: see [`crate::ReadError::is_gone`].

mod maps;
mod mounts;
mod stat;
mod tree;

use units::Pid;

pub use maps::{Device, Mapping, Maps, Sharing};
pub use maps::{Resident, resident, status};
pub use maps::{Smaps, SmapsEntry};
pub use mounts::MemoryMounts;
pub use stat::{KeptLoad, KeptStatus, Load};
pub use stat::{Stat, is_running, own_stat, stat};
pub use tree::{pids, tree, tree_with_stat};

/// Whether a process has a userfaultfd. Needs PTRACE_MODE_READ.
///
/// # Errors
/// Its descriptors cannot be listed.
pub fn has_userfaultfd(root: &crate::Root, pid: Pid) -> Result<bool, crate::ReadError> {
    let dir = format!("/proc/{pid}/fd");
    let is_one = |name: String| {
        let link = std::fs::read_link(root.path(&format!("{dir}/{name}")));
        link.is_ok_and(|link| link.to_string_lossy().contains("userfaultfd"))
    };
    Ok(root.list(&dir)?.into_iter().any(is_one))
}

/// Whether this process is in the initial pid namespace, where it can see every process (PROC_PID_INIT_INO of
/// linux/proc_ns.h).
pub fn is_in_first_namespace(root: &crate::Root) -> bool {
    let link = std::fs::read_link(root.path("/proc/self/ns/pid"));
    link.is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// The parsers alone, for fuzzing and for text that was read already.
pub mod parse {
    pub use super::maps::parse as status;
    pub use super::maps::parse_line as maps_line;
    pub use super::mounts::parse as mountinfo;
    pub use super::stat::parse as stat;
}
