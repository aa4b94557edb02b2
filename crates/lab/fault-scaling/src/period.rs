//! `Finder`: detects that the state repeats, apart from the time and the page numbers, and skips the periods that are
//! certain to follow.
//!
//! A deterministic network of CPUs and servers with queues has finitely many states, so it returns to an earlier one.
//! The finder compares whole states, not hashes, each time the anchor CPU begins a fault. The finder replaces the kept
//! state by the current one after 1, 2, 4, 8 ... comparisons (Brent 1980). This finds a period of any length soon after
//! the period begins, and needs to store only one state. See docs/decisions/faults.md#7.

use std::cmp::Reverse;

use super::Stepping;
use super::engine::{Engine, Stage, cpu_of, key, time_of};

pub(super) struct Finder {
    /// The CPU at whose faults states are compared. `None`: the search is off.
    anchor: Option<u32>,
    /// The kept state.
    kept: Vec<u64>,
    /// Sketch of the kept state.
    sketch: [u64; 3],
    /// Counts at the time of the kept state.
    counts: Counts,
    /// Number of comparisons since the state was kept.
    looks: u64,
    /// Number of comparisons after which a newer state is kept.
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
            // States do not repeat when only some threads share a page-table lock and pass it on.
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

    /// Compares the state between two events with the kept one, and skips periods if they are equal.
    pub fn look(&mut self, engine: &mut Engine, now: u64) {
        // A working daemon's next step depends on the numbers of pages, so no state repeats.
        if !engine.memory.is_quiet() {
            (self.looks, self.limit) = (0, 1);
            self.kept.clear();
            return;
        }
        // Most states differ in their sketches; then the full state is not read.
        let sketch = engine.sketch(now);
        let is_alike = sketch == self.sketch && !self.kept.is_empty();
        if is_alike || self.looks + 1 >= self.limit {
            self.read(engine, now);
        }
        if is_alike && self.state == self.kept {
            let was = std::mem::take(&mut self.counts);
            skip(engine, now, &was);
            // The end of a slice or of the zeroed pages follows, so the search starts anew.
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

    /// Reads the state relative to now.
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

/// Skips the periods that are certain to follow: no slice and no stock of pages ends in them.
fn skip(engine: &mut Engine, now: u64, was: &Counts) {
    let time = now - was.time;
    let batch = (1 << engine.prices.kernel.prefault).max(engine.prices.unit);
    let mut times = u64::MAX;
    for (cpu, was) in engine.cpus.iter().zip(&was.pages) {
        // The last batch of a slice may be smaller. A CPU that made no progress sets no limit.
        let end = cpu.end.min(engine.clipped_at(cpu.page));
        let left = (end - cpu.page).saturating_sub(2 * batch);
        times = times.min(left.checked_div(cpu.page - was).unwrap_or(u64::MAX));
    }
    let stocks = engine.memory.stocks();
    let less = was.stocks.iter().zip(&stocks).map(|(was, stock)| was.checked_sub(stock.has));
    // A stock grew: a daemon ran between the two states.
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
