//! What replays say about instructions: their windows, timed on base pages, on superpages and without translation.
//! See docs/decisions/advise.md#2 and docs/decisions/advise.md#3.

use std::collections::{BTreeMap, BTreeSet};

use super::popularity::Popularity;
use super::price::{Price, Table};
use super::{Costs, Part};
use crate::code::Kind;
use crate::core::{Timed, in_flight, waits};
use crate::memory::{LINE, On, Shifts};
use crate::replay::{Step, Window};

/// Fewest replayed accesses of an instruction that are believed.
const MIN_STEPS: usize = 12;
/// Nanoseconds of a load from the first-level cache, less what the prices' smallest footprint holds.
const NEAREST: f64 = 1.5;
/// Nanoseconds from which an access is far: beyond the second-level cache.
const FAR: f64 = 10.0;
/// Far accesses before an access, each computed from the last one, with which the access is part of a chase. A look-up in a
/// hash table has one or two, and look-ups overlap.
const CHAIN: u32 = 2;
/// The part of translation that a program waits for where accesses are not a chase. Fitted: docs/decisions/advise.md#3.
const OVERLAPPED: f64 = 0.4;
/// Nanoseconds for which an access to the first-level cache occupies the core.
const ISSUE: f64 = 0.17;

/// A replay of a sample: its window, with the memory that each step is to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// The window.
    pub window: Window,
    /// What memory each step is to.
    pub on: Vec<Option<On>>,
}

/// What replays say about an instruction: sums over its accesses, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sums {
    /// Waiting for them now.
    all: f64,
    /// Of that, for translation.
    base: f64,
    /// What of that superpages leave.
    superpage: f64,
    /// Number of accesses.
    steps: usize,
}

impl Sums {
    /// Adds the sums of more accesses.
    pub fn add(&mut self, more: &Self) {
        self.all += more.all;
        self.base += more.base;
        self.superpage += more.superpage;
        self.steps += more.steps;
    }

    /// The parts of the time at the instruction; `None`: too few replays of it.
    pub fn part(&self) -> Option<Part> {
        if self.steps < MIN_STEPS || self.all <= 0.0 {
            return None;
        }
        let share = |part: f64| (part / self.all).clamp(0.0, 1.0);
        Some(Part { base: share(self.base), superpage: share(self.superpage) })
    }
}

/// The sums of each window, by instruction.
pub fn sums(
    windows: &[Replayed],
    pages: &Popularity,
    table: &Table,
    prices: &Costs,
    shifts: Shifts,
) -> Vec<BTreeMap<u64, Sums>> {
    let mut outcomes: BTreeMap<u64, [u32; 2]> = BTreeMap::new();
    for (branch, is_taken) in windows.iter().flat_map(|one| &one.window.branches) {
        outcomes.entry(*branch).or_default()[usize::from(*is_taken)] += 1;
    }
    // A branch that is taken half the time is mispredicted half the time, as if its outcomes were random.
    let chance = |branch: u64| {
        outcomes.get(&branch).map_or(0.0, |[not, taken]| {
            f64::from(*not.min(taken)) / f64::from((not + taken).max(1))
        })
    };
    let in_flight = in_flight();
    let window = |one: &Replayed| {
        let timed = Steps::new(one, pages, table, prices, shifts).timed(one, &chance);
        let [base, superpage, free] = timed.map(|accesses| waits(&accesses, in_flight).0);
        let mut sums: BTreeMap<u64, Sums> = BTreeMap::new();
        // What comes first was used shortly before, which the window does not see.
        let warm = one.window.steps.len() / 4;
        for (at, step) in one.window.steps.iter().enumerate().skip(warm) {
            sums.entry(step.site).or_default().add(&Sums {
                all: base[at],
                base: base[at] - free[at],
                superpage: superpage[at] - free[at],
                steps: 1,
            });
        }
        sums
    };
    windows.iter().map(window).collect()
}

/// Times of one step: latency and spacing of the data, of its translation now, and on superpages.
#[derive(Clone, Copy, Default)]
struct Cost {
    data: (f64, f64),
    base: (f64, f64),
    superpage: (f64, f64),
}

struct Steps(Vec<Cost>);

