//! `Simulated`: a machine of known geometry behind the calibrator's interface. The tests' ground truth,
//! and a way to see what a machine's file would look like from inside.

use hardware::{Footprint, Level, Machine, Replacement, Size, Tally, Translate, Visitor, dispatch};
use units::PageSize;
use workload::chase::swaps;
use workload::rng::{SplitMix64, mix};

use crate::caches::Caches;
use crate::probe::{Clock, Offer, Place, Probe, ProbeError};

/// The simulator numbers base pages below this (`hardware::Translate`).
const SPAN: u64 = 1 << 31;
/// The bytes of a page-table entry and of a cache line.
const ENTRY: u64 = 8;
const LINE: u64 = 64;

/// A simulated machine.
#[derive(Debug, Clone)]
pub struct Simulated {
    machine: Machine,
    noise: Option<(f64, SplitMix64)>,
}

/// What the translations of a chase came to, by the simulator's own books.
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
    /// This machine, quiet.
    pub fn new(machine: Machine) -> Self {
        Self { machine, noise: None }
    }

    /// With noise: every reading is up to `share` too high, evenly; one in forty is half as high again, as
    /// on a computer that others use as well.
    pub fn with_noise(machine: Machine, share: f64, seed: u64) -> Self {
        Self { machine, noise: Some((share, SplitMix64::new(seed))) }
    }

    /// The size of page that has so many bytes.
    fn size(&self, page: PageSize) -> Result<Size, ProbeError> {
        let bytes = |size: &Size| self.machine.base_page.bytes() << size.shift() == page.bytes();
        Size::ALL.into_iter().find(bytes).ok_or(ProbeError::NotOffered(page))
    }

    /// What the translations of this chase come to.
    pub fn truth(&self, page: PageSize, places: &[Place], seed: u64) -> Result<Truth, ProbeError> {
        let size = self.size(page)?;
        let numbers = self.numbers(size, places);
        let (order, warm) = (order(numbers.len(), seed), warm_laps(&self.machine));
        let run = Run { order: &order, numbers: &numbers, size, warm };
        let tally = dispatch(&self.machine, run);
        let n = numbers.len() as f64;
        let entry = self.machine.entry_size(size);
        let second = self.machine.l2.iter().find(|tlb| tlb.holds[entry as usize]);
        let walks = self.machine.walk_cycles(&tally, footprint(size, &numbers));
        let hits = tally.all_l2_hits() as f64;
        let cycles = walks + hits * second.map_or(0.0, |tlb| f64::from(tlb.cycles));
        Ok(Truth { second: hits / n, walks: tally.all_walks() as f64 / n, cycles: cycles / n })
    }

    /// The base pages of the places.
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
        sizes.filter_map(offer).collect()
    }

    fn line(&self) -> u64 {
        LINE
    }

    fn chase(&mut self, page: PageSize, places: &[Place], seed: u64) -> Result<f64, ProbeError> {
        let truth = self.truth(page, places, seed)?;
        let data = data_cycles(&self.machine, page, places, seed);
        let exact = data + truth.cycles;
        let Some((share, rng)) = &mut self.noise else { return Ok(exact) };
        let unit = |draw: u64| draw as f64 / u64::MAX as f64;
        let burst = if rng.draw().is_multiple_of(40) { 1.5 } else { 1.0 };
        Ok(exact * burst * (1.0 + *share * unit(rng.draw())))
    }

    fn clock(&self) -> Clock {
        let mhz = f64::from(self.machine.mhz);
        Clock { core_mhz: mhz, counter_mhz: None, seen_mhz: (mhz, mhz), retried: 0 }
    }
}

/// Laps before the one that is measured: what was used least recently goes by the lap before, a tree of
/// bits takes a few to settle.
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
}

impl Visitor for Run<'_> {
    type Output = Tally;

    fn visit<T: Translate>(self, mut tlb: T) -> Tally {
        let lap = |tlb: &mut T| {
            for &index in self.order {
                let _: Level = tlb.look_up(self.numbers[index as usize], self.size);
            }
        };
        (0..self.warm).for_each(|_| lap(&mut tlb));
        let before = tlb.tally();
        lap(&mut tlb);
        tlb.tally() - before
    }
}

/// The indices in the order in which one random cycle meets them.
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

/// Lines of page-table entries that these pages' leaves and the levels above use.
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
    }
}

/// Mean cycles of the loads themselves. Each page has a frame of its own somewhere.
fn data_cycles(machine: &Machine, page: PageSize, places: &[Place], seed: u64) -> f64 {
    let lines = page.bytes() / LINE;
    let address = |place: &Place| mix(place.page + 1) % (1 << 24) * lines + place.line;
    let order = order(places.len(), seed);
    let mut caches = Caches::new(machine);
    let mut lap = || -> u64 {
        order.iter().map(|&index| caches.load(address(&places[index as usize]))).sum()
    };
    lap();
    lap() as f64 / places.len() as f64
}
