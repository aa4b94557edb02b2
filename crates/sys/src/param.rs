//! What the kernel says of itself to every process.

use units::PageSize;

/// The base page size (`sysconf(_SC_PAGESIZE)`, from the auxiliary vector).
pub fn page_size() -> PageSize {
    PageSize::new(rustix::param::page_size() as u64)
        .expect("the kernel's page size is a power of two")
}

/// This program's file: `/proc/self/exe`, or what the kernel was given to execute (`AT_EXECFN`) where /proc is not
/// mounted.
pub fn own_executable() -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    std::env::current_exe().ok().or_else(|| {
        let given = std::ffi::OsStr::from_bytes(rustix::param::linux_execfn().to_bytes());
        std::path::absolute(given).ok().filter(|path| path.is_file())
    })
}

/// The effective user id (`geteuid`): to tell a file of our own from another's. Whether a call is
/// allowed is found by trying it.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// This process.
pub fn own_pid() -> units::Pid {
    units::Pid(rustix::process::getpid().as_raw_nonzero().get())
}

/// CPU time this thread has used (`clock_gettime(CLOCK_THREAD_CPUTIME_ID)`).
pub fn thread_cpu_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The clock that does not jump (`clock_gettime(CLOCK_MONOTONIC)`), which other processes read too.
pub fn monotonic_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
