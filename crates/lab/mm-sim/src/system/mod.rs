//! A simulated machine under one design.
//!
//! [`System`] is the executor: it reports events to the policy, performs the policy's actions with the parts below, and
//! charges the costs. Each part owns its state exclusively:
//!
//! | part | owns |
//! |---|---|
//! | `spaces` | processes, mappings, regions, page tables: all virtual memory |
//! | `crate::memory` | physical memory: free frames, owners of frames, compaction |
//! | `frames` | users of frames besides the owner: reservations, split superpages, further pages |
//! | `pool` | the explicit pool |
//! | `daemons` | due times of daemons, and requests to them |
//! | `clock` | virtual time and costs by cause; timeline, phases, latencies |
//!
//! A function that needs two parts takes the other as an argument. Only the executor consults the policy and charges
//! costs. `fragmented` makes the memory in which the program starts, `engine` runs a stream's accesses through the TLB and `events` its system calls. `fault` and `plain`,
//! `larger`, `release`, `allocate` and `pool` are the stages of a superpage's life. `daemons` and `scan` run the
//! daemons. See docs/decisions/policy.md#9.

mod allocate;
mod clock;
mod daemons;
mod engine;
mod events;
mod facts;
mod fault;
mod formed;
mod fragmented;
mod frames;
mod larger;
mod plain;
mod pool;
mod release;
mod scan;
mod spaces;
mod verify;

#[cfg(test)]
mod tests;

use machine::{Machine, Size};
use policy::{Physical, Plain, Policy, Reads, Scale};
use units::ByteSize;

pub use clock::Observations;
pub(crate) use engine::Engine;

use crate::memory::compaction::{Compaction, Settings};
use crate::memory::{FRAME_BYTES, Memory, NodeShape, PartUse, Shape};
use crate::supported::{has_regions, regions_of_superpage};
use crate::touched::Counts;
use crate::{Counters, CycleCounts, Moment};
use clock::Clock;
use clock::Observed;
use clock::Prices;
use daemons::Daemons;
use frames::Frames;
use pool::Pool;
use spaces::Spaces;
use spaces::region::LISTED;

/// Why a program stopped early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// No frame was left, even after reclaim.
    OutOfMemory,
    /// The explicit pool is too small for a mapping.
    Refused {
        /// Number of missing superpages.
        short_by: u64,
    },
    /// The program was killed: a page that the pool had reserved was missing.
    Killed(String),
    /// An event that no program could issue.
    IllFormed(String),
}

/// A simulated machine under one design: parts, policy and constants.
#[derive(Debug)]
pub(crate) struct System {
    /// Decides; the executor only performs.
    policy: Policy,
    physical: Physical,
    reads: Reads,
    /// Whether single-page faults take free pages and bypass reservations.
    is_single: bool,
    /// Serves faults one by one, for the test of the fast path.
    #[cfg(test)]
    serves_singly: bool,
    /// Whether the hardware joins 16 aligned base pages in one TLB entry.
    joins: bool,
    pcid: bool,
    costs: Prices,
    /// log2 of the base pages per kernel page.
    page_order: u8,
    /// log2 of the regions per largest superpage.
    group: u32,
    /// Whether larger superpages split into superpages of one region, which the machine then has. If not, they split
    /// into base pages.
    splits_whole: bool,
    spaces: Spaces,
    memory: Memory,
    compaction: Compaction,
    frames: Frames,
    pool: Pool,
    daemons: Daemons,
    clock: Clock,
    counters: Counters,
    observed: Observed,
    /// Reused buffer, empty except while pages are released.
    runs: Vec<frames::Run>,
    /// Use of memory at the program's start and at its peak; empty if memory is not divided.
    uses: [Vec<PartUse>; 2],
}

