//! Compares the engine with a slow reference model: each fault is a list of steps, the next event is found by scanning
//! all CPUs, and queues are plain lists. The model uses the engine's prices and memory.

use policy::ahead::Prefault;
use policy::rules::ResidentCount;
use proptest::prelude::*;

use super::experiments;
use crate::engine::{Engine, Repetition};
use crate::memory::Memory;
use crate::prices::{Prices, Waiting};
use crate::{Entries, Experiment, Lock, Stepping};

/// A step of a fault.
#[derive(Clone, Copy, PartialEq)]
enum Deed {
    /// Time passes.
    Time(u64),
    /// An atomic instruction on the named line.
    Line(&'static str),
    /// A lock: its name, its number, and the time in picoseconds for which it is held.
    Lock(&'static str, u64, u64),
    /// Pages are allocated.
    Pages(u64),
}

struct Thread {
    slice: std::ops::Range<u64>,
    prefault: Prefault,
    list: u64,
    deeds: std::collections::VecDeque<Deed>,
    /// Time of its next event; `None` while it waits.
    at: Option<u64>,
    /// Whether the CPU has the line or lock of its first step.
    is_served: bool,
    has_begun: bool,
    has_touched: bool,
    /// Time from the end of the line's busy time until the line arrives.
    later: u64,
    finished: u64,
}

/// A line or a lock: its last owner, whether it is busy, and its waiters.
struct Thing {
    name: &'static str,
    number: u64,
    owner: Option<u32>,
    is_busy: bool,
    waiting: Vec<u32>,
    stayed: u32,
}

fn is_touched(experiment: &Experiment, page: u64) -> bool {
    let (run, gap) = (u64::from(experiment.touches.run), u64::from(experiment.touches.gap));
    page % (run + gap) < run
}

/// Returns the first page, between `from` and `end`, of a unit (the pages that one fault maps) with a touched page.
fn touched(experiment: &Experiment, prices: &Prices, from: u64, end: u64) -> u64 {
    let mut page = from;
    while page < end && !is_touched(experiment, page) {
        page += 1;
    }
    if page < end { page / prices.unit * prices.unit } else { end }
}

fn fault(thread: &mut Thread, cpu: u32, experiment: &Experiment, prices: &Prices) {
    let kernel = &experiment.kernel;
    let (page, end) = (thread.slice.start, thread.slice.end);
    let entries = u64::from(experiment.machine.table_entries);
    let table_end = (page / entries + 1) * entries;
    let batch = match prices.unit {
        1 => thread.prefault.at(page, end.min(table_end)),
        unit => unit,
    };
    thread.slice.start = touched(experiment, prices, page + batch, end);
    let used = (page..page + batch).filter(|page| is_touched(experiment, *page)).count() as u64;
    let mut deeds = vec![Deed::Time(prices.costs.entry + used * prices.touch), Deed::Line("map")];
    if thread.list < batch {
        let refill = u64::from(experiment.machine.list_pages) * prices.unit;
        let pages = (batch - thread.list).div_ceil(refill) * refill;
        thread.list += pages;
        let hold = pages / prices.unit * prices.costs.list_page;
        deeds.push(Deed::Lock("list", u64::from(prices.node(cpu)), hold));
    }
    thread.list -= batch;
    deeds.push(Deed::Pages(batch));
    let table = page / (entries * prices.unit);
    match kernel.entries {
        Entries::OneLock => deeds.push(Deed::Lock("table", 0, prices.fill(batch))),
        Entries::LockPerTable => deeds.push(Deed::Lock("table", table, prices.fill(batch))),
        Entries::Atomic => deeds.push(Deed::Time(prices.fill(batch))),
    }
    if kernel.rss == ResidentCount::Atomic {
        deeds.push(Deed::Line("counter"));
    }
    deeds.push(Deed::Line("map"));
    thread.deeds.extend(deeds);
}

struct Twin<'a> {
    experiment: &'a Experiment,
    prices: &'a Prices,
    threads: Vec<Thread>,
    slices: std::collections::VecDeque<std::ops::Range<u64>>,
    things: Vec<Thing>,
}

impl Twin<'_> {
    fn thing(&mut self, name: &'static str, number: u64) -> usize {
        let is = |thing: &Thing| (thing.name, thing.number) == (name, number);
        if let Some(found) = self.things.iter().position(is) {
            return found;
        }
        let (waiting, is_busy) = (Vec::new(), false);
        let is_new = name == "table" && self.experiment.kernel.entries == Entries::LockPerTable;
        let owner = (!is_new).then_some(0);
        self.things.push(Thing { name, number, owner, is_busy, waiting, stayed: 0 });
        self.things.len() - 1
    }

