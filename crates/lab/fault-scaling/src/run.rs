//! From an experiment to a row of Lameter's tables: repetitions, and what only one thread does.
//!
//! ```text
//! a repetition: threads are started | they fault and end | one of them unmaps everything
//! ```
//!
//! Threads are started one after the other. In the rows of altix-128, what wall-clock time the CPUs' time
//! does not explain grows by the same amount with each thread whatever the patches are, and with one
//! thread it is the unmapping: there they wait for each other. In one of altix-8 that need no zeroing, CPU
//! time is wall-clock time at 8 threads: there they all ran on one CPU, and were fetched from it too late in
//! the others (both inferred from the User, System and Wall columns). So Linux 2.6.11 did: a new thread
//! begins in its parent's queue, and idle CPUs look at other nodes' queues now and then (assumed). A CPU on which
//! a daemon zeroes what the last repetition freed is not idle: then a thread goes to another node, whose memory is
//! zeroed still, and the daemon goes on beside (inferred: altix-8, prezero, 1 GB three times, 2 threads).
//! See docs/decisions/faults.md#1.

use serde::Serialize;
use units::ByteSize;

use super::engine::Engine;
use super::memory::Memory;
use super::prices::Prices;
use super::{FaultsError, Kernel, Machine, Touches, ZeroedAhead};

/// One run of `pft`.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The machine.
    pub machine: Machine,
    /// The kernel.
    pub kernel: Kernel,
    /// Number of threads, each on its own CPU.
    pub threads: u32,
    /// Memory touched in each repetition, by all threads together.
    pub size: ByteSize,
    /// Number of repetitions; each maps and unmaps the memory.
    pub repetitions: u32,
    /// Cache lines written per page.
    pub cache_lines: u32,
    /// The pages that are touched.
    pub touches: Touches,
}

/// Whether periods may be skipped; the result is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepping {
    /// Skips whole periods, and repetitions equal to the last.
    Skip,
    /// Simulates every event.
    EachEvent,
}

/// A row of Lameter's tables (docs/sources/policies.md 3.8).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Memory touched in each repetition.
    pub bytes: u64,
    /// Repetitions.
    pub repetitions: u32,
    /// Threads.
    pub threads: u32,
    /// Cache lines per page.
    pub cache_lines: u32,
    /// Time in user mode, all threads.
    pub user_seconds: f64,
    /// Time in the kernel, all threads; waiting for its locks is done there.
    pub system_seconds: f64,
    /// Wall-clock time.
    pub wall_seconds: f64,
    /// Base pages that were touched, in all repetitions: what Lameter counts as faults, also where one
    /// fault maps several.
    pub pages: u64,
    /// Base pages mapped but never touched.
    pub wasted_pages: u64,
    /// Traps into the kernel.
    pub faults: u64,
    /// Base pages per second of CPU time.
    pub pages_per_cpu_second: f64,
    /// Base pages per second of wall-clock time.
    pub pages_per_wall_second: f64,
    /// Time for which an uncontended fault counts a resident page.
    pub resident_count_seconds: f64,
    /// Time to read the resident count (/proc/PID/statm) while everything is mapped.
    pub resident_read_seconds: f64,
    /// Pages zeroed ahead. `None`: the kernel does not zero ahead.
    pub zeroed_ahead: Option<ZeroedAhead>,
    /// More threads than CPUs that were measured on this machine, or than published rows have.
    pub is_prediction: bool,
    /// Number of events simulated one by one.
    pub events: u64,
    /// Faults that were not: periods, and repetitions, that are as others.
    pub skipped_faults: u64,
}

const PICOSECONDS: f64 = 1e12;

impl Experiment {
    /// Base pages among which some are touched in a repetition: whole superpages where such are mapped.
    pub fn pages(&self) -> u64 {
        let page = self.unit().0;
        self.size.0 / page * (page / self.machine.base_page.0)
    }

    /// What a fault maps without prefault.
    fn unit(&self) -> ByteSize {
        self.kernel.superpage.unwrap_or(self.machine.base_page).max(self.machine.base_page)
    }

