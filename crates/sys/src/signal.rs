//! Sending signals, and dying by one.

use units::Pid;

use crate::SysError;

/// `int kill(pid_t pid, int sig)` to one process; never to a group or to everybody.
pub fn send(pid: Pid, signal: i32) -> Result<(), SysError> {
    assert!(pid.0 > 0, "{pid:?} is no single process");
    // SAFETY: integers only.
    match unsafe { libc::kill(pid.0, signal) } {
        0 => Ok(()),
        _ => Err(SysError::last("kill", format!("{pid:?} with signal {signal}"))),
    }
}

/// Whether this process ignores `signal` (`sigaction(2)`): `nohup` and shells' background jobs start
/// programs so, and expect it to stay.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null new action only asks; the old one is a live local, valid when all zero.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Ends this process by `signal`, without a second core file, so that whoever started it sees
/// what it would have seen from the program itself. Returns only if the signal does not kill.
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
