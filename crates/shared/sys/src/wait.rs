//! Waiting for children, with their resource usage.

use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use units::{ByteSize, Pid};

use crate::SysError;

/// Resource usage of an exited child and of all descendants that were waited for (`getrusage(2)`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Number of page faults that needed no I/O.
    pub minor_faults: u64,
    /// Number of page faults that needed I/O.
    pub major_faults: u64,
    /// The largest peak RSS of these processes in bytes, without hugetlb pages.
    pub max_rss: ByteSize,
    /// Number of context switches because a thread blocked.
    pub voluntary_switches: u64,
    /// Number of context switches by preemption.
    pub involuntary_switches: u64,
}

/// Blocks until `pid`, a child of this process, has exited. The child stays a zombie until `reap`, so its pid is not
/// reused and its `/proc` entry stays. `waitid(P_PID, WEXITED|WNOWAIT)`.
pub fn until_exit(pid: Pid) -> Result<(), SysError> {
    loop {
        // SAFETY: an all-zero siginfo is a valid value, and the kernel fills it.
        let code = unsafe {
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            libc::waitid(libc::P_PID, pid.0 as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        match code {
            0 => return Ok(()),
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => return Err(SysError::last("waitid", format!("{pid:?}"))),
        }
    }
}

/// Like [`until_exit`], but waits for at most `time` and returns whether the child has exited. Uses `poll(2)` on a
/// pidfd; `None` if the kernel has no pidfds (before Linux 5.3).
pub fn has_ended_within(pid: Pid, time: Duration) -> Option<bool> {
    let process = rustix::process::Pid::from_raw(pid.0)?;
    let flags = rustix::process::PidfdFlags::empty();
    let fd = rustix::process::pidfd_open(process, flags).ok()?;
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    poll(std::slice::from_mut(&mut polled), time);
    Some(polled.revents != 0)
}

/// Calls `poll(2)`, and repeats it after signals until `time` has passed. Callers check for signals between calls.
fn poll(polled: &mut [libc::pollfd], time: Duration) {
    let began = Instant::now();
    loop {
        // Round up, because a timeout of 0 would busy-wait during the last fraction of a
        // millisecond.
        let left = time.saturating_sub(began.elapsed()).as_micros().div_ceil(1000);
        let (count, most) = (polled.len() as libc::nfds_t, left.min(i32::MAX as u128) as i32);
        // SAFETY: the slice holds `count` descriptors and outlives the call.
        let code = unsafe { libc::poll(polled.as_mut_ptr(), count, most) };
        if code >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// Waits until one of `pids` has exited, for at most `time`. Returns the index of the first such pid, and does not reap
/// it. Uses `poll(2)` on pidfds.
///
/// # Errors
/// A process does not exist, or the kernel has no pidfds (before Linux 5.3).
pub fn first_ended(pids: &[Pid], time: Duration) -> Result<Option<usize>, SysError> {
    let open = |pid: &Pid| {
        let process = rustix::process::Pid::from_raw(pid.0).ok_or(rustix::io::Errno::SRCH)?;
        rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())
    };
    let mut opened = Vec::new();
    for pid in pids {
        let fd =
            open(pid).map_err(|errno| SysError::new("pidfd_open", format!("{pid:?}"), errno))?;
        opened.push(fd);
    }
    let events = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = opened.iter().map(|fd| events(fd.as_raw_fd())).collect();
    poll(&mut polled, time);
    Ok(polled.iter().position(|one| one.revents != 0))
}

/// `pid_t wait4(pid_t pid, int *status, int options, struct rusage *)`: reaps an exited child.
pub fn reap(pid: Pid) -> Result<(ExitStatus, Usage), SysError> {
    let done = wait4(pid.0, 0)?;
    done.map(|(_, status, usage)| (status, usage))
        .ok_or_else(|| SysError::new("wait4", format!("{pid:?}"), rustix::io::Errno::CHILD))
}

/// Reaps one exited child, if there is one (`wait4(-1, WNOHANG)`). Returns its pid and resource
/// usage.
pub fn reap_any() -> Result<Option<(Pid, Usage)>, SysError> {
    match wait4(-1, libc::WNOHANG) {
        Ok(done) => Ok(done.map(|(pid, _, usage)| (pid, usage))),
        Err(error) if error.errno() == libc::ECHILD => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reaps exited children until none is left, or until the next one is `but`.
pub fn reap_others(but: Pid) {
    loop {
        // SAFETY: an all-zero siginfo is a valid value, and the kernel fills it; its pid is that of a child, or 0.
        let ended = unsafe {
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            match libc::waitid(libc::P_ALL, 0, &mut info, options) {
                0 => info.si_pid(),
                _ => 0,
            }
        };
        if ended == 0 || ended == but.0 || wait4(ended, libc::WNOHANG).is_err() {
            return;
        }
    }
}

fn wait4(pid: i32, options: i32) -> Result<Option<(Pid, ExitStatus, Usage)>, SysError> {
    let mut status = 0;
    loop {
        // SAFETY: both pointers are to live locals; an all-zero rusage is a valid value.
        let (done, usage) = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            (libc::wait4(pid, &mut status, options, &mut usage), usage)
        };
        match done {
            0 => return Ok(None),
            done if done > 0 => {
                return Ok(Some((Pid(done), ExitStatus::from_raw(status), usage_from(&usage))));
            }
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => return Err(SysError::last("wait4", format!("pid {pid}"))),
        }
    }
}

fn usage_from(raw: &libc::rusage) -> Usage {
    let time =
        |value: libc::timeval| Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000);
    Usage {
        user: time(raw.ru_utime),
        system: time(raw.ru_stime),
        minor_faults: raw.ru_minflt as u64,
        major_faults: raw.ru_majflt as u64,
        max_rss: ByteSize::kib(raw.ru_maxrss as u64),
        voluntary_switches: raw.ru_nvcsw as u64,
        involuntary_switches: raw.ru_nivcsw as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    #[allow(clippy::zombie_processes, reason = "reaped by the function under test")]
    fn an_ended_child_stays_until_it_is_reaped() {
        let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pid = Pid(child.id() as i32);
        let second = Command::new("sleep").arg("60").spawn().unwrap();
        let both = [Pid(second.id() as i32), pid];
        assert_eq!(first_ended(&both, Duration::from_secs(60)).unwrap(), Some(1));
        assert_eq!(first_ended(&both[..1], Duration::from_millis(1)).unwrap(), None);
        crate::signal::send(both[0], libc::SIGKILL).unwrap();
        reap(both[0]).unwrap();
        until_exit(pid).unwrap();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        let (status, usage) = reap(pid).unwrap();
        assert_eq!(status.code(), Some(7));
        assert!(usage.minor_faults > 0 && usage.max_rss > ByteSize(0), "{usage:?}");
        assert_eq!(reap(pid).unwrap_err().errno(), libc::ECHILD);
    }
}
