//! Sending signals, ignored signals, and terminating by a signal.

use std::sync::atomic::{AtomicBool, Ordering};

use units::Pid;

use crate::SysError;

/// `int kill(pid_t pid, int sig)` to one process; never to a process group or to all processes.
pub fn send(pid: Pid, signal: i32) -> Result<(), SysError> {
    assert!(pid.0 > 0, "{pid:?} is no single process");
    // SAFETY: all arguments are numbers.
    match unsafe { libc::kill(pid.0, signal) } {
        0 => Ok(()),
        _ => Err(SysError::last("kill", format!("{pid:?} with signal {signal}"))),
    }
}

/// `int kill(pid_t pid, int sig)` with a negative pid: sends a signal to all processes of a process group. `ESRCH`: it has
/// none.
pub fn send_to_group(group: Pid, signal: i32) -> Result<(), SysError> {
    // -1 is every process.
    assert!(group.0 > 1, "{group:?} is no process group of a program");
    // SAFETY: all arguments are numbers.
    match unsafe { libc::kill(-group.0, signal) } {
        0 => Ok(()),
        _ => Err(SysError::last("kill", format!("group {group:?} with signal {signal}"))),
    }
}

/// Whether this process ignores `signal` (`sigaction(2)`): `nohup` and shells start programs with some signals ignored,
/// and expect the signals to stay ignored.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: with a null new action the call only queries. The old action is a live local, for which all zeroes is
    // valid.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether SIGPIPE was ignored before Rust's runtime ignored it (systemd starts services with SIGPIPE ignored).
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_RUNTIME: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Returns the signals that were ignored when this process started; its children must ignore them too. Call this in the
/// process that starts a child, because it resets SIGCHLD to the default in the calling process. (A process that
/// ignores SIGCHLD cannot wait for its children.)
pub fn inherited_ignored_signals() -> Vec<i32> {
    static CHILDREN_WERE_IGNORED: AtomicBool = AtomicBool::new(false);
    if is_ignored(libc::SIGCHLD) {
        CHILDREN_WERE_IGNORED.store(true, Ordering::Relaxed);
        // SAFETY: the default handler takes no pointer.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    let both =
        [(libc::SIGPIPE, &PIPE_WAS_IGNORED), (libc::SIGCHLD, &CHILDREN_WERE_IGNORED)].into_iter();
    both.filter(|(_, was)| was.load(Ordering::Relaxed)).map(|(signal, _)| signal).collect()
}

/// Terminates this process by `signal` without a core file, so that the parent sees the same wait status as the
/// program's. Returns only if the signal does not terminate the process.
pub fn die_by(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a live local; the default handler takes no pointer; raise is always
    // safe to call.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
