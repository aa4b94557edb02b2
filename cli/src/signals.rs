//! Signals to `superpage` itself: an experiment ends cleanly, a launcher passes them on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use measure::execute::Interrupt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
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
    let mut signals = watch(&[SIGINT, SIGTERM, SIGHUP])?;
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

    /// Starts passing them to `program`.
    pub fn to(mut self, program: Pid) {
        std::thread::spawn(move || {
            for origin in self.0.forever() {
                let from_terminal = matches!(origin.cause, Cause::Kernel);
                if !from_terminal {
                    let _ = sys::signal::send(program, origin.signal);
                }
            }
        });
    }
}

fn watch(signals: &[i32]) -> Result<SignalsInfo<WithOrigin>, Failure> {
    SignalsInfo::<WithOrigin>::new(signals)
        .map_err(|error| Failure::usage(format!("signals cannot be caught: {error}")))
}
