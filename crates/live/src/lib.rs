//! A design in force on running programs: an executor of [`Policy`] beside them.
//!
//! The programs are untouched. They fault base pages; a thread of ours learns from their page tables (PAGEMAP_SCAN) how
//! many pages each superpage's worth of their memory has, tells the policy, and makes the superpages that it asks for
//! with MADV_COLLAPSE (`process_madvise(2)`), which copies. It decides nothing.
//!
//! Each turn of that thread: where faults were sampled ([`faults`], at a [`pace`]), and now and then all of the processes that took
//! some, is looked at ([`process`]); the policy gets what grew ([`ask`]); some of what it asked for is made
//! ([`pending`], [`make`]), as far as the machine has it ([`backoff`]), as little memory is taken that the programs do
//! not use ([`filled`]), and as little of their time ([`budget`]); daemons that are due work ([`daemons`]).
//! See docs/decisions/live.md#6.
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
pub use ask::is_at_first_fault;
pub use limits::{
    Fresh, Rule, check_design, check_in_place, check_machine, check_reading, check_reserves, rules,
    rules_on_pool,
};
pub use report::{Delay, Report};

/// A design in force.
#[derive(Debug)]
pub struct Live {
    stop: Arc<AtomicBool>,
    wake: Option<PipeWriter>,
    /// Why there is none: no thread could be started.
    thread: std::io::Result<JoinHandle<Report>>,
}

impl Live {
    /// Puts a policy in force on the processes that `members` names, again and again. `fresh`: what their first touches
    /// get.
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

    /// Ends it. Superpages stay as they are.
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
