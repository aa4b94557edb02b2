//! `Request`: what a program asks of the manager, in its environment.
//!
//! A unit file has `Environment=SUPERPAGE_MANAGE=sync-64`; a container has the variable from its manifest or from an
//! annotation. Only rules with `design = "as-requested"` read it. A request names a preset, never a file: the
//! program's owner must not choose what root opens. See docs/decisions/manage.md#3.

use host::{ReadError, Root};
use services::Process;
use units::Pid;

/// The variable in which a program asks for a design.
pub const VARIABLE: &str = "SUPERPAGE_MANAGE";
/// Number of parents within the same cgroup that are asked for a program that overwrote its environment.
const MAX_PARENTS: usize = 8;

/// What a program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The variable is missing or empty.
    None,
    /// Value of the variable.
    Design(String),
    /// The environment could not be read, with the reason.
    Unknown(String),
}

impl Request {
    /// Reads the request of a process from `/proc/PID/environ`, which has the environment as it was at execve. Programs
    /// that set their title (workers of PostgreSQL, for example) overwrite it; without the variable the parents within
    /// the same cgroup are asked, the nearest first.
    pub fn read(root: &Root, process: &Process) -> Self {
        let own = match Self::of(root, process.pid) {
            Ok(Self::None) => Self::None,
            Ok(found) if process.is_running(root) => return found,
            Ok(_) => return Self::Unknown("the process ended".to_string()),
            Err(error) => return Self::Unknown(error.to_string()),
        };
        let mut parent = process.parent;
        for _ in 0..MAX_PARENTS {
            let Ok(Some(above)) = Process::read(root, parent) else { break };
            if above.cgroup != process.cgroup || above.cgroup.is_none() {
                break;
            }
            // A parent that may not be read, or that ended, asks for nothing.
            if let Ok(found @ Self::Design(_)) = Self::of(root, parent) {
                return found;
            }
            parent = above.parent;
        }
        own
    }

    /// Reads the variable of one process.
    fn of(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        Ok(Self::in_environment(&root.read(&format!("/proc/{pid}/environ"))?))
    }

    /// The request in an environment, whose variables end with NUL. The last value counts, as a shell would have it.
    fn in_environment(text: &str) -> Self {
        let value = text.split('\0').rev().find_map(|variable| {
            variable.strip_prefix(VARIABLE).and_then(|rest| rest.strip_prefix('='))
        });
        match value.map(str::trim) {
            None | Some("") => Self::None,
            Some(value) => Self::Design(value.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_found_whole_and_an_empty_one_asks_for_nothing() {
        let asks = |name: &str| Request::Design(name.to_string());
        for (text, expected) in [
            ("", Request::None),
            ("PATH=/bin\0SUPERPAGE_MANAGE=sync-64\0X=1\0", asks("sync-64")),
            ("SUPERPAGE_MANAGE= sync-1 \0", asks("sync-1")),
            // An annotation that the pod does not have.
            ("SUPERPAGE_MANAGE=\0", Request::None),
            ("SUPERPAGE_MANAGER=sync-64\0XSUPERPAGE_MANAGE=sync-64\0", Request::None),
            ("X=SUPERPAGE_MANAGE=sync-64\0", Request::None),
            ("postgres: writer\0\0\0\0   ", Request::None),
        ] {
            assert_eq!(Request::in_environment(text), expected, "{text:?}");
        }
    }

    /// Writes a process into a fake /proc: pid, parent, cgroup, environment (`None`: unreadable).
    fn add(dir: &std::path::Path, pid: i32, parent: i32, cgroup: &str, environ: Option<&str>) {
        let proc = dir.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&proc).unwrap();
        let stat = format!(
            "{pid} (x) S {parent} 1 1 0 -1 0 5 0 0 0 0 0 0 0 20 0 3 0 77 4096 10 0 0 0 0\n"
        );
        std::fs::write(proc.join("stat"), stat).unwrap();
        std::fs::write(proc.join("cmdline"), "x\0").unwrap();
        std::fs::write(proc.join("status"), "Uid:\t0\t33\t0\t0\n").unwrap();
        std::fs::write(proc.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        if let Some(environ) = environ {
            std::fs::write(proc.join("environ"), environ).unwrap();
        }
    }

    #[test]
    fn a_worker_that_overwrote_its_environment_asks_as_its_parent_in_the_same_cgroup() {
        let dir = tempfile::tempdir().unwrap();
        let (unit, other) = ("/system.slice/pg.service", "/system.slice/x.service");
        add(dir.path(), 5, 1, other, Some("SUPERPAGE_MANAGE=sync-1\0"));
        add(dir.path(), 7, 5, unit, Some("SUPERPAGE_MANAGE=sync-64\0"));
        add(dir.path(), 8, 7, unit, Some("postgres: writer\0\0\0"));
        add(dir.path(), 9, 8, unit, Some("SUPERPAGE_MANAGE=async-64\0"));
        add(dir.path(), 10, 5, unit, Some("\0"));
        add(dir.path(), 11, 7, unit, None);
        let root = Root::at(dir.path());
        let asked =
            |pid: i32| Request::read(&root, &Process::read(&root, Pid(pid)).unwrap().unwrap());
        assert_eq!(asked(7), Request::Design("sync-64".to_string()));
        assert_eq!(asked(8), Request::Design("sync-64".to_string()));
        assert_eq!(asked(9), Request::Design("async-64".to_string()));
        // Its parent belongs to another unit.
        assert_eq!(asked(10), Request::None);
        assert!(matches!(asked(11), Request::Unknown(why) if why.contains("environ")));
    }
}
