//! pidfds: references to a process that stay valid when its pid is reused.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use units::Pid;

use crate::SysError;
use crate::mem::Advice;

/// A pidfd of a process that was alive when the pidfd was opened.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: Pid,
}

impl PidFd {
    /// `int pidfd_open(pid_t pid, unsigned int flags)`. Linux 5.3. `ESRCH`: no such process.
    pub fn open(pid: Pid) -> Result<Self, SysError> {
        let missing = || SysError::new("pidfd_open", format!("{pid:?}"), rustix::io::Errno::SRCH);
        let raw = rustix::process::Pid::from_raw(pid.0.max(0)).ok_or_else(missing)?;
        let fd = pidfd_open(raw, PidfdFlags::empty())
            .map_err(|errno| SysError::new("pidfd_open", format!("{pid:?}"), errno))?;
        Ok(Self { fd, pid })
    }

    /// `ssize_t process_madvise(int pidfd, const struct iovec *, size_t, int advice, unsigned)`: advises ranges of the
    /// process's memory. Returns the number of bytes advised, which may be less than requested.
    ///
    /// Linux 5.10 (`Collapse` 6.1). For another process the kernel accepts only `WillNeed`, `Cold`, `PageOut` and
    /// `Collapse` (`EINVAL` otherwise), and requires CAP_SYS_NICE and PTRACE_MODE_READ (`EPERM`).
    pub fn advise(&self, ranges: &[Range<u64>], advice: Advice) -> Result<u64, SysError> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: range.start as *mut libc::c_void,
                iov_len: (range.end - range.start) as usize,
            })
            .collect();
        let own = self.pid == crate::param::own_pid();
        assert!(!own, "advice about our own memory goes through `Mapping`, which owns it");
        // SAFETY: the vectors name memory of another process, and the kernel checks them. The four kinds of advice
        // permitted for other processes change how pages are backed, never their contents.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.fd.as_raw_fd(),
                vectors.as_ptr(),
                vectors.len(),
                advice as libc::c_int,
                0,
            )
        };
        u64::try_from(done)
            .map_err(|_| SysError::last("process_madvise", format!("{:?}, {advice:?}", self.pid)))
    }

    /// `int pidfd_getfd(int pidfd, int targetfd, unsigned int flags)`: duplicates the process's descriptor `number`
    /// into this process. Linux 5.6. `EBADF`: no such descriptor. Needs PTRACE_MODE_ATTACH_REALCREDS (`EPERM`).
    pub fn descriptor(&self, number: i32) -> Result<OwnedFd, SysError> {
        let taken = pidfd_getfd(&self.fd, number, PidfdGetfdFlags::empty());
        let whose = || format!("{:?}, {number}", self.pid);
        taken.map_err(|errno| SysError::new("pidfd_getfd", whose(), errno))
    }

    /// Like [`Self::descriptor`], but fails unless /proc/PID/fd shows a userfaultfd. Also needs PTRACE_MODE_READ
    /// (`EACCES`).
    pub fn userfaultfd(&self, number: i32) -> Result<OwnedFd, SysError> {
        let path = format!("/proc/{}/fd/{number}", self.pid);
        match std::fs::read_link(&path) {
            Ok(link) if link.as_os_str() == "anon_inode:[userfaultfd]" => self.descriptor(number),
            Ok(_) => Err(SysError::new("readlink", path, rustix::io::Errno::BADF)),
            Err(error) => Err(SysError::new("readlink", path, error)),
        }
    }
}

/// Whether this process may collapse the memory of its children, tested on a child that only sleeps: `EPERM` without
/// CAP_SYS_NICE, `EINVAL` before Linux 6.1, `ENOSYS` before 5.10.
pub fn may_collapse() -> Result<(), SysError> {
    let own = crate::param::own_pid();
    // SAFETY: the child makes only async-signal-safe calls until it is killed; it ends with this process.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            while libc::getppid() == own.0 {
                libc::pause();
            }
            libc::_exit(0);
        }
        child
    };
    if child < 0 {
        return Err(SysError::last("fork", "a child to try process_madvise on"));
    }
    let pid = Pid(child);
    let tried = PidFd::open(pid).and_then(|fd| fd.advise(&[], Advice::Collapse));
    let _ = crate::signal::send(pid, libc::SIGKILL);
    let _ = crate::wait::until_exit(pid).and_then(|()| crate::wait::reap(pid));
    tried.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_esrch() {
        for pid in [Pid(i32::MAX), Pid(0), Pid(-5)] {
            let error = PidFd::open(pid).unwrap_err();
            assert!([libc::ESRCH, libc::EINVAL].contains(&error.errno()), "{error}");
        }
    }

    #[test]
    fn advice_for_another_process_is_limited_by_the_kernel() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = PidFd::open(Pid(child.id() as i32)).unwrap();
        let range = 0x10000..0x20000;
        let refused = pidfd.advise(std::slice::from_ref(&range), Advice::DontNeed);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = refused.unwrap_err();
        assert!([libc::EINVAL, libc::EPERM].contains(&error.errno()), "{error}");
    }
}
