//! `Simulated`: a machine of known geometry that implements the calibrator's interface. The tests compare the
//! calibration with this geometry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use machine::{Footprint, Level, Machine, Replacement, Size, Tally};
use tlb_sim::{Translate, Visitor, dispatch};
use units::PageSize;
use workload::chase::swaps;
use workload::rng::{SplitMix64, mix};

use super::caches::Caches;
use superpage_tlb_probe::{Clock, Offer, Place, Probe, ProbeError};

/// The simulator numbers base pages below this (`tlb_sim::Translate`).
const SPAN: u64 = 1 << 31;
/// The bytes of a page-table entry and of a cache line.
const ENTRY: u64 = 8;
const LINE: u64 = 64;

/// A simulated machine. Clones share the computed results of chases.
#[derive(Debug, Clone)]
pub struct Simulated {
    machine: Machine,
    /// The only page size that the machine offers; `None`: all sizes.
    only: Option<PageSize>,
    noise: Option<(Noise, Disturbances)>,
    known: Arc<Mutex<Known>>,
}

/// Cycles by page size, presence of a neighbour, and places.
type Known = HashMap<(PageSize, bool, u64), f64>;

/// Disturbances of the chases. Shares are between 0 and 1; chances are per reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Every reading is up to this share too high.
    pub jitter: f64,
    /// The clock drifts between chases, and is misread, by up to this share either way.
    pub drift: f64,
    /// The chance that a burst begins, in which all readings are up to 50 % higher.
    pub burst: f64,
    /// The chance that a reading loses a time slice and becomes 2 to 10 times as high.
    pub slice: f64,
    /// The share of time in which another thread of the core uses the TLB.
    pub neighbour: f64,
    /// Share of the cost of a hit in the second data cache that badly placed frames add to a footprint, until memory is
    /// allocated anew.
    pub frames: f64,
}

impl Noise {
    /// A machine without other users.
    pub const QUIET: Self = Self {
        jitter: 0.003,
        drift: 0.001,
        burst: 0.002,
        slice: 0.001,
        neighbour: 0.0,
        frames: 0.01,
    };
    /// A machine with other users.
    pub const BUSY: Self = Self {
        jitter: 0.005,
        drift: 0.002,
        burst: 0.005,
        slice: 0.02,
        neighbour: 0.2,
        frames: 0.02,
    };
}

/// The state of the disturbances.
#[derive(Debug, Clone)]
struct Disturbances {
    rng: SplitMix64,
    /// Number of readings for which a burst, and a phase with or without a neighbour, still last.
    burst: u64,
    phase: u64,
    neighbour: bool,
    /// The clock's error, as a share.
    clock: f64,
    /// Number of the current set of frames.
    epoch: u64,
}

impl Disturbances {
    /// Draws a number between 0 and 1.
    fn unit(&mut self) -> f64 {
        self.rng.draw() as f64 / u64::MAX as f64
    }

    /// Advances to the next reading; returns whether a neighbour is active.
    fn next(&mut self, noise: &Noise) -> bool {
        self.burst = self.burst.saturating_sub(1);
        if self.unit() < noise.burst {
            self.burst = 1 + self.rng.draw() % 60;
        }
        self.phase = self.phase.saturating_sub(1);
        if self.phase == 0 {
            self.phase = 1 + self.rng.draw() % 80;
            self.neighbour = self.unit() < noise.neighbour;
        }
        let step = noise.drift * (self.unit() - 0.5);
        self.clock = (self.clock + step).clamp(-noise.drift, noise.drift);
        self.neighbour
    }

    /// Returns an exact reading of `places` places as it would be observed. `second` is the cost of a hit in the second
    /// data cache.
    fn disturb(&mut self, noise: &Noise, exact: f64, places: usize, second: f64) -> f64 {
        let frames = mix(self.epoch << 32 | places as u64) as f64 / u64::MAX as f64;
        let cold = if places > 512 { noise.frames * second * frames } else { 0.0 };
        let burst = if self.burst > 0 { 1.0 + 0.5 * self.unit() } else { 1.0 };
        let lost = if self.unit() < noise.slice { 2.0 + 8.0 * self.unit() } else { 1.0 };
        (exact + cold) * burst * lost * (1.0 + self.clock) * (1.0 + noise.jitter * self.unit())
    }
}