/// Number of places in memory that a window's accesses go through in order: lines next to lines used before, in pages that
/// are not near each other.
pub fn streams(window: &Window, shifts: Shifts) -> usize {
    let (mut lines, mut places) = (BTreeSet::new(), BTreeSet::new());
    for step in &window.steps {
        let line = step.address >> LINE;
        let is_next = [line.wrapping_sub(1), line + 1].iter().any(|near| lines.contains(near));
        if lines.insert(line) && is_next {
            // Neighbouring pages are of one stream: 16 of them, and those across their ends.
            let place = step.address >> (shifts.base + 4);
            if !places.contains(&(place + 1)) && !places.contains(&place.wrapping_sub(1)) {
                places.insert(place);
            }
        }
    }
    places.len()
}

impl Steps {
    fn new(
        one: &Replayed,
        pages: &Popularity,
        table: &Table,
        prices: &Costs,
        shifts: Shifts,
    ) -> Self {
        // Places of the last uses in the window.
        let (mut lines, mut used, mut blocks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let lines_per_page = f64::from(1u32 << (shifts.base - LINE));
        let stream = match streams(&one.window, shifts) {
            0 | 1 => prices.one_stream,
            _ => prices.accesses.sequential_reads,
        };
        let crossing = (stream.base - stream.superpage).max(0.0);
        let mut costs = Vec::with_capacity(one.window.steps.len());
        // Number of far accesses that a step's address was computed from one after the other, with the step if it is far.
        let mut chased: Vec<u32> = Vec::with_capacity(one.window.steps.len());
        for (at, (step, on)) in one.window.steps.iter().zip(&one.on).enumerate() {
            let mut cost = Cost { data: (NEAREST, ISSUE), ..Cost::default() };
            let (line, page) = (step.address >> LINE, step.address >> shifts.base);
            let block = step.address >> shifts.superpage;
            let is_new_line = lines.insert(line, at).is_none();
            let is_new_page = used.insert(page, at).is_none();
            let is_new_block = blocks.insert(block, at).is_none();
            let near = |places: &BTreeMap<u64, usize>, at: u64| {
                [at.wrapping_sub(1), at + 1].iter().any(|one| places.contains_key(one))
            };
            let on = on.unwrap_or(On::Stays);
            let links = step.from.map_or(0, |from| chased[from as usize]);
            let is_in_chain = links >= CHAIN;
            let mut is_far = false;
            let independent = if step.kind == Kind::Load { 1 } else { 2 };
            if is_new_line && near(&lines, line) {
                // Prefetched.
                cost.data.1 = stream.superpage / lines_per_page;
                if is_new_page && near(&used, page) && matches!(on, On::Base { .. }) {
                    cost.base.1 = crossing;
                }
            } else if is_new_line {
                let far = pages.price(table, 0, step.address, on, shifts);
                let many = pages.price(table, independent, step.address, on, shifts);
                let data = |price: &Price| price.whole - price.base;
                cost.data.0 += (data(&far) - table.floor[0]).max(0.0);
                cost.data.1 = data(&many).max(ISSUE);
                // In a chase each walk waits for the last access. Walks of other accesses overlap with each other and with
                // other work. See docs/decisions/advise.md#3.
                let shown = if is_in_chain { 1.0 } else { OVERLAPPED };
                if is_new_page {
                    cost.base = (shown * far.base, shown * many.base);
                    cost.superpage = match is_new_block || on == On::Stays {
                        true => (shown * far.superpage, shown * many.superpage),
                        false => (0.0, 0.0),
                    };
                }
                is_far = cost.data.0 > FAR;
            }
            costs.push(cost);
            chased.push(links + u32::from(is_far));
        }
        Self(costs)
    }

    /// The window now, on superpages, and without translation.
    fn timed(&self, one: &Replayed, chance: &dyn Fn(u64) -> f64) -> [Vec<Timed>; 3] {
        let with = |translation: fn(&Cost) -> (f64, f64)| {
            let timed = |(step, cost): (&Step, &Cost)| {
                let (latency, spacing) = translation(cost);
                Timed {
                    kind: step.kind,
                    after: step.after,
                    from: step.from,
                    branch: step.branch.map(|(at, from)| (from, chance(at))),
                    latency: cost.data.0 + latency,
                    spacing: cost.data.1 + spacing,
                }
            };
            one.window.steps.iter().zip(&self.0).map(timed).collect()
        };
        [with(|cost| cost.base), with(|cost| cost.superpage), with(|_| (0.0, 0.0))]
    }
}
