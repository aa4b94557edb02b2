//! A simulated machine under one design.
//!
//! `engine` runs a stream's accesses through the TLB; `events` carries out its system calls; `fault` (and `plain` and `apart`),
//! `reserve`, `large`, `collapse`, `release` and `pool` are the five events of a superpage's life;
//! `daemons`, `scan` and `upkeep` work behind the program in virtual time. `spaces` holds all that is
//! virtual, `crate::memory` all that is physical. Only `crate::run` builds one.

mod allocate;
mod apart;
mod clock;
mod collapse;
mod daemons;
mod engine;
mod events;
mod facts;
mod fault;
mod formed;
mod ground;
mod large;
mod misses;
mod phases;
mod plain;
mod pool;
mod prices;
mod region;
mod release;
mod reserve;
mod scan;
mod space;
mod spaces;
mod upkeep;
mod verify;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hardware::{Machine, Size};
use policy::{Physical, Plain, Policy, Reads, Scale};
use units::ByteSize;

pub(crate) use engine::Engine;
pub(crate) use formed::MOST_REGIONS;
pub(crate) use phases::Phases;

use crate::memory::compaction::{Compaction, Settings};
use crate::memory::{Memory, Shape};
use crate::reservation::{Config, Reservations};
use crate::touched::Counts;
use crate::{Counters, Moment};
use clock::Clock;
use daemons::Daemons;
use prices::Prices;
use space::Place;
use spaces::Spaces;

/// Why a program goes no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No frame was left, also after reclaim.
    OutOfMemory,
    /// The explicit pool is too small for a mapping.
    Refused {
        /// Superpages that were missing.
        short_by: u64,
    },
    /// The program was killed: a page that the pool had promised was not there.
    Killed(String),
    /// The stream does what no program can do.
    IllFormed(String),
}

/// A simulated machine under one design.
#[derive(Debug)]
pub(crate) struct System {
    /// Decides all that is done.
    policy: Policy,
    physical: Physical,
    reads: Reads,
    /// Faults that get one page each get free ones.
    is_single: bool,
    /// Faults are served one by one: for the test that compares.
    #[cfg(test)]
    serves_singly: bool,
    /// The hardware joins 16 aligned base pages in one TLB entry.
    joins: bool,
    costs: Prices,
    pcid: bool,
    pub memory: Memory,
    compaction: Compaction,
    pub spaces: Spaces,
    pub clock: Clock,
    pub counters: Counters,
    daemons: Daemons,
    /// Daemons work: not while the fragmenter does, as the artifact enables policies after it.
    awake: bool,
    /// Compactions asked for so far.
    attempts: u64,
    /// Until when a daemon keeps the faults of a process out: (process, time).
    locked: (u32, u64),
    running: u32,
    /// Where the program's memory begins: a region.
    first_region: u32,
    /// The mapping of the last fault.
    last: Option<Place>,
    /// First pages of the mappings of each shared object.
    objects: BTreeMap<u32, Vec<u32>>,
    /// Reserved blocks whose frames were zeroed beforehand, by first frame.
    blank: BTreeSet<u32>,
    pool: pool::Pool,
    /// Empty but while pages are released.
    runs: Vec<release::Run>,
    /// When the request under way began.
    request: Option<u64>,
    pub latencies: Vec<u64>,
    pub phases: Phases,
    /// Memory was at its peak in the block that is being carried out.
    peaked: bool,
    /// When the program began.
    pub began: u64,
    pub timeline: Vec<Moment>,
    /// Time between two moments of the time line, and the next one's.
    interval: u64,
    next_moment: u64,
}

/// 64ths of the memory that the kernel has for itself and never gives back. The artifact of ATC'20 fills 29 GB of
/// its machine's 32 and asks for 29 to 30 GB to be free (docs/sources/policies.md 4.1), so the kernel has 2.5 GB there.
const KERNEL_64THS: u64 = 5;

/// The units in which a machine's policies count.
pub(crate) fn scale(machine: &Machine) -> Scale {
    Scale {
        base_page: machine.base_page.bytes(),
        superpage: allocate::LARGE_ORDER,
        ticks: u64::from(machine.mhz),
    }
}

/// What the kernel of a machine with so much memory has for itself.
pub fn kernel_memory(memory: ByteSize) -> ByteSize {
    ByteSize(memory.bytes() / 64 * KERNEL_64THS)
}

/// Moments of a time line at most; beyond, every second one is dropped and the interval doubled.
const MOMENTS: usize = 512;
/// The first interval between moments.
const FIRST_INTERVAL_MICROSECONDS: u64 = 1000;