/// The translations of a chase, by the simulator's own counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truth {
    /// The share of accesses that the second level answered.
    pub second: f64,
    /// The share of accesses that walked.
    pub walks: f64,
    /// Cycles of all translation, per access.
    pub cycles: f64,
}

impl Simulated {
    /// Returns this machine without disturbances.
    pub fn new(machine: Machine) -> Self {
        Self { machine, only: None, noise: None, known: Arc::default() }
    }

    /// The same machine, offering pages of this size only.
    #[must_use]
    pub fn only(self, page: PageSize) -> Self {
        Self { only: Some(page), ..self }
    }

    /// The same machine with this noise, drawn from `seed`. All chases of a set of places use the same order, because
    /// other orders would only add noise and take much time.
    #[must_use]
    pub fn with_noise(&self, noise: Noise, seed: u64) -> Self {
        let rng = SplitMix64::new(seed);
        let none =
            Disturbances { rng, burst: 0, phase: 0, neighbour: false, clock: 0.0, epoch: seed };
        Self { noise: Some((noise, none)), ..self.clone() }
    }

    /// Returns a chase's cycles, without noise.
    fn exact(
        &self,
        page: PageSize,
        places: &[Place],
        seed: u64,
        neighbour: bool,
    ) -> Result<f64, ProbeError> {
        let truth = self.follow(page, places, seed, neighbour)?;
        Ok(data_cycles(&self.machine, page, places, seed) + truth.cycles)
    }

    /// Returns the page size with this many bytes.
    fn size(&self, page: PageSize) -> Result<Size, ProbeError> {
        let bytes = |size: &Size| self.machine.base_page.bytes() << size.shift() == page.bytes();
        Size::ALL.into_iter().find(bytes).ok_or(ProbeError::NotOffered(page))
    }

    /// Returns the translations of this chase.
    pub fn truth(&self, page: PageSize, places: &[Place], seed: u64) -> Result<Truth, ProbeError> {
        self.follow(page, places, seed, false)
    }

    fn follow(
        &self,
        page: PageSize,
        places: &[Place],
        seed: u64,
        neighbour: bool,
    ) -> Result<Truth, ProbeError> {
        let size = self.size(page)?;
        let numbers = self.numbers(size, places);
        let (order, warm) = (order(numbers.len(), seed), warm_laps(&self.machine));
        let run = Run { order: &order, numbers: &numbers, size, warm, neighbour };
        let tally = dispatch(&self.machine, run);
        let n = numbers.len() as f64;
        let entry = self.machine.entry_size(size);
        let second = self.machine.l2.iter().find(|tlb| tlb.holds[entry as usize]);
        let walks = self.machine.walk_cycles(&tally, footprint(size, &numbers));
        let hits = tally.all_l2_hits() as f64;
        let cycles = walks + hits * second.map_or(0.0, |tlb| f64::from(tlb.cycles));
        Ok(Truth { second: hits / n, walks: tally.all_walks() as f64 / n, cycles: cycles / n })
    }

    /// Returns the base pages of the places.
    fn numbers(&self, size: Size, places: &[Place]) -> Vec<u32> {
        let lines = self.machine.base_page.bytes() / LINE;
        let number = |place: &Place| {
            let number = (place.page << size.shift()) + place.line / lines;
            assert!(number < SPAN, "{place:?} lies outside the address range");
            number as u32
        };
        places.iter().map(number).collect()
    }
}

impl Probe for Simulated {
    fn offers(&self) -> Vec<Offer> {
        let held = |size: Size| self.machine.l1.iter().any(|tlb| tlb.holds[size as usize]);
        let sizes = Size::ALL.into_iter().filter(|&size| size != Size::Cont || held(size));
        let offer = |size: Size| {
            let page = PageSize::new(self.machine.base_page.bytes() << size.shift()).ok()?;
            let span = SPAN >> size.shift();
            Some(Offer { page, means: "simulated".to_string(), pages: span.min(1 << 14), span })
        };
        let wanted = |offer: &Offer| self.only.is_none_or(|only| only == offer.page);
        sizes.filter_map(offer).filter(wanted).collect()
    }

    fn line(&self) -> u64 {
        LINE
    }

