//! Tracing threads of other processes: `ptrace(2)`, with `PTRACE_SEIZE`.
//!
//! # Safety
//! Every call passes a thread id and plain numbers; results are written to live locals of the size that the kernel
//! expects. A tracer changes only its tracees, which are other processes.

use units::Pid;

use crate::SysError;

/// `user_regs_struct` of x86-64.
pub use libc::user_regs_struct as Registers;

/// A change of state of a tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The thread is gone.
    Gone,
    /// A single step is done, or another SIGTRAP arrived.
    Trap,
    /// A signal is about to be delivered; pass it on.
    Signal(i32),
    /// The thread has started a thread or process with this id, which is traced too.
    Started(Pid),
    /// The thread has executed another program.
    Executed,
    /// The tracee stopped because of [`interrupt`], or has just started.
    Interrupted,
    /// Job control stopped the process: [`listen`].
    Stopped,
}

fn request(what: libc::c_uint, thread: Pid, address: usize, data: usize) -> Result<(), SysError> {
    // SAFETY: only requests with plain numbers, or with a pointer to a live local of the caller, are made here.
    let code = unsafe { libc::ptrace(what, thread.0, address, data) };
    match code {
        -1 => Err(SysError::last("ptrace", format!("request {what:#x}, {thread:?}"))),
        _ => Ok(()),
    }
}

/// `PTRACE_SEIZE`: starts to trace a thread without stopping it. Threads and processes that it starts are traced too.
/// All are killed if this thread, the tracer, ends. `EPERM`: not ours, or forbidden by Yama (`ptrace_scope`).
///
/// # Errors
/// The call fails.
pub fn seize(thread: Pid) -> Result<(), SysError> {
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    request(libc::PTRACE_SEIZE, thread, 0, options as usize)
}

/// `PTRACE_INTERRUPT`: stops a running tracee; [`wait`] reports [`Stop::Interrupted`], or another stop, which takes the
/// place of this one (`ptrace_stop`, kernel/signal.c).
///
/// # Errors
/// `ESRCH`: the thread is gone.
pub fn interrupt(thread: Pid) -> Result<(), SysError> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0)
}

/// `PTRACE_CONT`: continues a stopped tracee and delivers `signal`, unless it is 0.
///
/// # Errors
/// `ESRCH`: the thread is gone or not stopped.
pub fn resume(thread: Pid, signal: i32) -> Result<(), SysError> {
    request(libc::PTRACE_CONT, thread, 0, signal as usize)
}

/// `PTRACE_SINGLESTEP`: executes one instruction; [`wait`] reports [`Stop::Trap`]. Of an instruction with a rep prefix,
/// one iteration.
///
/// # Errors
/// `ESRCH`: the thread is gone or not stopped.
pub fn step(thread: Pid, signal: i32) -> Result<(), SysError> {
    request(libc::PTRACE_SINGLESTEP, thread, 0, signal as usize)
}

/// `PTRACE_LISTEN`: leaves a tracee stopped by job control.
///
/// # Errors
/// `ESRCH`: the thread is gone or not stopped.
pub fn listen(thread: Pid) -> Result<(), SysError> {
    request(libc::PTRACE_LISTEN, thread, 0, 0)
}

/// `PTRACE_DETACH`: continues a stopped tracee untraced.
///
/// # Errors
/// `ESRCH`: the thread is gone or not stopped.
pub fn detach(thread: Pid) -> Result<(), SysError> {
    request(libc::PTRACE_DETACH, thread, 0, 0)
}

/// `PTRACE_GETREGS` of a stopped tracee.
///
/// # Errors
/// `ESRCH`: the thread is gone or not stopped.
pub fn registers(thread: Pid) -> Result<Registers, SysError> {
    // SAFETY: an all-zero structure of integers is a valid value.
    let mut registers = unsafe { std::mem::zeroed::<Registers>() };
    request(libc::PTRACE_GETREGS, thread, 0, (&raw mut registers) as usize)?;
    Ok(registers)
}

/// `waitpid(thread, __WALL)`: waits for a change of state. `None`: none yet, and `blocks` is false.
///
/// # Errors
/// `ECHILD`: not a tracee of this thread.
pub fn wait(thread: Pid, blocks: bool) -> Result<Option<Stop>, SysError> {
    let mut status = 0;
    let flags = libc::__WALL | if blocks { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: a pointer to a live local.
        match unsafe { libc::waitpid(thread.0, &mut status, flags) } {
            0 => return Ok(None),
            -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Err(SysError::last("waitpid", format!("{thread:?}"))),
            _ => return stop_of(thread, status).map(Some),
        }
    }
}

/// `waitid(P_ALL, WNOWAIT)`: blocks until some tracee or child has a change of state that was not waited for. A leader's
/// end is not reported before its process's other threads were waited for, so waiting for one thread alone can block for
/// ever.
pub fn wait_for_any() {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    // SAFETY: an all-zero siginfo is a valid value, and the kernel fills it.
    unsafe {
        let mut info = std::mem::zeroed::<libc::siginfo_t>();
        libc::waitid(libc::P_ALL, 0, &mut info, flags);
    }
}

fn stop_of(thread: Pid, status: i32) -> Result<Stop, SysError> {
    if !libc::WIFSTOPPED(status) {
        return Ok(Stop::Gone);
    }
    let signal = libc::WSTOPSIG(status);
    Ok(match status >> 16 {
        0 if signal == libc::SIGTRAP => Stop::Trap,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
            let mut started: libc::c_ulong = 0;
            request(libc::PTRACE_GETEVENTMSG, thread, 0, (&raw mut started) as usize)?;
            Stop::Started(Pid(started as i32))
        }
        libc::PTRACE_EVENT_EXEC => Stop::Executed,
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
        _ => Stop::Stopped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracee_steps_and_goes_on() {
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let thread = Pid(child.id() as i32);
        if let Err(error) = seize(thread) {
            child.kill().unwrap();
            child.wait().unwrap();
            testkit::skipped!("{error}");
            return;
        }
        loop {
            interrupt(thread).unwrap();
            match wait(thread, true).unwrap() {
                Some(Stop::Interrupted) => break,
                // The spawn returns a moment before the exec is reported.
                stop => assert_eq!(stop, Some(Stop::Executed)),
            }
            resume(thread, 0).unwrap();
        }
        let before = registers(thread).unwrap().rip;
        let mut moved = false;
        for _ in 0..20 {
            step(thread, 0).unwrap();
            assert_eq!(wait(thread, true).unwrap(), Some(Stop::Trap));
            moved |= registers(thread).unwrap().rip != before;
        }
        assert!(moved);
        detach(thread).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
