//! Measures with the processor's performance counters: a program that it starts, or running processes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use experiment::execute::Interrupt;
use host::{Root, Snapshot, process};
use launch::{Pages, Recipe, Start, Word};
use units::Pid;
use walk_cost::live::{Counters, Counting};
use walk_cost::{Context, Estimate, MissCost, interpret};

use super::Measured;
use crate::exit::{self, Failure};
use operations::{facts, signals};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Finds the counters of this machine.
pub fn counters() -> Result<Counters, Failure> {
    let root = Root::real();
    Ok(Counters::find(&root, Snapshot::read(&root).cpu.as_ref())?)
}

/// Adds another way to a failure to count.
pub fn or(why: Failure, way: &str) -> Failure {
    if why.is_cannot() { Failure::cannot(format!("{why}; {way}")) } else { why }
}

/// Starts a program unchanged, and counts from its exec to its end.
pub fn of_program(
    command: &[Word],
    cost: Option<&MissCost>,
    counters: &Counters,
) -> Result<Measured, Failure> {
    let relay = signals::Relay::new().map_err(Failure::in_launcher)?;
    let recipe = Recipe::new(Pages::System);
    let plan = launch::resolve(&recipe, command, &facts::search_path(), &facts::read())
        .map_err(|error| Failure::of_launcher(&error))?;
    // Open the counters on this thread: they count its child processes.
    let counting = counters.of_children()?;
    let began = Instant::now();
    let pid =
        launch::start(&plan, Start::default()).map_err(|error| Failure::of_launcher(&error))?;
    let relaying = relay.to(pid);
    let ours = |error: sys::SysError| Failure::cannot(error).in_launcher();
    let ended = sys::wait::until_exit(pid);
    let seconds = began.elapsed().as_secs_f64();
    relaying.stop();
    ended.map_err(ours)?;
    let (status, _) = sys::wait::reap(pid).map_err(ours)?;
    let estimate = finish(counting, counters, cost)?;
    let what = report::format::command(command);
    let (seconds, ended) = (Some(seconds), Some(status));
    Ok(Measured { seconds, ended, ..Measured::new(what, estimate) })
}

/// Counts running processes until all have ended, the time is over, or a signal interrupts.
pub fn of_processes(
    pids: &[Pid],
    duration: Option<f64>,
    cost: Option<&MissCost>,
) -> Result<Measured, Failure> {
    let root = Root::real();
    // Remember start times: they distinguish a reused pid from the original process.
    let mut running = Vec::new();
    for pid in pids {
        let stat = process::stat(&root, *pid).ok().filter(|stat| !stat.is_dead());
        let stat = stat.ok_or_else(|| Failure::usage(format!("{pid:?}: no such process")))?;
        running.push((*pid, stat.start_ticks));
    }
    // A recording is no way out here: it cannot be made of a running process.
    let counters = counters().map_err(|why| {
        let pid = pids[0];
        let way = format!(
            "without counters `superpage map {pid}` shows which of its memory is on superpages, and \
             `superpage advise --pid {pid}` predicts what they would bring"
        );
        or(why, &way)
    })?;
    let interrupted = signals::interrupt_experiment(Arc::new(Interrupt::default()))?;
    // A set counts each process once, even if the user named both parent and child.
    let tree: BTreeSet<Pid> = pids.iter().flat_map(|pid| process::tree(&root, *pid)).collect();
    let tree: Vec<Pid> = tree.into_iter().collect();
    let counting = counters.of_processes(&root, &tree)?;
    let began = Instant::now();
    let over = |began: Instant| duration.is_some_and(|most| began.elapsed().as_secs_f64() >= most);
    let lives = |(pid, start): &(Pid, u64)| {
        let stat = process::stat(&root, *pid);
        stat.is_ok_and(|stat| stat.start_ticks == *start && !stat.is_dead())
    };
    while interrupted.signal() == 0 && !over(began) && running.iter().any(lives) {
        std::thread::sleep(POLL_INTERVAL);
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut estimate = finish(counting, &counters, cost)?;
    if duration.is_some() && !over(began) && interrupted.signal() == 0 {
        estimate = estimate
            .with_note(format!("the processes ended after {}", report::format::seconds(seconds)));
    }
    let names: Vec<String> = pids.iter().map(|pid| format!("{pid:?}")).collect();
    Ok(Measured { seconds: Some(seconds), ..Measured::new(names.join(", "), estimate) })
}

fn finish(
    counting: Counting,
    counters: &Counters,
    cost: Option<&MissCost>,
) -> Result<Estimate, Failure> {
    let scope = counting.scope();
    let counts = counting.finish().map_err(Failure::cannot)?;
    let context = Context { table: Some(counters.table), cost };
    let estimate = Estimate { scope: Some(scope), ..interpret(&counts, context) };
    if let Some(reason) = estimate.reason() {
        exit::say(reason);
    }
    Ok(estimate)
}