    /// Returns the number of waiters for a line or lock, or for its neighbour in the same line.
    fn waiting(&mut self, thing: usize) -> usize {
        let own = self.things[thing].waiting.len();
        let neighbour = match self.things[thing].name {
            "map" => "table",
            "table" => "map",
            _ => return own,
        };
        let is_beside = self.prices.is_one_line;
        let other = self.thing(neighbour, 0);
        own + if is_beside { self.things[other].waiting.len() } else { 0 }
    }

    /// Gives a line or lock to a CPU for the time of the step.
    fn serve(&mut self, thing: usize, cpu: u32, now: u64, deed: Deed) {
        let all = self.waiting(thing);
        let own = &self.things[thing];
        let node = self.prices.node(cpu);
        let near = own.waiting.iter().filter(|other| self.prices.node(**other) == node).count();
        let service = match deed {
            Deed::Line(_) => self.prices.atomic(own.owner, cpu, all),
            Deed::Lock(name, _, hold) => {
                let waiting = Waiting { all, near, is_table: name == "table" };
                self.prices.lock(own.owner, cpu, waiting, hold)
            }
            _ => unreachable!(),
        };
        let thread = &mut self.threads[cpu as usize];
        thread.at = Some(now + service.busy);
        thread.later = service.later;
        thread.is_served = true;
        self.things[thing].is_busy = true;
    }

    /// Releases a line or lock to the next waiter.
    fn leave(&mut self, thing: usize, cpu: u32, now: u64) {
        let own = &mut self.things[thing];
        own.owner = Some(cpu);
        own.is_busy = false;
        if own.waiting.is_empty() {
            own.stayed = 0;
            return;
        }
        let mut place = 0;
        let is_lock = own.name == "table" || own.name == "list";
        if is_lock && self.experiment.kernel.lock == Lock::Hierarchical {
            let node = self.prices.node(cpu);
            let near = own.waiting.iter().position(|other| self.prices.node(*other) == node);
            let far = own.waiting.iter().position(|other| self.prices.node(*other) != node);
            if let (Some(near), true) = (near, far.is_none() || own.stayed < 50) {
                place = near;
                own.stayed += u32::from(far.is_some());
            } else {
                place = far.unwrap();
                own.stayed = 0;
            }
        }
        let next = own.waiting.remove(place);
        let deed = self.threads[next as usize].deeds[0];
        self.serve(thing, next, now, deed);
    }

    fn run(&mut self, memory: &mut Memory, taken: &mut [u64]) {
        loop {
            let at = |cpu: &usize| self.threads[*cpu].at.map(|at| (at, *cpu));
            let Some((now, cpu)) = (0..self.threads.len()).filter_map(|cpu| at(&cpu)).min() else {
                return;
            };
            self.act(cpu as u32, now, memory, taken);
        }
    }

