//! Signals to `superpage` itself: an experiment ends cleanly, a launcher passes them on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

use machine::{Root, process};
use measure::execute::Interrupt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use units::Pid;

use crate::exit::Failure;

/// The signal that asked an experiment to stop; 0 while none did.
pub type Asked = Arc<AtomicI32>;

/// From now on ^C, TERM and HUP interrupt the experiment instead of killing us, so that what was
/// changed is put back before we end (by the same signal).
pub fn interrupt_experiment(interrupt: Arc<Interrupt>) -> Result<Asked, Failure> {
    let asked = Asked::default();
    let mut signals = watch(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for origin in signals.forever() {
            noted.store(origin.signal, Ordering::SeqCst);
            interrupt.interrupt();
        }
    });
    Ok(asked)
}

/// Passes signals on to the program. What the terminal sent (^C, ^\) it has sent to the program
/// too, which is in our process group: passing it on would deliver it twice.
pub struct Relay(SignalsInfo<WithOrigin>);

impl Relay {
    /// Catches signals from now on; before the program is started, so that none is lost.
    pub fn new() -> Result<Self, Failure> {
        watch(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]).map(Self)
    }

    /// Starts passing them to `program`, but not back what it, or a process below it, sent us.
    pub fn to(mut self, program: Pid) -> Relaying {
        let handle = self.0.handle();
        let thread = std::thread::spawn(move || {
            for origin in self.0.forever() {
                let from_terminal = matches!(origin.cause, Cause::Kernel);
                let sender = origin.process.map(|process| Pid(process.pid));
                let tree = || process::tree(&Root::real(), program);
                let from_below = sender.is_some_and(|sender| tree().contains(&sender));
                if !from_terminal && !from_below {
                    let _ = sys::signal::send(program, origin.signal);
                }
            }
        });
        Relaying { handle, thread }
    }
}

/// A relay at work.
pub struct Relaying {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Relaying {
    /// Ends it; before the program is reaped, when its pid may come to mean another.
    pub fn stop(self) {
        self.handle.close();
        let _ = self.thread.join();
    }
}

/// Catches those of `signals` that are not ignored: who started us with `nohup`, or in the background,
/// wants them ignored by us and by the program.
fn watch(signals: &[i32]) -> Result<SignalsInfo<WithOrigin>, Failure> {
    let heeded: Vec<i32> =
        signals.iter().copied().filter(|signal| !sys::signal::is_ignored(*signal)).collect();
    SignalsInfo::<WithOrigin>::new(&heeded)
        .map_err(|error| Failure::usage(format!("signals cannot be caught: {error}")))
}
