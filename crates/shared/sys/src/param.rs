//! Parameters of the system and of this process: page size, user, limits, clocks.

use units::PageSize;

/// The base page size (`sysconf(_SC_PAGESIZE)`, from the auxiliary vector).
pub fn page_size() -> PageSize {
    PageSize::new(rustix::param::page_size() as u64)
        .expect("the kernel's page size is a power of two")
}

/// This program's file: `/proc/self/exe`, or if /proc is missing, the path given to exec
/// (`AT_EXECFN`).
pub fn own_executable() -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    std::env::current_exe().ok().or_else(|| {
        let given = std::ffi::OsStr::from_bytes(rustix::param::linux_execfn().to_bytes());
        std::path::absolute(given).ok().filter(|path| path.is_file())
    })
}

/// The effective user id (`geteuid`), to distinguish our files from those of other users. Do not use it to predict
/// whether a call is permitted: try the call.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Soft limit of the main thread's stack in bytes (RLIMIT_STACK); `None`: unlimited.
pub fn stack_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Stack).current
}

/// The pid of this process.
pub fn own_pid() -> units::Pid {
    units::Pid(rustix::process::getpid().as_raw_nonzero().get())
}

/// CPU time used by all threads of a process (`clock_getcpuclockid(3)`, `clock_gettime(2)`). Needs no privilege.
/// `ESRCH`: no such process.
pub fn process_cpu_time(pid: units::Pid) -> Result<std::time::Duration, crate::SysError> {
    let mut clock: libc::clockid_t = 0;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: each call writes only the local that it gets a pointer to.
    let errno = unsafe {
        match libc::clock_getcpuclockid(pid.0, &raw mut clock) {
            0 if libc::clock_gettime(clock, &raw mut now) == 0 => 0,
            0 => libc::ESRCH,
            errno => errno,
        }
    };
    match errno {
        0 => Ok(std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)),
        errno => {
            let error = std::io::Error::from_raw_os_error(errno);
            Err(crate::SysError::new("clock_getcpuclockid", format!("process {pid}"), error))
        }
    }
}

/// CPU time that this thread has used (`clock_gettime(CLOCK_THREAD_CPUTIME_ID)`).
pub fn thread_cpu_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Time of the monotonic clock (`clock_gettime(CLOCK_MONOTONIC)`), which all processes share.
pub fn monotonic_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processes_clock_has_all_of_its_threads_and_ends_with_it() {
        let before = process_cpu_time(own_pid()).unwrap();
        let spent = std::thread::spawn(|| {
            let began = thread_cpu_time();
            while thread_cpu_time() < began + std::time::Duration::from_millis(5) {
                std::hint::spin_loop();
            }
        });
        spent.join().unwrap();
        let after = process_cpu_time(own_pid()).unwrap();
        assert!(after >= before + std::time::Duration::from_millis(5), "{before:?} {after:?}");
        // Larger than any pid (PID_MAX_LIMIT).
        let gone = process_cpu_time(units::Pid(1 << 22)).unwrap_err();
        assert_eq!(gone.errno(), libc::ESRCH);
    }
}