    fn chase(&mut self, page: PageSize, places: &[Place], seed: u64) -> Result<f64, ProbeError> {
        let Some((noise, mut state)) = self.noise.take() else {
            return self.exact(page, places, seed, false);
        };
        let neighbour = state.next(&noise);
        let hash = |hash, place: &Place| mix(hash ^ mix(place.page) ^ place.line);
        let key = (page, neighbour, places.iter().fold(0, hash));
        let known = self.known.lock().expect("nobody panics with it").get(&key).copied();
        let exact = match known {
            Some(exact) => exact,
            None => {
                let exact = self.exact(page, places, key.2, neighbour)?;
                self.known.lock().expect("nobody panics with it").insert(key, exact);
                exact
            }
        };
        let second = self.machine.caches.get(1).map_or(0.0, |cache| f64::from(cache.cycles));
        let seen = state.disturb(&noise, exact, places.len(), second);
        self.noise = Some((noise, state));
        Ok(seen)
    }

    fn renew(&mut self, _page: PageSize) -> Result<(), ProbeError> {
        if let Some((_, state)) = &mut self.noise {
            state.epoch += 1;
        }
        Ok(())
    }

    fn clock(&self) -> Clock {
        let mhz = f64::from(self.machine.mhz);
        Clock { core_mhz: mhz, counter_mhz: None, seen_mhz: (mhz, mhz), retried: 0 }
    }
}

/// Returns the number of laps before the measured one: LRU depends on the previous lap, and tree-PLRU takes a few laps
/// to settle.
fn warm_laps(machine: &Machine) -> usize {
    let mut levels = machine.l1.iter().chain(&machine.l2);
    if levels.all(|tlb| tlb.replacement == Replacement::Lru) { 1 } else { 3 }
}

/// A chase through a TLB.
struct Run<'a> {
    numbers: &'a [u32],
    order: &'a [u32],
    size: Size,
    warm: usize,
    /// Whether another thread uses the TLB.
    neighbour: bool,
}

/// The neighbour makes one of this many look-ups, over this many pages.
const NEIGHBOUR_EVERY: usize = 6;
const NEIGHBOUR_PAGES: usize = 200;

impl Visitor for Run<'_> {
    type Output = Tally;

    fn visit<T: Translate>(self, mut tlb: T) -> Tally {
        let lap = |tlb: &mut T| {
            for (at, &index) in self.order.iter().enumerate() {
                if self.neighbour && at % NEIGHBOUR_EVERY == 0 {
                    let other = SPAN as usize - 1 - at / NEIGHBOUR_EVERY * 7919 % NEIGHBOUR_PAGES;
                    let _: Level = tlb.look_up(other as u32, Size::Base);
                }
                let _: Level = tlb.look_up(self.numbers[index as usize], self.size);
            }
        };
        (0..self.warm).for_each(|_| lap(&mut tlb));
        let before = tlb.tally();
        lap(&mut tlb);
        tlb.tally() - before
    }
}

/// Returns the indices in the order of one random cycle.
fn order(count: usize, seed: u64) -> Vec<u32> {
    let mut next: Vec<u32> = (0..count as u32).collect();
    for (i, j) in swaps(count as u64, seed) {
        next.swap(i as usize, j as usize);
    }
    let mut here = 0;
    let step = |_| {
        here = next[here as usize];
        here
    };
    (0..count).map(step).collect()
}

/// Returns the lines of page-table entries that these pages' leaves and the upper levels use.
fn footprint(size: Size, numbers: &[u32]) -> Footprint {
    // One entry for 2^shift base pages; eight entries in a line.
    let lines = |shift: u32| {
        let mut lines: Vec<u32> = numbers.iter().map(|number| number >> shift >> 3).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.len() as u64 * (LINE / ENTRY) * ENTRY
    };
    let above = |leaf: Size, shift| if size <= leaf { lines(shift) } else { 0 };
    Footprint {
        pte_bytes: above(Size::Cont, 0),
        pde_bytes: above(Size::Large, 9),
        pdpte_bytes: lines(18),
        entries: numbers.len() as u64,
        memory: 8 << 30,
    }
}

/// Returns the mean cycles of the loads themselves. Each page has a random frame.
fn data_cycles(machine: &Machine, page: PageSize, places: &[Place], seed: u64) -> f64 {
    let lines = page.bytes() / LINE;
    let address = |place: &Place| mix(place.page + 1) % (1 << 24) * lines + place.line;
    let addresses: Vec<u64> = places.iter().map(address).collect();
    let order = order(places.len(), seed);
    let mut caches = Caches::new(machine, &addresses);
    let mut lap = || -> u64 { order.iter().map(|&index| caches.load(index as usize)).sum() };
    lap();
    lap() as f64 / places.len() as f64
}
