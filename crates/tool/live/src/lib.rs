//! Applies designs to running programs: executes a [`Policy`] from outside the processes.
//!
//! The programs are not modified, and their faults get base pages. A thread reads the population of each aligned 2 MiB
//! from their page tables (PAGEMAP_SCAN), asks the policy, and makes superpages with MADV_COLLAPSE
//! (`process_madvise(2)`), which copies. All decisions are the policy's.
//!
//! In each turn the thread looks where faults were sampled (`faults`, at a `pace`), and less often at each whole
//! process that took faults (`process`). It asks the policy about growth (`ask`). It makes pending superpages
//! (`pending`, `make`) within the limits of free superpages (`backoff`), unused memory (`filled`) and the
//! programs' time (`budget`). It runs daemons that are due (`daemons`). See docs/decisions/live.md#6.
#![forbid(unsafe_code)]

mod account;
mod ahead;
mod ask;
mod backoff;
mod budget;
mod daemons;
mod extent;
mod faults;
mod filled;
mod limits;
mod make;
mod pace;
mod pending;
mod process;
mod report;
mod supervisor;
mod turn;
mod work;

use std::io::PipeWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use host::Root;
use policy::Policy;
use units::Pid;

pub use account::{Account, Cause, Latency};
pub use ask::{is_at_first_fault, least_filled};
pub use limits::{
    Fresh, Rule, check_design, check_in_place, check_machine, check_reading, check_reserves, rules,
    rules_on_pool,
};
pub use report::{Delay, Report};
pub use supervisor::{Call, Supervisor};

/// A design applied to running programs.
#[derive(Debug)]
pub struct Live {
    stop: Arc<AtomicBool>,
    wake: Option<PipeWriter>,
    /// The executor's thread, or why it could not be started.
    thread: std::io::Result<JoinHandle<Report>>,
}

impl Live {
    /// Applies a policy to the processes that `members` returns; it is called repeatedly. `fresh` says which pages
    /// first touches get.
    pub fn start(
        policy: Policy,
        fresh: Fresh,
        root: Root,
        members: impl Fn() -> Vec<Pid> + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let (closed, wake) = std::io::pipe().ok().unzip();
        let run = move || {
            turn::Executor::new(policy, fresh, root, Box::new(members), is_stopped, closed).run()
        };
        Self { stop, wake, thread: Builder::new().spawn(run) }
    }

    /// Applies a policy to programs that somebody else started, within the limits of `supervisor`. Faults are not sampled,
    /// each call makes one superpage, and processes are looked at every second. `speed` is the number of seconds that pass
    /// for the policy in one second: more than 1 only to try long times.
    pub fn supervise(
        policy: Policy,
        root: Root,
        speed: u32,
        members: impl Fn() -> Vec<Pid> + Send + 'static,
        supervisor: impl Supervisor + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let run = move || {
            let members = Box::new(members);
            turn::Executor::new(policy, Fresh::BasePages, root, members, is_stopped, None)
                .supervised(Box::new(supervisor), speed)
                .run()
        };
        Self { stop, wake: None, thread: Builder::new().spawn(run) }
    }

    /// Whether the executor's thread could be started and has not ended.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_ok_and(|thread| !thread.is_finished())
    }

    /// Stops the executor. Superpages stay.
    pub fn stop(self) -> Report {
        self.stop.store(true, Ordering::SeqCst);
        drop(self.wake);
        match self.thread {
            Ok(thread) => {
                thread.thread().unpark();
                thread.join().expect("an executor does not panic")
            }
            Err(error) => {
                let unseen = Some(format!("a thread cannot be started: {error}"));
                Report { unseen, ..Report::default() }
            }
        }
    }
}
