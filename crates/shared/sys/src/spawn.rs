//! Setup of a child process between fork and exec.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use crate::affinity;
use crate::prctl::{self, ThpControl};
use crate::signal;
use crate::user::User;

/// Attributes of the child that are set before exec. By default, none.
#[derive(Clone, Debug, Default)]
pub struct ChildSetup {
    /// THP control, inherited across exec and fork; `None`: unchanged.
    pub thp: Option<ThpControl>,
    /// Whether to kill the child when the thread that started it exits, so that a killed experiment leaves no
    /// processes.
    pub die_with_parent: bool,
    /// Soft stack limit in bytes. The limit is raised to this value, at most to the hard limit;
    /// `None`: unchanged.
    pub stack: Option<u64>,
    /// CPU affinity; empty: unchanged.
    pub cpus: Vec<usize>,
    /// Whether the child leads its own process group, so that signals from the terminal (^C) do not reach it.
    pub own_group: bool,
    /// The user to switch to.
    pub user: Option<User>,
    /// A descriptor to duplicate to this number; inherited across exec and fork.
    pub descriptor: Option<(Arc<OwnedFd>, i32)>,
}

/// A descriptor number that a program is unlikely to use itself: near the limit of open files, and below 1024
/// (FD_SETSIZE of `select(2)`).
pub fn high_descriptor() -> i32 {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    // Keep a few higher numbers free.
    most.unwrap_or(1024).min(1024).saturating_sub(8) as i32
}

/// Makes `command` apply `setup` in the child before exec. If the setup fails, `spawn` fails with its errno.
///
/// The child also ignores the signals (SIGPIPE, SIGCHLD) that were ignored when this process started.
pub fn prepare(command: &mut Command, setup: ChildSetup) {
    let ignored = signal::inherited_ignored_signals();
    let parent = crate::param::own_pid();
    let cpus = (!setup.cpus.is_empty()).then(|| affinity::set_of(&setup.cpus));
    // SAFETY: only async-signal-safe calls are allowed between fork and exec: prctl, getppid and the others are plain
    // system calls. Only the description of an error allocates memory, and glibc makes its allocator usable after fork
    // even if another thread held the lock.
    unsafe {
        command.pre_exec(move || {
            for signal in &ignored {
                libc::signal(*signal, libc::SIG_IGN);
            }
            if let Some(control) = setup.thp {
                prctl::set_thp(control).map_err(|error| error.source)?;
            }
            if let Some(bytes) = setup.stack {
                raise_stack_limit(bytes)?;
            }
            if let Some(cpus) = &cpus {
                affinity::restrict(cpus)?;
            }
            if setup.own_group && libc::setpgid(0, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            if let Some((descriptor, number)) = &setup.descriptor
                && libc::dup2(descriptor.as_raw_fd(), *number) < 0
            {
                return Err(std::io::Error::last_os_error());
            }
            if let Some(user) = &setup.user {
                user.become_user()?;
            }
            if setup.die_with_parent {
                let kill: libc::c_ulong = libc::SIGKILL as libc::c_ulong;
                if libc::prctl(libc::PR_SET_PDEATHSIG, kill) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                if libc::getppid() != parent.0 {
                    return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
            Ok(())
        });
    }
}

/// Raises RLIMIT_STACK up to the hard limit, and never lowers it. Callers that need the full limit must read it back.
fn raise_stack_limit(bytes: u64) -> std::io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a pointer to a live local, which the kernel fills and reads.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_STACK, &mut limit) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let wanted = bytes.min(limit.rlim_max);
        if limit.rlim_cur >= wanted {
            return Ok(());
        }
        limit.rlim_cur = wanted;
        match libc::setrlimit(libc::RLIMIT_STACK, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thp_enabled_in_child(thp: ThpControl) -> String {
        let mut command = Command::new("grep");
        command.args(["-h", "^THP_enabled:", "/proc/self/status"]);
        let setup = ChildSetup { thp: Some(thp), die_with_parent: true, ..ChildSetup::default() };
        prepare(&mut command, setup);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn thp_control_survives_exec() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        testkit::require!(
            status.contains("\nTHP_enabled:"),
            "the kernel does not tell (Linux 5.0)"
        );
        assert_eq!(thp_enabled_in_child(ThpControl::Disabled).split_whitespace().last(), Some("0"));
    }

    #[test]
    fn a_missing_program_is_enoent() {
        let mut command = Command::new("/no/such/program");
        prepare(&mut command, ChildSetup::default());
        assert_eq!(command.spawn().unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_child_runs_on_the_cpus_that_it_was_given_in_a_group_of_its_own() {
        let cpu = *affinity::allowed().unwrap().last().unwrap();
        let mut command = Command::new("sh");
        let script =
            "grep ^Cpus_allowed_list: /proc/self/status; echo $$; cut -d' ' -f5 /proc/$$/stat";
        command.args(["-c", script]);
        let setup = ChildSetup { cpus: vec![cpu], own_group: true, ..ChildSetup::default() };
        prepare(&mut command, setup);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0].split_whitespace().last(), Some(cpu.to_string().as_str()), "{said}");
        assert_eq!(lines[1], lines[2], "{said}");
    }
}
