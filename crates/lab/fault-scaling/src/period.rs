//! `Finder`: tells when everything is as it was, but for the time and the pages, and passes over as many
//! such periods as surely follow.
//!
//! A network of identical CPUs and servers with queues, without chance, comes back to a state that it was
//! in: there are finitely many. States are compared whole, not by a hash, each time the first CPU that is
//! not done begins a fault; the one that others are compared with is renewed after 1, 2, 4, 8 ... of them
//! (Brent 1980), so that a period of any length is found soon after it began, in the memory of one state.
//! See docs/decisions/faults.md#7.

use std::cmp::Reverse;

use super::Stepping;
use super::engine::{Engine, Stage, cpu_of, key, time_of};

pub(super) struct Finder {
    /// The CPU at whose faults states are looked at. `None`: no more of that.
    anchor: Option<u32>,
    /// The state that others are compared with, a few numbers of it, and the counts that belong to it.
    kept: Vec<u64>,
    sketch: [u64; 3],
    counts: Counts,
    /// Looks since it was kept, and how many there may be.
    looks: u64,
    limit: u64,
    /// Reused buffer.
    state: Vec<u64>,
    pending: Vec<u64>,
}

/// Counts that change from period to period.
#[derive(Default)]
struct Counts {
    time: u64,
    pages: Vec<u64>,
    faults: Vec<u64>,
    taken: Vec<u64>,
    stocks: Vec<u64>,
}

impl Finder {
    pub fn new(engine: &Engine, stepping: Stepping) -> Self {
        let apart = engine.locks_are_apart();
        Self {
            // Locks that are passed one after the other, and shared by some, never come back.
            anchor: (stepping == Stepping::Skip && apart).then_some(0),
            kept: Vec::new(),
            sketch: [0; 3],
            counts: Counts::default(),
            looks: 0,
            limit: 1,
            state: Vec::new(),
            pending: vec![0; engine.cpus.len()],
        }
    }

    pub fn is_anchor(&self, cpu: u32) -> bool {
        self.anchor == Some(cpu)
    }

    /// Examines the state between two events.
    pub fn look(&mut self, engine: &mut Engine, now: u64) {
        // Whose next turn depends on how many pages are left is not as it was.
        if !engine.memory.is_quiet() {
            (self.looks, self.limit) = (0, 1);
            self.kept.clear();
            return;
        }
        // Most states differ in a few numbers already: then the others need not be read.
        let sketch = engine.sketch(now);
        let is_alike = sketch == self.sketch && !self.kept.is_empty();
        if is_alike || self.looks + 1 >= self.limit {
            self.read(engine, now);
        }
        if is_alike && self.state == self.kept {
            let was = std::mem::take(&mut self.counts);
            skip(engine, now, &was);
            // What follows is the end of some slice, or of the pages that were zeroed.
            self.kept.clear();
            (self.looks, self.limit) = (0, 1);
        } else {
            self.looks += 1;
            if self.looks >= self.limit {
                std::mem::swap(&mut self.kept, &mut self.state);
                self.sketch = sketch;
                self.counts = counts(engine, now);
                (self.looks, self.limit) = (0, self.limit * 2);
            }
        }
        let anchor = self.anchor.map_or(0, |cpu| cpu as usize);
        if engine.cpus[anchor].stage == Stage::Done {
            let next = engine.cpus.iter().position(|cpu| cpu.stage != Stage::Done);
            self.anchor = next.map(|cpu| cpu as u32);
        }
    }

    /// The state, relative to now.
    fn read(&mut self, engine: &Engine, now: u64) {
        let state = &mut self.state;
        state.clear();
        self.pending.fill(u64::MAX);
        for Reverse(event) in engine.heap.iter() {
            self.pending[cpu_of(*event) as usize] = time_of(*event) - now;
        }
        for (cpu, pending) in engine.cpus.iter().zip(&self.pending) {
            state.push(*pending);
            if cpu.stage == Stage::Done {
                continue;
            }
            state.push((cpu.stage as u64) << 32 | u64::from(cpu.at));
            state.push(cpu.later);
            state.push(cpu.end);
            state.push(cpu.page % engine.prices.touches.period());
            state.push(cpu.batch << 32 | cpu.list);
            if engine.prices.kernel.prefault > 0 {
                let expected = cpu.prefault.predicted().wrapping_sub(cpu.page);
                state.push(expected);
                state.push(u64::from(cpu.prefault.order()));
            }
        }
        for server in &engine.servers {
            server.state(state);
        }
        engine.memory.state(now, state);
    }
}

fn counts(engine: &Engine, now: u64) -> Counts {
    Counts {
        time: now,
        pages: engine.cpus.iter().map(|cpu| cpu.page).collect(),
        faults: engine.cpus.iter().map(|cpu| cpu.faults).collect(),
        taken: engine.taken.clone(),
        stocks: engine.memory.stocks().iter().map(|stock| stock.has).collect(),
    }
}

/// Passes over the periods that follow for sure: no slice ends in them, and no stock of pages.
fn skip(engine: &mut Engine, now: u64, was: &Counts) {
    let time = now - was.time;
    let batch = (1 << engine.prices.kernel.prefault).max(engine.prices.unit);
    let mut times = u64::MAX;
    for (cpu, was) in engine.cpus.iter().zip(&was.pages) {
        // The last batch of a slice may be a smaller one. Who did nothing ends nothing.
        let end = cpu.end.min(engine.clipped_at(cpu.page));
        let left = (end - cpu.page).saturating_sub(2 * batch);
        times = times.min(left.checked_div(cpu.page - was).unwrap_or(u64::MAX));
    }
    let stocks = engine.memory.stocks();
    let less = was.stocks.iter().zip(&stocks).map(|(was, stock)| was.checked_sub(stock.has));
    // A daemon came and went between the two.
    let Some(shrunk) = less.collect::<Option<Vec<u64>>>() else { return };
    let slack = batch * engine.cpus.len() as u64;
    for (stock, shrunk) in stocks.iter().zip(&shrunk) {
        let left = stock.has.saturating_sub(stock.least + slack);
        times = times.min(left.checked_div(*shrunk).unwrap_or(u64::MAX));
    }
    if times == 0 || times == u64::MAX {
        return;
    }
    let ahead = time * times;
    let events = std::mem::take(&mut engine.heap).into_vec();
    let later = |Reverse(event): Reverse<u64>| Reverse(key(time_of(event) + ahead, cpu_of(event)));
    engine.heap = events.into_iter().map(later).collect();
    for (index, cpu) in engine.cpus.iter_mut().enumerate() {
        let step = (cpu.page - was.pages[index]) * times;
        let expected = cpu.prefault.predicted();
        cpu.page += step;
        if expected != u64::MAX {
            cpu.prefault.expect(expected + step);
        }
        let faults = (cpu.faults - was.faults[index]) * times;
        cpu.faults += faults;
        engine.skipped += faults;
    }
    for (taken, was) in engine.taken.iter_mut().zip(&was.taken) {
        *taken += (*taken - was) * times;
    }
    engine.memory.skip(&shrunk, times, time);
}
