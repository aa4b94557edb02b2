//! `Engine`: simulates one repetition, from the time at which all threads may fault until the last has touched its
//! slice.
//!
//! The stages of a fault, in order (`->` waits for a server, `+` lets time pass):
//!
//! ```text
//! Begin +touch +entry | Map -> map line | List -> node's free list (when the CPU's own is empty)
//! | Memory +zero +page | Table -> page-table lock +fill | Count -> counter's line | Unmap -> map line
//! ```
//!
//! Each CPU has at most one pending event: the end of its time or of its turn at a server. Events are keys of time and
//! CPU in a heap, so the lower CPU wins ties.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use policy::ahead::Prefault;
use policy::rules::ResidentCount;

use super::memory::Memory;
use super::period::Finder;
use super::prices::Prices;
use super::server::{Kind, Server};
use super::{Entries, Experiment, Stepping, Touches};

/// The next stage of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Begin,
    Map,
    Pages,
    List,
    Memory,
    Table,
    Count,
    Leave,
    Unmap,
    End,
    Done,
}

/// `Cpu::at` while the CPU is at no server.
const NOWHERE: u32 = u32::MAX;
/// Indices of servers, in this order: the cache line of the mapping's lock, the counter, then the free lists and the
/// page tables.
const MAP: u32 = 0;
const COUNTER: u32 = 1;
const LISTS: u32 = 2;

/// One CPU with its thread.
#[derive(Debug, Clone)]
pub(super) struct Cpu {
    pub stage: Stage,
    /// The server that the CPU occupies or waits for, or `NOWHERE`.
    pub at: u32,
    /// Time from the end of the service until the cache line reaches the CPU.
    pub later: u64,
    /// Time for which the CPU will hold the requested lock.
    pub hold: u64,
    /// The next page to touch.
    pub page: u64,
    /// The first page after the thread's slice.
    pub end: u64,
    /// Number of pages that the current fault maps.
    pub batch: u64,
    /// Number of pages on the CPU's own free list.
    pub list: u64,
    pub prefault: Prefault,
    /// Time at which the CPU touched its last page.
    pub finished: u64,
    pub faults: u64,
}

pub(super) struct Engine<'a> {
    pub prices: &'a Prices,
    pub memory: Memory,
    pub cpus: Vec<Cpu>,
    /// Start of each thread's slice, and the end of the last slice.
    slices: Vec<u64>,
    /// Number of threads started, running or done.
    begun: usize,
    pub servers: Vec<Server>,
    /// Next events: time and CPU.
    pub heap: BinaryHeap<Reverse<u64>>,
    /// Events to push after the current one.
    pushed: Vec<u64>,
    /// Pages taken from each node.
    pub taken: Vec<u64>,
    /// Base pages per page-table page. 0: no two threads share a page-table page, so its lock is uncontended.
    table_pages: u64,
    tables: u32,
    list_pages: u64,
    /// Number of events simulated one by one.
    pub events: u64,
    /// Number of faults skipped.
    pub skipped: u64,
}

/// Low bits of an event's key: the CPU.
const CPU_BITS: u32 = 10;

pub(super) const fn key(time: u64, cpu: u32) -> u64 {
    time << CPU_BITS | cpu as u64
}

pub(super) const fn time_of(key: u64) -> u64 {
    key >> CPU_BITS
}

