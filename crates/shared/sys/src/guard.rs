//! A guard process between us and a program that we start: when we exit or are killed, the program and all its
//! descendants are killed too. PR_SET_PDEATHSIG alone reaches the program but not its children.
//!
//! The guard is the program's parent and the subreaper of all descendants. It keeps no descriptor open, and exits as
//! the program exits (same status or signal). It waits for SIGCHLD, and for the parent-death signal that it gets when
//! the thread that started it exits. After the parent-death signal it kills its children until none are left; orphaned
//! descendants become its children.
//!
//! # Safety
//! The guard is forked from a multithreaded process and never calls exec, so it makes only async-signal-safe calls:
//! plain system calls on its own locals, no locks, no allocation.
//! See docs/decisions/record.md#2.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;

use units::Pid;

/// Number of kill rounds. With the pause between rounds they last ten seconds. Then the guard gives up on processes
/// that it may not kill (set-user-id programs).
const KILL_ROUNDS: u32 = 10_000;
/// Pause between two kill rounds: 1 ms.
const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A program under a guard.
#[derive(Clone, Copy, Debug)]
pub struct Guarded {
    /// Our child, to be waited for. The guard exits as the program does, and the guard's rusage includes all
    /// descendants.
    pub guard: Pid,
    /// The program itself, to send signals to.
    pub program: Pid,
}

/// Starts `command` under a guard. The calling thread must live as long as the program. `prepare` adds the caller's own
/// pre-exec closures. They run in the program, because pre-exec closures run in order and the guard's fork comes first.
///
/// # Errors
/// As for `Command::spawn`.
pub fn spawn(command: &mut Command, prepare: impl FnOnce(&mut Command)) -> io::Result<Guarded> {
    let (mut pid_reader, pid_writer) = io::pipe()?;
    let starter = crate::param::own_pid();
    let pid_writer_fd = std::os::fd::AsRawFd::as_raw_fd(&pid_writer);
    // SAFETY: see the module; `pid_writer` stays open until the child has started.
    unsafe { command.pre_exec(move || insert_guard(starter, pid_writer_fd)) };
    prepare(command);
    #[allow(clippy::zombie_processes, reason = "the caller waits for the guard by its pid")]
    let guard = command.spawn()?;
    drop(pid_writer);
    let mut program = [0; 4];
    pid_reader.read_exact(&mut program)?;
    Ok(Guarded { guard: Pid(guard.id() as i32), program: Pid(i32::from_ne_bytes(program)) })
}

/// Runs in the forked child and forks again. The parent becomes the guard; the new child returns and execs the
/// program.
fn insert_guard(starter: Pid, pid_writer: i32) -> io::Result<()> {
    // SAFETY: see "Safety" of this module.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
        // If SIGCHLD were ignored, the kernel would reap the children and their status would be lost.
        let of_children = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) != 0 {
            return Err(io::Error::last_os_error());
        }
        let guard = libc::getpid();
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::signal(libc::SIGCHLD, of_children);
                libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
                die_with(libc::SIGKILL, guard)
            }
            program => {
                let bytes = program.to_ne_bytes();
                libc::write(pid_writer, bytes.as_ptr().cast(), bytes.len());
                watch(starter, program, &all)
            }
        }
    }
}

/// Requests `signal` at the exit of the thread that started this process; `parent` is that thread's process.
fn die_with(signal: i32, parent: i32) -> io::Result<()> {
    // SAFETY: all arguments are numbers.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::getppid() == parent {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

/// The guard's main loop.
fn watch(starter: Pid, program: i32, all: &libc::sigset_t) -> ! {
    // SAFETY: see the module. A new session protects the guard from signals to the starter's process group. The guard
    // closes its descriptors, which would keep pipes open.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"superpage-guard".as_ptr());
        if libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) != 0 {
            // Before Linux 5.9 (no close_range), close descriptors one by one.
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            for fd in 0..limit.rlim_cur.min(1 << 20) as libc::c_int {
                libc::close(fd);
            }
        }
        let mut gone = die_with(libc::SIGTERM, starter.0).is_err();
        while !gone {
            if let Some(status) = reap(program) {
                end_as(status);
            }
            libc::sigwaitinfo(all, std::ptr::null_mut());
            gone = libc::getppid() != starter.0;
        }
    }
    end_all()
}