    fn act(&mut self, cpu: u32, now: u64, memory: &mut Memory, taken: &mut [u64]) {
        let index = cpu as usize;
        self.threads[index].at = None;
        loop {
            let thread = &mut self.threads[index];
            let Some(deed) = thread.deeds.front().copied() else {
                while thread.slice.is_empty()
                    && (cpu == 0 || !thread.has_begun)
                    && let Some(slice) = self.slices.pop_front()
                {
                    let first = touched(self.experiment, self.prices, slice.start, slice.end);
                    thread.slice = first..slice.end;
                    thread.prefault = Prefault::new(self.experiment.kernel.prefault);
                    thread.has_begun = true;
                }
                if thread.slice.is_empty() {
                    thread.finished = now + std::mem::take(&mut thread.later);
                    return;
                }
                thread.has_touched = true;
                fault(thread, cpu, self.experiment, self.prices);
                continue;
            };
            // The line arrives after its busy time; only then does the CPU continue.
            if !thread.is_served && thread.later > 0 {
                match deed {
                    Deed::Time(_) => {}
                    _ => {
                        thread.at = Some(now + std::mem::take(&mut thread.later));
                        return;
                    }
                }
            }
            match deed {
                Deed::Time(time) => {
                    thread.at = Some(now + time + std::mem::take(&mut thread.later));
                    thread.deeds.pop_front();
                    return;
                }
                Deed::Pages(batch) => {
                    let got = memory.take(self.prices.node(cpu), batch, now, self.prices);
                    taken[got.node] += batch;
                    let mut time = got.done + self.prices.outside(batch);
                    thread.deeds.pop_front();
                    if let Some(Deed::Time(fill)) = thread.deeds.front().copied() {
                        time += fill;
                        thread.deeds.pop_front();
                    }
                    thread.at = Some(time);
                    return;
                }
                Deed::Line(name) | Deed::Lock(name, ..) => {
                    let number = if let Deed::Lock(_, number, _) = deed { number } else { 0 };
                    let thing = self.thing(name, number);
                    if self.threads[index].is_served {
                        self.threads[index].is_served = false;
                        self.threads[index].deeds.pop_front();
                        self.leave(thing, cpu, now);
                    } else if self.things[thing].is_busy {
                        self.things[thing].waiting.push(cpu);
                        return;
                    } else {
                        self.serve(thing, cpu, now, deed);
                        if self.threads[index].at != Some(now) {
                            return;
                        }
                        // The step took no time, so no other CPU had to wait.
                        self.threads[index].at = None;
                        self.threads[index].is_served = false;
                        self.threads[index].deeds.pop_front();
                        (self.things[thing].is_busy, self.things[thing].owner) = (false, Some(cpu));
                    }
                }
            }
        }
    }
}

fn twin(experiment: &Experiment) -> (Repetition, Memory) {
    let prices = Prices::new(experiment);
    let mut memory = Memory::new(experiment, &prices);
    memory.quiet(prices.start(0), true);
    let units = experiment.pages() / prices.unit;
    let threads = u64::from(experiment.threads);
    let bound = |cpu: u64| units * cpu / threads * prices.unit;
    let slices = (0..threads).map(|thread| bound(thread)..bound(thread + 1)).collect();
    let thread = |cpu: u64| Thread {
        slice: 0..0,
        has_begun: false,
        has_touched: false,
        prefault: Prefault::new(0),
        list: 0,
        deeds: Default::default(),
        at: Some(prices.start(cpu as u32)),
        is_served: false,
        later: 0,
        finished: 0,
    };
    let threads: Vec<Thread> = (0..threads).map(thread).collect();
    let mut taken = vec![0; prices.nodes as usize];
    let mut twin = Twin { experiment, prices: &prices, threads, slices, things: Vec::new() };
    twin.run(&mut memory, &mut taken);
    let ran = || twin.threads.iter().zip(0..).filter(|(thread, _)| thread.has_touched);
    let done = Repetition {
        end: ran().map(|(thread, _)| thread.finished).max().unwrap(),
        busy: ran().map(|(thread, cpu)| thread.finished - prices.start(cpu)).sum(),
        faults: 0,
        taken,
        events: 0,
        skipped: 0,
    };
    (done, memory)
}

fn engine(experiment: &Experiment, stepping: Stepping) -> (Repetition, Memory) {
    let prices = Prices::new(experiment);
    let mut memory = Memory::new(experiment, &prices);
    memory.quiet(prices.start(0), true);
    Engine::new(experiment, &prices, memory).run(stepping)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases(200) as u32))]

    #[test]
    fn the_engine_does_what_its_twin_does(experiment in experiments::any()) {
        let (own, memory) = engine(&experiment, Stepping::EachEvent);
        let (other, other_memory) = twin(&experiment);
        prop_assert_eq!(own.end, other.end);
        prop_assert_eq!(own.busy, other.busy);
        prop_assert_eq!(own.taken, other.taken);
        prop_assert!(memory.is_as(&other_memory));
    }

    #[test]
    fn passing_over_periods_changes_nothing(experiment in experiments::any()) {
        let (skipping, memory) = engine(&experiment, Stepping::Skip);
        let (stepping, other) = engine(&experiment, Stepping::EachEvent);
        prop_assert_eq!((stepping.end, stepping.busy), (skipping.end, skipping.busy));
        prop_assert_eq!((stepping.faults, stepping.taken), (skipping.faults, skipping.taken));
        prop_assert!(memory.is_as(&other));
    }
}