/// Results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Resident base pages.
    pub resident_pages: u64,
    /// Base pages that reservations keep unused.
    pub reserved_pages: u64,
    /// The program's CPU cycles by cause.
    pub ledger: CycleCounts,
    /// The daemons' CPU cycles by cause.
    pub background: CycleCounts,
    /// Counters.
    pub counters: Counters,
    /// Further observations.
    pub observations: Observations,
    /// Use of each part of memory, if divided: at the program's start and at its peak.
    pub uses: [Vec<PartUse>; 2],
}

/// Memory that the kernel uses and never frees, in 64ths of all memory. The artifact of ATC'20 fills 29 GB of its
/// machine's 32 GB and needs 29 to 30 GB free (docs/sources/policies.md 4.1), so the kernel there has 2.5 GB.
const KERNEL_64THS: u64 = 5;

/// Returns the units of a machine's policies.
pub fn scale(machine: &Machine) -> Scale {
    Scale {
        base_page: machine.base_page.bytes(),
        superpage: frames::LARGE_ORDER,
        ticks: u64::from(machine.mhz),
    }
}

/// Returns the memory that the kernel itself uses on a machine with this much memory, in bytes. See
/// docs/decisions/lab-model.md#4.
pub fn kernel_memory(memory: ByteSize) -> ByteSize {
    ByteSize(memory.bytes() / 64 * KERNEL_64THS)
}

/// Returns whether single-page faults take free pages and bypass reservations.
fn is_single(policy: &Policy) -> bool {
    policy.plain(true, &policy::Mapping::default()) == Plain::Base
}

fn of_compaction(physical: &Physical) -> Settings {
    let Physical { defer_shift, proactiveness, .. } = *physical;
    Settings { defer_shift, proactiveness, ..Settings::default() }
}

impl System {
    pub(crate) fn new(
        machine: &Machine,
        policy: Policy,
        memory: ByteSize,
        nodes: Vec<NodeShape>,
        swap: ByteSize,
    ) -> Self {
        // `memory` counts frames of `FRAME_BYTES`, whatever the machine's base page.
        let memory = ByteSize(memory.bytes() / machine.base_page.bytes() * FRAME_BYTES);
        let kernel = kernel_memory(memory);
        let settings = policy.physical();
        let shape = Shape { nodes, grouping: settings.grouping, kernel, ..Shape::simple(memory) };
        let joins = machine.l1.iter().any(|tlb| tlb.holds[Size::Cont as usize]);
        let clock = Clock::new(machine.mhz);
        let swap = if settings.swaps { swap.bytes() / machine.base_page.bytes() } else { 0 };
        let mut memory = Memory::new(&shape);
        let group = regions_of_superpage(&policy, machine);
        let pool = Pool::new(settings.pool, &mut memory, group);
        Self {
            spaces: Spaces::new(memory.frames(), policy.reads().has(Reads::MISSES), swap, group),
            compaction: Compaction::new(&memory, of_compaction(&settings)),
            // A tick of FreeBSD's clock at hz = 1000.
            frames: Frames::new(clock.of_microseconds(1000), settings.preemptible),
            pool,
            memory,
            daemons: Daemons::default(),
            observed: Observed::new(&clock),
            clock,
            counters: Counters::default(),
            runs: Vec::new(),
            uses: Default::default(),
            costs: Prices::new(machine, policy.zeroing(), settings.is_ideal, group),
            page_order: (machine.kernel_page.bytes() / machine.base_page.bytes()).ilog2() as u8,
            group,
            splits_whole: has_regions(machine),
            pcid: machine.pcid,
            reads: policy.reads(),
            is_single: is_single(&policy),
            physical: settings,
            joins,
            #[cfg(test)]
            serves_singly: false,
            policy,
        }
    }

    /// Replaces the policy; the machine stays as it is. Returns the old policy.
    fn set_policy(&mut self, policy: Policy) -> Policy {
        self.physical = policy.physical();
        self.memory.set_grouping(self.physical.grouping);
        self.compaction.set(of_compaction(&self.physical));
        self.reads = policy.reads();
        self.is_single = is_single(&policy);
        std::mem::replace(&mut self.policy, policy)
    }