/// Reaps exited children; returns the program's status once the program has exited.
fn reap(program: i32) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live local.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            ended if ended == program => return Some(status),
            ended if ended > 0 => {}
            _ => return None,
        }
    }
}

/// Exits as the program did. The guard does not dump core: the program has dumped its own, if any.
fn end_as(status: i32) -> ! {
    // SAFETY: all arguments are numbers.
    unsafe {
        if libc::WIFSIGNALED(status) {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            crate::signal::die_by(libc::WTERMSIG(status));
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

/// Kills the guard's children until there are none. The program dies with the guard anyway (PDEATHSIG).
fn end_all() -> ! {
    for _ in 0..KILL_ROUNDS {
        // SAFETY: pointers to locals; only this process's own children are reaped and killed.
        unsafe {
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
            if libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) < 0 {
                break;
            }
            if !kill_children() {
                break;
            }
            libc::nanosleep(&PAUSE, std::ptr::null_mut());
        }
    }
    // SAFETY: _exit takes an integer.
    unsafe { libc::_exit(1) }
}

/// Kills the children listed in /proc/thread-self/children (proc_pid_children(5), Linux 4.2), a list of pids, each
/// followed by a space. If the buffer's end cuts off a pid, the next round kills that child. Returns false if the
/// kernel lacks the file (CONFIG_PROC_CHILDREN).
fn kill_children() -> bool {
    let mut text = [0_u8; 4096];
    // SAFETY: a C string, and a local of the stated length. The pids are those of children, which only this process
    // reaps.
    unsafe {
        let file = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY);
        if file < 0 {
            return false;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len()).max(0) as usize;
        libc::close(file);
        let mut number = 0;
        for byte in &text[..length] {
            match byte {
                b'0'..=b'9' => number = number * 10 + i32::from(byte - b'0'),
                _ => {
                    if number > 0 {
                        libc::kill(number, libc::SIGKILL);
                    }
                    number = 0;
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn ended(script: &str) -> (Option<i32>, Option<i32>) {
        let mut command = Command::new("sh");
        let guarded = spawn(command.args(["-c", script]), |_| {}).unwrap();
        assert_ne!(guarded.guard, guarded.program);
        let (status, _) = crate::wait::reap(guarded.guard).unwrap();
        (status.code(), status.signal())
    }

    #[test]
    fn a_program_ends_as_without_a_guard() {
        assert_eq!(ended("exit 7"), (Some(7), None));
        assert_eq!(ended("kill -9 $$"), (None, Some(9)));
        assert_eq!(ended("kill -TERM $$"), (None, Some(15)));
        // While we live, the guard does not kill descendants that outlive the program.
        assert_eq!(ended("sleep 0.01 & exit 3"), (Some(3), None));
        let missing = spawn(&mut Command::new("/no/such/program"), |_| {}).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn signals_are_for_the_program_whose_mask_and_group_are_ours() {
        let (mut ready, write) = io::pipe().unwrap();
        let script = "trap 'exit 5' TERM; grep -q '^SigBlk:.0*$' /proc/self/status || exit 6; \
                      echo; while :; do sleep 0.01; done";
        let mut command = Command::new("sh");
        let guarded = spawn(command.args(["-c", script]).stdout(write), |_| {}).unwrap();
        ready.read_exact(&mut [0]).unwrap();
        // SAFETY: all arguments are numbers.
        let groups = unsafe { [libc::getpgid(guarded.program.0), libc::getpgrp()] };
        assert_eq!(groups[0], groups[1]);
        crate::signal::send(guarded.guard, libc::SIGINT).unwrap();
        crate::signal::send(guarded.program, libc::SIGTERM).unwrap();
        assert_eq!(crate::wait::reap(guarded.guard).unwrap().0.code(), Some(5));
        drop(command);
        // The guard holds no end of the pipe.
        assert_eq!(ready.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
