//! Handles signals to `superpage` itself: an experiment ends cleanly, a launcher forwards them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use experiment::execute::Interrupt;
use host::{Root, process};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use units::Pid;

use crate::Failure;

/// Returns the failure to start a thread.
pub fn no_thread(error: std::io::Error) -> Failure {
    let remedy = "allow more processes (ulimit -u; pids.max of the control group)";
    Failure::cannot(format!("a thread cannot be started: {error}; {remedy}"))
}

/// Formats how a process ended: `exit code 3`, `SIGSEGV`.
pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => signal_hook::low_level::signal_name(signal)
            .map_or_else(|| format!("signal {signal}"), str::to_string),
        (None, None) => "an unknown cause".to_string(),
    }
}

/// The signal that interrupted an experiment; 0 if no signal did.
pub type Interruption = Arc<AtomicI32>;

/// Makes ^C, TERM and HUP interrupt the experiment while the result lives, instead of killing this process. Settings
/// are then restored before the process ends by the same signal.
pub fn interrupt_experiment(interrupt: Arc<Interrupt>) -> Result<Interrupting, Failure> {
    let asked = Interruption::default();
    let (mut signals, signal_guard) = watch(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let (noted, handle) = (Arc::clone(&asked), signals.handle());
    let note = move || {
        for origin in signals.forever() {
            noted.store(origin.signal, Ordering::SeqCst);
            interrupt.interrupt();
        }
    };
    Builder::new().spawn(note).map_err(no_thread)?;
    Ok(Interrupting { asked, handle, _signal_guard: signal_guard })
}

/// Signal handling of an experiment.
pub struct Interrupting {
    asked: Interruption,
    handle: Handle,
    _signal_guard: SignalGuard,
}

impl Interrupting {
    /// Returns the flag that holds the signal received.
    pub fn asked(&self) -> Interruption {
        Arc::clone(&self.asked)
    }

    /// Returns the signal received, if any.
    pub fn received(&self) -> Option<i32> {
        Some(self.signal()).filter(|signal| *signal != 0)
    }

    /// Sleeps until `end`, or until a signal is received, which is noticed within 0.1 s. Returns whether none was.
    pub fn sleep_until(&self, end: Instant) -> bool {
        const STEP: Duration = Duration::from_millis(100);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match (self.received(), left.is_zero()) {
                (Some(_), _) => return false,
                (None, true) => return true,
                (None, false) => std::thread::sleep(left.min(STEP)),
            }
        }
    }

    /// Returns the signal received; 0 if none.
    pub fn signal(&self) -> i32 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Interrupting {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Forwards signals to the program. Signals from the terminal (^C, ^\) are not forwarded, because the program is in our
/// process group and gets them itself.
pub struct Relay {
    program: Sender<Pid>,
    relaying: Relaying,
}

/// The last termination signal, written by the signal handler.
#[derive(Default)]
struct Asked(Arc<AtomicUsize>);

impl Asked {
    fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::SeqCst) as i32).filter(|signal| *signal != 0)
    }
}

/// Signals that end a program. Before the program is started, they end the launcher.
const ENDING: [i32; 4] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];

impl Relay {
    /// Catches signals from now on. Create the relay before the program is started: then no signal is lost, and if the
    /// thread cannot be started, the program is not started either.
    pub fn new() -> Result<Self, Failure> {
        let passed_on = [SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGALRM];
        let asked = Asked::default();
        // First of all handlers, so that no signal is caught without being noted.
        for signal in ENDING.into_iter().filter(|signal| !sys::signal::is_ignored(*signal)) {
            let noted = flag::register_usize(signal, Arc::clone(&asked.0), signal as usize);
            noted.map_err(not_caught)?;
        }
        let (mut signals, signal_guard) = watch(&[&ENDING[..], &passed_on].concat())?;
        let handle = signals.handle();
        let (program, started) = channel();
        let relay = move || {
            let Ok(program) = started.recv() else { return };
            for origin in signals.forever() {
                let from_terminal = matches!(origin.cause, Cause::Kernel);
                let sender = origin.process.map(|process| Pid(process.pid));
                let tree = || process::tree(&Root::real(), program);
                let from_below = sender.is_some_and(|sender| tree().contains(&sender));
                if !from_terminal && !from_below {
                    let _ = sys::signal::send(program, origin.signal);
                }
            }
        };
        let thread = Builder::new().spawn(relay).map_err(no_thread)?;
        Ok(Self {
            program,
            relaying: Relaying { handle, thread, asked, _signal_guard: signal_guard },
        })
    }

    /// Returns a guard that keeps termination signals from ending this process, even after the relay was dropped.
    /// Hold it until settings are restored.
    pub fn signal_guard(&self) -> SignalGuard {
        SignalGuard::another()
    }

    /// Returns the termination signal received before the program was started.
    pub fn asked(&self) -> Option<i32> {
        self.relaying.asked.signal()
    }

    /// Starts forwarding to `program`, except for signals that the program or a descendant sent us.
    pub fn to(self, program: Pid) -> Relaying {
        let _ = self.program.send(program);
        self.relaying
    }
}