    /// Ends fragmenting: resets the counters and starts the program and the daemons.
    pub(crate) fn begin(&mut self, first: (u32, u32)) {
        self.clock.begin();
        self.counters = Counters::default();
        self.spaces.begin(first);
        let now = self.clock.now();
        self.observed.begin(now);
        // None of the fragmenter's regions is a candidate: its pages are inactive.
        while let Some(region) = self.daemons.next_candidate() {
            self.spaces.unmark(region, LISTED);
        }
        self.daemons = Daemons::new(&self.policy, now);
        if self.memory.is_divided() {
            let before = self.memory.uses();
            self.uses = [before.clone(), before];
        }
    }

    /// Starts counting walks to base pages, for a profile.
    pub(crate) fn count_walks(&mut self) {
        self.spaces.count_walks();
    }

    /// Returns the number of walks to base pages, by region of the program's memory.
    pub(crate) fn walks(&mut self) -> Vec<u64> {
        self.spaces.walks(self.clock.pace().weight)
    }

    pub(crate) fn superpages(&self) -> u64 {
        let (of_region, larger) = self.spaces.superpages_by_size();
        of_region + larger
    }

    /// Returns whether a daemon needs to know which pages were touched.
    pub(crate) fn watches(&self) -> bool {
        self.reads.has(Reads::ZEROS)
    }

    /// Returns whether the program runs, not the fragmenter.
    pub(crate) fn is_awake(&self) -> bool {
        self.daemons.are_awake()
    }

    /// Updates the peak, and records a sample of the time line if one is due.
    #[inline]
    pub(crate) fn observe(&mut self) {
        self.counters.superpages = self.counters.superpages.max(self.superpages());
        if self.spaces.resident() > self.counters.resident_pages {
            self.counters.resident_pages = self.spaces.resident();
            self.observed.peak();
            if !self.uses[1].is_empty() {
                self.memory.update_uses(&mut self.uses[1], self.pool.blocks());
            }
        }
        if self.observed.is_due(self.clock.now()) {
            self.note_moment();
        }
    }

    /// Called after a block was executed, wholly or until the program stopped. If memory peaked in the block, records
    /// the number of touched pages. `touched` covers the whole block; for a partly executed block, only resident pages
    /// are known to be touched.
    pub(crate) fn settle(&mut self, touched: Counts, whole: bool) {
        if !whole {
            self.observe();
        }
        if self.observed.take_peak() {
            let least = |before: u64| before.max(self.counters.resident_pages);
            self.counters.touched_pages =
                touched.map(|(before, most)| if whole { most } else { most.min(least(before)) });
        }
    }

    fn note_moment(&mut self) {
        let now = self.clock.now();
        let (of_region, larger) = self.spaces.superpages_by_size();
        let moment = Moment {
            microseconds: self.clock.microseconds(now - self.observed.began()),
            superpages: of_region + larger,
            smaller_superpages: if self.group > 0 { of_region } else { 0 },
            resident_pages: self.spaces.resident(),
            free_superpages: self.memory.free_superpages(),
            free_pages: self.memory.free_frames() + self.frames.reservations().clear_frames(),
        };
        self.observed.note(moment, now);
    }

    /// Charges walks to the running process, for designs that rank processes by TLB overhead.
    #[inline]
    pub(crate) fn note_walks(&mut self, cycles: u64) {
        if self.reads.has(Reads::COVERAGE) {
            self.spaces.note_walks(cycles, self.clock.now());
        }
    }

    pub(crate) fn finish(&mut self) -> Outcome {
        if self.is_awake() {
            self.daemons.cut_off(&mut self.clock);
            self.note_moment();
        }
        self.observed.end_phase(&self.clock, self.counters.accesses);
        Outcome {
            resident_pages: self.spaces.resident(),
            reserved_pages: self.frames.reservations().clear_frames(),
            ledger: *self.clock.ledger(),
            background: *self.clock.background(),
            counters: self.counters.clone(),
            observations: self.observed.take(self.clock.now()),
            uses: std::mem::take(&mut self.uses),
        }
    }
}