pub(super) const fn cpu_of(key: u64) -> u32 {
    (key & ((1 << CPU_BITS) - 1)) as u32
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repetition {
    /// Time at which the last thread had touched its slice.
    pub end: u64,
    /// Sum of all threads' times.
    pub busy: u64,
    /// Faults.
    pub faults: u64,
    /// Pages taken from each node.
    pub taken: Vec<u64>,
    /// Number of events simulated one by one.
    pub events: u64,
    /// Number of faults skipped, in whole periods.
    pub skipped: u64,
}

impl<'a> Engine<'a> {
    pub fn new(experiment: &Experiment, prices: &'a Prices, memory: Memory) -> Self {
        let machine = &experiment.machine;
        let pages = experiment.pages();
        let threads = u64::from(experiment.threads);
        // With superpages, slices consist of whole superpages.
        let units = pages / prices.unit;
        let slices: Vec<u64> =
            (0..=threads).map(|thread| (units * thread / threads) * prices.unit).collect();
        let cpu = Cpu {
            stage: Stage::Begin,
            at: NOWHERE,
            later: 0,
            hold: 0,
            page: 0,
            end: 0,
            batch: 0,
            list: 0,
            prefault: Prefault::new(prices.kernel.prefault),
            finished: 0,
            faults: 0,
        };
        let entries = u64::from(machine.table_entries) * prices.unit;
        let is_apart = slices[..threads as usize].iter().all(|first| first % entries == 0);
        let table_pages = match prices.kernel.entries {
            Entries::LockPerTable if !is_apart => entries,
            _ => 0,
        };
        let tables = match table_pages {
            0 => 1,
            entries => pages.div_ceil(entries),
        };
        let mut servers = vec![Server::new(Kind::Line), Server::new(Kind::Line)];
        servers.extend((0..prices.nodes).map(|_| Server::new(Kind::ListLock)));
        servers.extend((0..tables).map(|_| Server::new(Kind::TableLock)));
        // The first thread unmapped last, so it owns every line. No CPU owns the line of a new page table.
        let is_old = |server: &&mut Server| {
            server.kind() != Kind::TableLock || prices.kernel.entries == Entries::OneLock
        };
        servers.iter_mut().filter(is_old).for_each(Server::reset);
        Self {
            prices,
            taken: vec![0; prices.nodes as usize],
            memory,
            cpus: vec![cpu; threads as usize],
            slices,
            begun: 0,
            servers,
            heap: BinaryHeap::new(),
            pushed: Vec::new(),
            table_pages,
            tables: LISTS + prices.nodes,
            list_pages: u64::from(machine.list_pages) * prices.unit,
            events: 0,
            skipped: 0,
        }
    }

    /// Runs until no event is left.
    pub fn run(mut self, stepping: Stepping) -> (Repetition, Memory) {
        let begin = |cpu: u32| Reverse(key(self.prices.start(cpu), cpu));
        self.heap = (0..self.cpus.len() as u32).map(begin).collect();
        let mut finder = Finder::new(&self, stepping);
        while let Some(top) = self.heap.peek() {
            let (now, cpu) = (time_of(top.0), cpu_of(top.0));
            let before = self.cpus[cpu as usize].faults;
            let next = self.carry_out(now, cpu);
            // If the same CPU has another event, which is the common case, replacing the top of the heap sifts only
            // once.
            match (next, self.heap.peek_mut()) {
                (Some(at), Some(mut top)) => *top = Reverse(key(at, cpu)),
                (None, Some(top)) => drop(PeekMut::pop(top)),
                (_, None) => {}
            }
            for key in self.pushed.drain(..) {
                self.heap.push(Reverse(key));
            }
            self.events += 1;
            let own = &self.cpus[cpu as usize];
            if finder.is_anchor(cpu) && (own.faults != before || own.stage == Stage::Done) {
                finder.look(&mut self, now);
            }
        }
        // A CPU that got no thread counts as unused.
        let ran = || self.cpus.iter().zip(0..).filter(|(cpu, _)| cpu.faults > 0);
        let end = ran().map(|(cpu, _)| cpu.finished).max().unwrap_or(0);
        let busy = ran().map(|(cpu, index)| cpu.finished - self.prices.start(index));
        let done = Repetition {
            end,
            busy: busy.sum(),
            faults: self.cpus.iter().map(|cpu| cpu.faults).sum(),
            taken: self.taken,
            events: self.events,
            skipped: self.skipped,
        };
        (done, self.memory)
    }

    /// Performs a CPU's current stage. Returns the time of the next stage, or `None` if the CPU waits or is done.
    fn carry_out(&mut self, now: u64, cpu: u32) -> Option<u64> {
        let at = self.cpus[cpu as usize].at;
        if at != NOWHERE {
            self.leave(at, now, cpu);
        }
        loop {
            let own = &mut self.cpus[cpu as usize];
            match own.stage {
                Stage::Begin => {
                    if own.page == own.end && !self.begin(cpu) {
                        let own = &mut self.cpus[cpu as usize];
                        own.stage = Stage::Done;
                        own.finished = now + own.later;
                        return None;
                    }
                    let own = &mut self.cpus[cpu as usize];
                    own.batch = match self.prices.unit {
                        1 if self.prices.kernel.prefault > 0 => {
                            // A batch stops at the end of the slice: the next pages belong to another thread.
                            let entries = self.prices.table_entries;
                            let table_end = (own.page / entries + 1) * entries;
                            own.prefault.at(own.page, own.end.min(table_end))
                        }
                        unit => unit,
                    };
                    own.faults += 1;
                    own.stage = Stage::Map;
                    let entry = self.prices.entry(own.page, own.batch);
                    return Some(now + entry + std::mem::take(&mut own.later));
                }
                Stage::Map => {
                    own.stage = Stage::Pages;
                    if let Some(next) = self.arrive(MAP, now, cpu, 0) {
                        return next;
                    }
                }
                Stage::Pages => {
                    let later = std::mem::take(&mut own.later);
                    if own.list >= own.batch {
                        own.stage = Stage::Memory;
                        if later > 0 {
                            return Some(now + later);
                        }
                        continue;
                    }
                    own.stage = Stage::List;
                    if later > 0 {
                        return Some(now + later);
                    }
                }
                Stage::List => {
                    own.stage = Stage::Memory;
                    let pages = (own.batch - own.list).div_ceil(self.list_pages) * self.list_pages;
                    own.list += pages;
                    let hold = pages / self.prices.unit * self.prices.costs.list_page;
                    let list = LISTS + self.prices.node(cpu);
                    if let Some(next) = self.arrive(list, now, cpu, hold) {
                        return next;
                    }
                }
                Stage::Memory => {
                    own.stage = match self.prices.kernel.entries {
                        Entries::Atomic => Stage::Count,
                        _ => Stage::Table,
                    };
                    own.list -= own.batch;
                    let batch = own.batch;
                    let home = self.prices.node(cpu);
                    let taken = self.memory.take(home, batch, now, self.prices);
                    self.taken[taken.node] += batch;
                    let fill = match self.prices.kernel.entries {
                        Entries::Atomic => self.prices.fill(batch),
                        _ => 0,
                    };
                    return Some(taken.done + self.prices.outside(batch) + fill);
                }
                Stage::Table => {
                    own.stage = match self.prices.kernel.rss {
                        ResidentCount::Atomic => Stage::Count,
                        _ => Stage::Leave,
                    };
                    let hold = self.prices.fill(own.batch);
                    let table = match self.table_pages {
                        // No two threads share this lock, so it has no queue.
                        0 if self.prices.kernel.entries == Entries::LockPerTable => {
                            return Some(now + hold);
                        }
                        0 => self.tables,
                        pages => self.tables + (own.page / pages) as u32,
                    };
                    if let Some(next) = self.arrive(table, now, cpu, hold) {
                        return next;
                    }
                }
                Stage::Count => {
                    own.stage = Stage::Leave;
                    if self.prices.kernel.rss == ResidentCount::Atomic
                        && let Some(next) = self.arrive(COUNTER, now, cpu, 0)
                    {
                        return next;
                    }
                }
                Stage::Leave => {
                    own.stage = Stage::Unmap;
                    let later = std::mem::take(&mut own.later);
                    if later > 0 {
                        return Some(now + later);
                    }
                }
                Stage::Unmap => {
                    own.stage = Stage::End;
                    if let Some(next) = self.arrive(MAP, now, cpu, 0) {
                        return next;
                    }
                }
                Stage::End => {
                    own.page = self.prices.next(own.page + own.batch).min(own.end);
                    own.stage = Stage::Begin;
                }
                Stage::Done => return None,
            }
        }
    }

    /// Starts the next thread on an idle CPU. Returns whether a thread was left.
    fn begin(&mut self, cpu: u32) -> bool {
        let own = &mut self.cpus[cpu as usize];
        // A slice may contain no touched page.
        while own.page == own.end {
            // All threads wait on the first CPU; each other CPU pulls one of them, once.
            if self.begun + 1 == self.slices.len() || (cpu > 0 && own.end > 0) {
                return false;
            }
            own.end = self.slices[self.begun + 1];
            own.page = self.prices.next(self.slices[self.begun]).min(own.end);
            own.prefault = Prefault::new(self.prices.kernel.prefault);
            self.begun += 1;
        }
        true
    }

    /// Returns whether no two threads contend for a page-table lock, or one lock covers all page tables.
    pub fn locks_are_apart(&self) -> bool {
        self.table_pages == 0
    }

    /// Returns a sketch of the state: the next CPU, the time until its event in picoseconds, and the number of waiting
    /// CPUs. Most different states have different sketches.
    pub fn sketch(&self, now: u64) -> [u64; 3] {
        let next = self.heap.peek().map_or(0, |first| first.0 - key(now, 0));
        let waiting = |server: u32| self.servers[server as usize].waiting() as u64;
        [next, waiting(MAP) << 32 | waiting(COUNTER), waiting(self.tables)]
    }

    /// Returns the page at which a page table's end clips batches that continue from `page`. `u64::MAX`: none is
    /// clipped.
    pub fn clipped_at(&self, page: u64) -> u64 {
        let (entries, batch) = (self.prices.table_entries, 1 << self.prices.kernel.prefault);
        let is_even = self.prices.touches == Touches::ALL
            && entries.is_multiple_of(batch)
            && page.is_multiple_of(batch);
        if is_even { u64::MAX } else { (page / entries + 1) * entries }
    }

    /// Requests a server for a CPU. Returns `None` if the CPU owned the server already and continues at once. Otherwise
    /// returns the time at which the CPU's turn ends, if that time is known yet.
    fn arrive(&mut self, server: u32, now: u64, cpu: u32, hold: u64) -> Option<Option<u64>> {
        let beside = self.beside(server);
        let own = &mut self.cpus[cpu as usize];
        own.hold = hold;
        let service = self.servers[server as usize].arrive(cpu, hold, beside, self.prices);
        match service {
            Some(service) if service.busy == 0 => None,
            Some(service) => {
                own.at = server;
                own.later = service.later;
                Some(Some(now + service.busy))
            }
            None => {
                own.at = server;
                Some(None)
            }
        }
    }

    /// Returns the number of waiters for the other lock in the same cache line: the address space's lock and the
    /// page-table lock share one.
    fn beside(&self, server: u32) -> usize {
        match server {
            _ if !self.prices.is_one_line => 0,
            MAP => self.servers[self.tables as usize].waiting(),
            table if table == self.tables => self.servers[MAP as usize].waiting(),
            _ => 0,
        }
    }

    /// Ends a CPU's turn and starts the turn of the next waiter.
    fn leave(&mut self, server: u32, now: u64, cpu: u32) {
        self.cpus[cpu as usize].at = NOWHERE;
        let Some(next) = self.servers[server as usize].leave(cpu, self.prices) else { return };
        let beside = self.beside(server);
        let own = &mut self.cpus[next as usize];
        let service = self.servers[server as usize].pass(next, own.hold, beside, self.prices);
        own.later = service.later;
        self.pushed.push(key(now + service.busy, next));
    }
}