    fn check(&self) -> Result<(), FaultsError> {
        let (machine, threads) = (&self.machine, self.threads);
        let largest = machine.most_threads();
        if !(1..=largest).contains(&threads) {
            return Err(FaultsError::Threads { threads, machine: machine.name.clone(), largest });
        }
        if !(1..=1000).contains(&self.repetitions) {
            return Err(FaultsError::Repetitions(self.repetitions));
        }
        let most = (machine.base_page.0 / LINE).min(u64::from(u32::MAX)) as u32;
        if !(1..=most).contains(&self.cache_lines) {
            return Err(FaultsError::CacheLines { asked: self.cache_lines, most });
        }
        let unit = self.unit();
        if self.size.0 / unit.0 < u64::from(threads) {
            return Err(FaultsError::TooSmall { size: self.size, threads, page: unit });
        }
        // A batch that fits no node whole goes to the next: so much may be left over on each.
        let prices = Prices::new(self);
        let batch = unit.0.max(machine.base_page.0 << self.kernel.prefault);
        let largest = u64::from(prices.nodes) * machine.node_memory.0.saturating_sub(batch);
        if self.size.0 > largest {
            let (size, largest) = (self.size, ByteSize(largest));
            return Err(FaultsError::TooLarge { size, machine: machine.name.clone(), largest });
        }
        Ok(())
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// [`FaultsError`]: threads, memory, repetitions or cache lines that the machine cannot have.
    pub fn run(&self, stepping: Stepping) -> Result<Row, FaultsError> {
        self.check()?;
        let mut prices = Prices::new(self);
        let is_alone = self.machine.cpus.max(self.threads) == 1;
        let start = prices.starting();
        let mut memory = Memory::new(self, &prices);
        let (mut wall, mut busy, mut faults, mut mapped) = (0u128, 0u128, 0, 0);
        let (mut events, mut skipped) = (0, 0);
        let zeroed_before = memory.zeroed();
        let (mut zeroed_pages, mut daemons) = (0, 0u128);
        let mut ending = memory.clone();
        let mut repetition = 0;
        while repetition < self.repetitions {
            memory.restart();
            prices.place(&memory.daemons());
            memory.place(&prices);
            let before = memory.clone();
            memory.quiet(prices.start(0), !is_alone);
            let (done, mut after) = Engine::new(self, &prices, memory).run(stepping);
            let taken: u64 = done.taken.iter().sum();
            let unmap = prices.unmap(taken);
            let freed = done.end + unmap;
            after.quiet(freed, !is_alone);
            for (node, pages) in done.taken.iter().enumerate() {
                after.give(node, *pages, freed);
            }
            let work = after.work();
            ending = after.clone();
            let is_last = repetition + 1 == self.repetitions;
            let preempted = if is_alone && !is_last { after.preempt(freed) } else { 0 };
            // As it was before: then all that are left are as this one.
            let times = match stepping {
                Stepping::Skip if after.is_as(&before) => self.repetitions - repetition,
                _ => 1,
            };
            // After the last repetition the daemon's turn has not come.
            let gaps = if is_last { 0 } else { times.max(2) - 1 };
            wall +=
                u128::from(freed) * u128::from(times) + u128::from(preempted) * u128::from(gaps);
            let between = after.work();
            zeroed_pages += work.pages * u64::from(times) + between.pages * u64::from(gaps);
            daemons += u128::from(work.cpu) * u128::from(times)
                + u128::from(between.cpu) * u128::from(gaps);
            busy += u128::from(done.busy + start + unmap) * u128::from(times);
            faults += done.faults * u64::from(times);
            mapped += taken * u64::from(times);
            events += done.events;
            skipped += done.skipped + done.faults * u64::from(times - 1);
            repetition += times;
            memory = after;
        }
        let pages = self.touches.before(self.pages()) * u64::from(self.repetitions);
        let user = (u128::from(pages) * u128::from(prices.touch)).min(busy);
        let (wall_seconds, busy_seconds) = (wall as f64 / PICOSECONDS, busy as f64 / PICOSECONDS);
        let zeroed_ahead = ending.blocks().map(|nodes| ZeroedAhead {
            pages: zeroed_pages,
            found_pages: zeroed_before + zeroed_pages - ending.zeroed(),
            cpu_seconds: daemons as f64 / PICOSECONDS,
            nodes,
        });
        Ok(Row {
            bytes: self.size.0,
            repetitions: self.repetitions,
            threads: self.threads,
            cache_lines: self.cache_lines,
            user_seconds: user as f64 / PICOSECONDS,
            system_seconds: (busy - user) as f64 / PICOSECONDS,
            wall_seconds,
            pages,
            wasted_pages: mapped - pages,
            faults,
            pages_per_cpu_second: pages as f64 / busy_seconds,
            pages_per_wall_second: pages as f64 / wall_seconds,
            resident_count_seconds: prices.count_resident() as f64 / PICOSECONDS,
            resident_read_seconds: prices.read_resident(self.pages()) as f64 / PICOSECONDS,
            zeroed_ahead,
            is_prediction: self.threads > self.machine.cpus,
            events,
            skipped_faults: skipped,
        })
    }
}

/// A cache line. Larger ones exist (the Altix has 128 bytes); Lameter's column counts steps of its own.
pub(super) const LINE: u64 = 64;

/// One row for each number of threads.
///
/// # Errors
/// As [`Experiment::run`], for the first number of threads that cannot be.
pub fn rows(experiment: &Experiment, threads: &[u32]) -> Result<Vec<Row>, FaultsError> {
    let one =
        |threads: &u32| Experiment { threads: *threads, ..experiment.clone() }.run(Stepping::Skip);
    threads.iter().map(one).collect()
}