impl System {
    pub(crate) fn new(machine: &Machine, policy: Policy, memory: ByteSize, swap: ByteSize) -> Self {
        let kernel = kernel_memory(memory);
        let settings = policy.physical();
        let shape = Shape { grouping: settings.grouping, kernel, ..Shape::simple(memory) };
        let joins = machine.l1.iter().any(|tlb| tlb.holds[Size::Cont as usize]);
        let clock = Clock::new(machine.mhz);
        let interval = clock.of_microseconds(FIRST_INTERVAL_MICROSECONDS);
        let mut physical = Memory::new(&shape);
        let pool = pool::Pool::new(settings.pool, &mut physical);
        Self {
            costs: Prices::new(machine, policy.zeroing(), settings.is_ideal),
            pcid: machine.pcid,
            compaction: Compaction::new(
                &physical,
                Settings {
                    defer_shift: settings.defer_shift,
                    proactiveness: settings.proactiveness,
                    ..Settings::default()
                },
            ),
            spaces: Spaces {
                kinds: Vec::new(),
                regions: region::Regions::default(),
                tables: region::Tables::default(),
                processes: BTreeMap::new(),
                reservations: Reservations::new(&Config {
                    // A tick of FreeBSD's clock at hz = 1000.
                    tick: clock.of_microseconds(1000),
                    queues: 1,
                    preemption_sizes: settings.preemptible.iter().collect(),
                }),
                shares: BTreeMap::new(),
                misses: policy.reads().has(Reads::MISSES).then(misses::Misses::default),
                folios: BTreeMap::new(),
                shoot: Vec::new(),
                now: 0,
                first_process: 0,
                resident: 0,
                superpages: 0,
                swapped: 0,
                swap: if settings.swaps { swap.bytes() / machine.base_page.bytes() } else { 0 },
            },
            memory: physical,
            clock,
            counters: Counters::default(),
            daemons: Daemons::default(),
            awake: false,
            attempts: 0,
            locked: (u32::MAX, 0),
            running: u32::MAX,
            first_region: 0,
            last: None,
            objects: BTreeMap::new(),
            blank: BTreeSet::new(),
            pool,
            runs: Vec::new(),
            request: None,
            latencies: Vec::new(),
            phases: Phases::default(),
            peaked: false,
            began: 0,
            timeline: Vec::new(),
            interval,
            next_moment: 0,
            reads: policy.reads(),
            is_single: policy.plain(true, &policy::Mapping::default()) == Plain::Base,
            physical: settings,
            joins,
            #[cfg(test)]
            serves_singly: false,
            policy,
        }
    }

    /// From here on it is the program that counts; the daemons begin their work.
    pub(crate) fn begin(&mut self, (first_region, first_process): (u32, u32)) {
        self.clock.begin();
        self.first_region = first_region;
        self.counters = Counters::default();
        self.spaces.first_process = first_process;
        (self.spaces.resident, self.spaces.superpages) = (0, 0);
        let now = self.clock.now();
        self.began = now;
        self.next_moment = now;
        self.awake = true;
        // What spoiled memory waited for a minute (the scripts): nothing of it is a candidate any more.
        for region in std::mem::take(&mut self.daemons.candidates) {
            self.spaces.region(region).flags &= !region::LISTED;
        }
        self.daemons = Daemons::new(&self.policy, now);
    }

    /// Whether a daemon asks which pages were touched.
    pub(crate) fn watches(&self) -> bool {
        self.reads.has(Reads::ZEROS)
    }

    /// Whether the program runs, and not what spoils memory before it.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake
    }

    /// Notes the peak, and a moment of the time line when one is due.
    #[inline]
    pub(crate) fn observe(&mut self) {
        self.counters.superpages = self.counters.superpages.max(self.spaces.superpages);
        if self.spaces.resident > self.counters.resident_pages {
            self.counters.resident_pages = self.spaces.resident;
            self.peaked = true;
        }
        if self.awake && self.clock.now() >= self.next_moment {
            self.note_moment();
        }
    }

    /// A block was carried out, all of it or up to where the program was stopped: if memory was at its
    /// peak in it, notes what was touched by then. A block is followed before it is carried out, so of
    /// one that was not carried out whole only what is resident is known to be touched.
    pub(crate) fn settle(&mut self, touched: Counts, whole: bool) {
        if !whole {
            self.observe();
        }
        if std::mem::take(&mut self.peaked) {
            let least = |before: u64| before.max(self.counters.resident_pages);
            self.counters.touched_pages =
                touched.map(|(before, most)| if whole { most } else { most.min(least(before)) });
        }
    }

    fn note_moment(&mut self) {
        let now = self.clock.now();
        let free_superpages = self.memory.free_superpages();
        self.timeline.push(Moment {
            microseconds: self.clock.microseconds(now - self.began),
            superpages: self.spaces.superpages,
            resident_pages: self.spaces.resident,
            free_superpages,
            free_pages: self.memory.free_frames() + self.spaces.reservations.clear_frames(),
        });
        if self.timeline.len() >= MOMENTS {
            let mut at = 0;
            self.timeline.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.interval *= 2;
        }
        self.next_moment = now + self.interval;
    }

    /// The program waited for walks: its process is charged, for designs that ask who suffers most.
    #[inline]
    pub(crate) fn note_walks(&mut self, cycles: u64) {
        if self.reads.has(Reads::COVERAGE)
            && let Some(process) = self.spaces.processes.get_mut(&self.running)
        {
            process.overhead.0 += cycles;
            process.overhead.1 = self.clock.now();
        }
    }

    /// The end: what is still open is closed.
    pub(crate) fn finish(&mut self) {
        if self.awake {
            self.cut_off();
            self.note_moment();
        }
        let accesses = self.counters.accesses;
        self.phases.end(&self.clock, accesses);
    }
}