/// A running relay.
pub struct Relaying {
    handle: Handle,
    thread: JoinHandle<()>,
    asked: Asked,
    _signal_guard: SignalGuard,
}

impl Relaying {
    /// Stops the relay. Call it before the program is reaped, because its pid may then be reused. Returns the
    /// termination signal received until then.
    pub fn stop(self) -> Option<i32> {
        self.handle.close();
        let _ = self.thread.join();
        self.asked.signal()
    }
}

/// Catches each of `signals` that this process does not ignore. A parent that used `nohup`, or started us in the
/// background, wants them ignored.
fn watch(signals: &[i32]) -> Result<(SignalsInfo<WithOrigin>, SignalGuard), Failure> {
    let watched_signals: Vec<i32> =
        signals.iter().copied().filter(|signal| !sys::signal::is_ignored(*signal)).collect();
    let caught = SignalsInfo::<WithOrigin>::new(&watched_signals).map_err(not_caught)?;
    // The guard last: its handlers catch a signal without noting it.
    Ok((caught, SignalGuard::new(&watched_signals).map_err(not_caught)?))
}

fn not_caught(error: std::io::Error) -> Failure {
    Failure::usage(format!("signals cannot be caught: {error}"))
}

/// While a guard lives, its signals are handled. When none lives, the signals have their default effect again:
/// signal-hook never removes a handler, so a TERM between two parts of a command would otherwise be lost.
#[must_use]
pub struct SignalGuard(());

/// Number of live [`SignalGuard`] values, and the flags of their signals.
#[derive(Default)]
struct GuardCount {
    count: u32,
    /// Signals with their default effect while `nobody` is set.
    defaulted: Vec<i32>,
    nobody: Arc<AtomicBool>,
}

static GUARDS: LazyLock<Mutex<GuardCount>> = LazyLock::new(Mutex::default);

impl SignalGuard {
    fn new(signals: &[i32]) -> std::io::Result<Self> {
        let mut guards = GUARDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for signal in signals {
            if !guards.defaulted.contains(signal) {
                flag::register_conditional_default(*signal, Arc::clone(&guards.nobody))?;
                guards.defaulted.push(*signal);
            }
        }
        guards.nobody.store(false, Ordering::SeqCst);
        guards.count += 1;
        Ok(Self(()))
    }

    /// Returns another guard; the caller holds one already.
    fn another() -> Self {
        GUARDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).count += 1;
        Self(())
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        let mut guards = GUARDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        guards.count -= 1;
        if guards.count == 0 {
            guards.nobody.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const CHILD: &str = "SUPERPAGE_TEST_SIGNALS";

    #[test]
    fn an_end_names_its_code_or_its_signal() {
        // Wait statuses: the exit code is the second byte, the signal the low seven bits.
        let ends = [3 << 8, libc::SIGSEGV | 0x80, libc::SIGKILL, 60].map(ExitStatus::from_raw);
        assert_eq!(ends.map(how_it_ended), ["exit code 3", "SIGSEGV", "SIGKILL", "signal 60"]);
    }

    /// Test process that gets a TERM at the beginning of signal handling, during it, or afterwards.
    fn heed(when: &str) -> ! {
        let own = Pid(std::process::id() as i32);
        let first = Relay::new().unwrap();
        if when == "beginning" {
            let end = Instant::now() + Duration::from_secs(10);
            while first.asked().is_none() && Instant::now() < end {
                std::thread::yield_now();
            }
            std::process::exit(if first.asked() == Some(SIGTERM) { 17 } else { 18 });
        }
        let experiment = interrupt_experiment(Arc::new(Interrupt::default())).unwrap();
        drop(first);
        if when == "after" {
            drop(experiment);
            sys::signal::send(own, SIGTERM).unwrap();
            // Any thread may receive the signal.
            std::thread::sleep(Duration::from_secs(30));
        } else {
            sys::signal::send(own, SIGTERM).unwrap();
            while experiment.signal() != SIGTERM {
                std::thread::yield_now();
            }
        }
        std::process::exit(17);
    }

    #[test]
    fn a_signal_is_the_experiments_while_there_is_one_and_kills_afterwards() {
        // Runs this test again in a child process.
        if let Ok(when) = std::env::var(CHILD) {
            heed(&when);
        }
        let name =
            "signals::tests::a_signal_is_the_experiments_while_there_is_one_and_kills_afterwards";
        let child = |when: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([name, "--exact"]).env(CHILD, when).stdout(Stdio::null());
            command.spawn().unwrap()
        };
        assert_eq!(child("while").wait().unwrap().code(), Some(17));
        assert_eq!(child("after").wait().unwrap().signal(), Some(SIGTERM));
        // As soon as the signal is caught, it is noted.
        for _ in 0..20 {
            let mut child = child("beginning");
            while !testkit::catches(child.id(), SIGTERM) {}
            sys::signal::send(Pid(child.id() as i32), SIGTERM).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(17));
        }
    }
}
