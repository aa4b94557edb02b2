//! Runs an experiment: repetitions of the engine, and the parts that one thread does alone. Gives a row of Lameter's
//! tables.
//!
//! ```text
//! a repetition: threads are started | they fault and end | one of them unmaps everything
//! ```
//!
//! Threads are started one after the other. On altix-128, the wall-clock time that CPU time does not explain grows by
//! the same amount per thread under all patches. With one thread this difference equals the time of the unmapping. So
//! threads on altix-128 wait until all have started. On altix-8, in a run that needs no zeroing, CPU time equals
//! wall-clock time at 8 threads. So the threads on altix-8 ran on one CPU and were pulled to others too late (both
//! inferred from the User, System and Wall columns). Linux 2.6.11 works so: a new thread begins in its parent's queue,
//! and idle CPUs poll other nodes' queues now and then (assumed). A CPU whose daemon still zeroes is not idle. A thread
//! then goes to another node, whose memory is still zeroed, and the daemon continues in parallel (inferred: altix-8,
//! prezero, 1 GB three times, 2 threads). See docs/decisions/faults.md#1.

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
    /// Memory touched in each repetition by all threads together.
    pub size: ByteSize,
    /// Number of repetitions; each maps and unmaps the memory.
    pub repetitions: u32,
    /// Cache lines written per page.
    pub cache_lines: u32,
    /// The pages that are touched.
    pub touches: Touches,
}

/// Whether the engine may skip periods. The result is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepping {
    /// Skips whole periods, and repetitions equal to the last one.
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
    /// Time in the kernel, all threads, including the wait for locks.
    pub system_seconds: f64,
    /// Wall-clock time.
    pub wall_seconds: f64,
    /// Touched base pages in all repetitions. Lameter counts these as faults even if one fault maps several.
    pub pages: u64,
    /// Base pages mapped but never touched.
    pub wasted_pages: u64,
    /// Traps into the kernel.
    pub faults: u64,
    /// Base pages per second of CPU time.
    pub pages_per_cpu_second: f64,
    /// Base pages per second of wall-clock time.
    pub pages_per_wall_second: f64,
    /// Time to count a resident page in an uncontended fault.
    pub resident_count_seconds: f64,
    /// Time to read the resident count (/proc/PID/statm) while everything is mapped.
    pub resident_read_seconds: f64,
    /// Pages zeroed ahead. `None`: the kernel does not zero ahead.
    pub zeroed_ahead: Option<ZeroedAhead>,
    /// Whether the row has more threads than the measured machine had CPUs.
    pub is_prediction: bool,
    /// Number of events simulated one by one.
    pub events: u64,
    /// Number of faults skipped, in whole periods or repetitions.
    pub skipped_faults: u64,
}

const PICOSECONDS: f64 = 1e12;

impl Experiment {
    /// Returns the number of base pages in the memory of a repetition, rounded down to whole superpages if the kernel
    /// maps them.
    pub fn pages(&self) -> u64 {
        let page = self.unit().0;
        self.size.0 / page * (page / self.machine.base_page.0)
    }

    /// Returns the bytes that a fault maps without prefault.
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
        // A batch that fits no node moves to the next, so each node may leave up to a batch unused.
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
    /// [`FaultsError`] if the machine does not support the threads, memory, repetitions or cache lines.
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
            // The memory is as before this repetition, so all remaining ones equal it.
            let times = match stepping {
                Stepping::Skip if after.is_as(&before) => self.repetitions - repetition,
                _ => 1,
            };
            // The daemons get no turn after the last repetition.
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

/// Bytes of a cache line. The Altix has 128-byte lines; Lameter's column counts 64-byte steps.
pub(super) const LINE: u64 = 64;

/// Runs the experiment once for each number of threads. Returns one row for each number.
///
/// # Errors
/// As [`Experiment::run`], for the first number of threads that fails.
pub fn rows(experiment: &Experiment, threads: &[u32]) -> Result<Vec<Row>, FaultsError> {
    let one =
        |threads: &u32| Experiment { threads: *threads, ..experiment.clone() }.run(Stepping::Skip);
    threads.iter().map(one).collect()
}
