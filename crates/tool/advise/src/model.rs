//! The share of a process's time that superpages would save, from sampled accesses.
//!
//! A sample stands for a piece of time in which a thread waited for an access. With the price of the access on base
//! pages, c = data + translation, and the price of its translation on superpages, the saved share of that piece is
//! (translation - translation on superpages) / c. So no count of accesses is needed, which sampling could not give.
//!
//! The prices depend on the reuse distance: how many other pages were used since the last use of this page. Samples are
//! too far apart to see it, so accesses are taken as independent of each other (independent reference model): the
//! distance follows from how often each page is used. Time on a page, divided by the price of its accesses, is that
//! frequency; prices and distances are computed in turns until they agree. (Che, Tung and Wang, JSAC 2002, for caches.)
//!
//! Samples that were replayed ([`crate::replay`]) show what independent references do not: an access to a page used shortly
//! before needs no walk, and a walk may be hidden behind other work. An instruction that was replayed often enough has the
//! share of its replayed time that translation takes ([`crate::core`]); others are priced as above.
//!
//! What goes through memory in order is not independent. It is told apart by its rate ([`crate::streams`]) and priced
//! by replays alone: prefetched lines, and what the end of a page costs a stream. See docs/decisions/advise.md#2.

use std::collections::{BTreeMap, BTreeSet};

use prediction::{ByDistance, Prices, Sequential};

use crate::core::{Timed, in_flight, waits};
use crate::streams::{Order, Visit, by_site, order};
use crate::{Access, Kind, Window};
use units::Pid;

/// An access with the memory it is to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// The access.
    pub access: Access,
    /// The thread.
    pub thread: Pid,
    /// Time of the sample in nanoseconds.
    pub time: u64,
    /// What memory it is to.
    pub on: On,
}

/// Memory, by what superpages change about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// On base pages, and superpages could hold it.
    Base {
        /// Resident base pages of the superpage-sized block.
        resident: u32,
    },
    /// On superpages already.
    Superpage,
    /// Memory that stays on base pages: code, files, stacks, mappings smaller than a superpage.
    Stays,
}

/// A machine's costs of accesses.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Of random accesses, of several streams, and of first touches.
    pub accesses: Prices,
    /// Nanoseconds of a base page that is read in the only stream.
    pub one_stream: Sequential,
}

/// Binary logarithms of sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shifts {
    /// Of the base page.
    pub base: u32,
    /// Of the superpage.
    pub superpage: u32,
}

/// What the model finds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimate {
    /// Share of the sampled time that superpages would save, 0 to 1.
    pub saved: f64,
    /// The part of `saved` of each superpage-sized block, by its first address. Without what streams save.
    pub by_block: BTreeMap<u64, f64>,
    /// Share of the samples that are to accesses in order.
    pub sequential: f64,
    /// Effective number of base pages in use in random order.
    pub pages: f64,
    /// Number of replayed windows.
    pub windows: usize,
    /// Share of the samples whose instruction was replayed often enough.
    pub replayed: f64,
}

/// Turns of computing prices and frequencies from each other.
const TURNS: usize = 5;
/// Samples on one page from which the page counts by itself.
const HEAVY: usize = 8;
/// Quantiles of the time between two uses over which a price is averaged.
const QUANTILES: usize = 8;
/// Bytes of a cache line, as a binary logarithm.
const LINE: u32 = 6;
/// Length of code, in bytes to both sides, whose instructions share a time besides waiting.
const AROUND: u64 = 64;
/// Mean length of an instruction, in bytes (inferred: compiled code has 3.5 to 4.5).
const INSTRUCTION: u64 = 4;

/// A kind of access: the index of its prices.
const KINDS: usize = 3;

struct Table {
    floor: [f64; KINDS],
    prices: [ByDistance; KINDS],
}

impl Table {
    fn new(prices: &Prices) -> Self {
        let pairs = [&prices.dependent, &prices.reads, &prices.writes];
        Self {
            floor: pairs.map(|pair| pair.base.ns[0].min(pair.superpage.ns[0])),
            prices: pairs.map(prediction::Pair::by_distance),
        }
    }
}

/// A group of equally often used pages.
struct Group {
    block: u64,
    /// The page, if the group is one page.
    page: Option<u64>,
    on: On,
    /// Number of pages of the group.
    pages: f64,
    /// Samples by kind of access.
    samples: [f64; KINDS],
    /// Index of the block.
    of_block: usize,
    /// Share of its pages' lines in use. Of pages with few samples: all.
    lines: f64,
}

struct BlockRate {
    on: On,
    rate: f64,
}

/// What samples and replays say about a process, from which estimates are made.
pub struct Model<'a> {
    total: f64,
    shifts: Shifts,
    orders: &'a Orders,
    table: Table,
    pages: Popularity,
    windows: Vec<BTreeMap<u64, Sums>>,
}

impl<'a> Model<'a> {
    /// Computes how often pages are used, and what the accesses of the windows cost. `total` is the number of all
    /// samples, of which `seen` are those at accesses.
    pub fn new(
        seen: &[Seen],
        windows: &[Replayed],
        total: f64,
        prices: &Costs,
        shifts: Shifts,
        orders: &'a Orders,
    ) -> Self {
        let table = Table::new(&prices.accesses);
        let random: Vec<&Seen> = seen.iter().filter(|one| !orders.is_sequential(one)).collect();
        let pages = Popularity::new(&random, total, &table, shifts, orders);
        let windows = sums(windows, &pages, &table, prices, shifts);
        Self { total, shifts, orders, table, pages, windows }
    }

    /// Places of the windows.
    pub fn windows(&self) -> std::ops::Range<usize> {
        0..self.windows.len()
    }

    /// Estimates what superpages save, from these samples and the windows at these places: all of them, or as many drawn
    /// from them.
    pub fn estimate(&self, seen: &[Seen], windows: impl Iterator<Item = usize>) -> Estimate {
        let (orders, shifts) = (self.orders, self.shifts);
        let mut result = Estimate {
            pages: self.pages.groups.iter().map(|group| group.pages).sum(),
            windows: self.windows.len(),
            ..Estimate::default()
        };
        let mut sites: BTreeMap<u64, Sums> = BTreeMap::new();
        for (site, more) in windows.flat_map(|at| &self.windows[at]) {
            sites.entry(*site).or_default().add(more);
        }
        for one in seen {
            let share = orders.waits(one.access.site) / self.total;
            let is_sequential = orders.is_sequential(one);
            if is_sequential {
                result.sequential += 1.0 / self.total;
            }
            let site = one.access.site;
            let sums = match is_sequential {
                true => orders.loop_of(site, &sites),
                false => sites.get(&site).copied().unwrap_or_default(),
            };
            let part = match sums.part() {
                Some(part) => {
                    result.replayed += 1.0 / self.total;
                    part
                }
                None if is_sequential => continue,
                None => self.pages.part(&self.table, one, shifts),
            };
            let saved = share * (part.base - part.superpage).max(0.0);
            result.saved += saved;
            if saved > 0.0 && matches!(one.on, On::Base { .. }) {
                let start = one.access.address >> shifts.superpage << shifts.superpage;
                *result.by_block.entry(start).or_default() += saved;
            }
        }
        result
    }
}

/// A replay of a sample: its window, with the memory that each step is to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// The window.
    pub window: Window,
    /// What memory each step is to.
    pub on: Vec<Option<On>>,
}

/// Shares of the time of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Part {
    /// Spent on translation now.
    base: f64,
    /// What of that superpages leave.
    superpage: f64,
}

/// How often the pages of a process are used.
struct Popularity {
    groups: Vec<Group>,
    /// Uses a nanosecond of one page of each group.
    rates: Vec<f64>,
    blocks: Vec<BlockRate>,
    working: Working,
    heavy: BTreeMap<u64, usize>,
    light: BTreeMap<u64, usize>,
}

impl Popularity {
    fn new(random: &[&Seen], total: f64, table: &Table, shifts: Shifts, orders: &Orders) -> Self {
        let groups = groups(random, shifts, orders);
        let number = groups.iter().map(|group| group.of_block + 1).max().unwrap_or(0);
        // Pages a nanosecond that streams bring in.
        let streamed = orders.pages_per_second(shifts) * 1e-9;
        let first = |kind: usize| table.floor[kind] + table.prices[kind].data[20];
        let mut costs = vec![std::array::from_fn::<f64, KINDS, _>(first); groups.len()];
        let none = || BlockRate { on: On::Stays, rate: 0.0 };
        let mut turn = 0;
        loop {
            let mut blocks: Vec<BlockRate> = (0..number).map(|_| none()).collect();
            let mut rates = Vec::with_capacity(groups.len());
            for (group, cost) in groups.iter().zip(&costs) {
                let uses: f64 = group
                    .samples
                    .iter()
                    .zip(cost)
                    .map(|(samples, cost)| samples / total / cost)
                    .sum();
                let block = &mut blocks[group.of_block];
                block.on = group.on;
                block.rate += uses;
                rates.push(uses / group.pages);
            }
            let working = Working::new(&groups, &rates, &blocks, streamed, shifts);
            turn += 1;
            if turn == TURNS {
                let (mut heavy, mut light) = (BTreeMap::new(), BTreeMap::new());
                for (at, group) in groups.iter().enumerate() {
                    match group.page {
                        Some(page) => heavy.insert(page, at),
                        None => light.insert(group.block, at),
                    };
                }
                return Self { groups, rates, blocks, working, heavy, light };
            }
            for (at, group) in groups.iter().enumerate() {
                let block_rate = blocks[group.of_block].rate;
                for (kind, cost) in costs[at].iter_mut().enumerate() {
                    if group.samples[kind] > 0.0 {
                        let price = table.price(
                            kind,
                            rates[at],
                            block_rate,
                            group.lines,
                            group.on,
                            &working,
                        );
                        *cost = (*cost * price.whole).sqrt();
                    }
                }
            }
        }
    }

    /// The price of a use of the page at an address, used as often as samples say.
    fn price(&self, table: &Table, kind: usize, address: u64, on: On, shifts: Shifts) -> Price {
        let start = address >> shifts.superpage << shifts.superpage;
        let group = self.heavy.get(&(address >> shifts.base)).or_else(|| self.light.get(&start));
        let (rate, block_rate, lines) = match group {
            Some(&at) => {
                let group = &self.groups[at];
                (self.rates[at], self.blocks[group.of_block].rate, group.lines)
            }
            // No sample was on it: used more rarely than anything that was.
            None => {
                let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
                let least = if least.is_finite() { least } else { 1e-9 };
                (least, least * 8.0, 1.0)
            }
        };
        table.price(kind, rate, block_rate.max(rate), lines, on, &self.working)
    }

    /// The parts of a sampled access, as if independent of all others.
    fn part(&self, table: &Table, one: &Seen, shifts: Shifts) -> Part {
        let price = self.price(table, kind_of(&one.access), one.access.address, one.on, shifts);
        Part { base: price.base / price.whole, superpage: price.superpage / price.whole }
    }
}

/// What replays say about an instruction: sums over its accesses, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// Waiting for them now.
    all: f64,
    /// Of that, for translation.
    base: f64,
    /// What of that superpages leave.
    superpage: f64,
    /// Number of accesses.
    steps: usize,
}

/// Fewest replayed accesses of an instruction that are believed.
const MIN_STEPS: usize = 12;

impl Sums {
    fn add(&mut self, more: &Self) {
        self.all += more.all;
        self.base += more.base;
        self.superpage += more.superpage;
        self.steps += more.steps;
    }

    /// The parts of the time at the instruction; `None`: too few replays of it.
    fn part(&self) -> Option<Part> {
        if self.steps < MIN_STEPS || self.all <= 0.0 {
            return None;
        }
        let share = |part: f64| (part / self.all).clamp(0.0, 1.0);
        Some(Part { base: share(self.base), superpage: share(self.superpage) })
    }
}

/// The sums of each window, by instruction.
fn sums(
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
        let timed = Steps::new(one, pages, table, prices, shifts, &chance).timed(one, &chance);
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

/// Nanoseconds of a load from the first-level cache, less what the prices' smallest footprint holds.
const NEAREST: f64 = 1.5;
/// Number of places in memory that a window's accesses go through in order: lines next to lines used before, in pages that
/// are not near each other.
fn streams(window: &Window, shifts: Shifts) -> usize {
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

/// Nanoseconds from which an access is far: beyond the second-level cache.
const FAR: f64 = 10.0;
/// The part of independent accesses' translation that a program waits for. In the loop that measures their price nothing
/// else is done meanwhile. Fitted to GUPS: docs/decisions/advise.md#3.
const OVERLAPPED: f64 = 0.4;
/// Nanoseconds for which an access to the first-level cache occupies the core.
const ISSUE: f64 = 0.17;

impl Steps {
    fn new(
        one: &Replayed,
        pages: &Popularity,
        table: &Table,
        prices: &Costs,
        shifts: Shifts,
        chance: &dyn Fn(u64) -> f64,
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
        // Whether what is computed from a step waits for a far access.
        let mut chased: Vec<bool> = Vec::with_capacity(one.window.steps.len());
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
            let is_chased = step.from.is_some_and(|from| chased[from as usize]);
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
                // Walks of a chase start when the last access has ended. Others are walked many at a time, which keeps
                // their tables in the caches: their part is that of independent accesses.
                // See docs/decisions/advise.md#3.
                let by = data(&far) / data(&many).max(ISSUE);
                // Behind a branch that far data decides, an access waits as in a chase if the branch is mispredicted.
                let waits = match step.branch {
                    _ if is_chased => 1.0,
                    Some((at, from)) if chased[from as usize] => chance(at),
                    _ => 0.0,
                };
                let shown = OVERLAPPED + (1.0 - OVERLAPPED) * waits;
                let latency = |chased: f64, many: f64| {
                    waits * chased + (1.0 - waits) * OVERLAPPED * many * by
                };
                if is_new_page {
                    cost.base = (latency(far.base, many.base), shown * many.base);
                    cost.superpage = match is_new_block || on == On::Stays {
                        true => (latency(far.superpage, many.superpage), shown * many.superpage),
                        false => (0.0, 0.0),
                    };
                }
                is_far = cost.data.0 > FAR;
            }
            costs.push(cost);
            chased.push(is_far || is_chased);
        }
        Self(costs)
    }

    /// The window now, on superpages, and without translation.
    fn timed(&self, one: &Replayed, chance: &dyn Fn(u64) -> f64) -> [Vec<Timed>; 3] {
        let with = |translation: fn(&Cost) -> (f64, f64)| {
            let timed = |(step, cost): (&crate::Step, &Cost)| {
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

struct Price {
    whole: f64,
    base: f64,
    superpage: f64,
}

impl Table {
    /// The mean price of a use of a page that is used `rate` times a nanosecond, in a block that is used `block_rate`
    /// times.
    fn price(
        &self,
        kind: usize,
        rate: f64,
        block_rate: f64,
        lines: f64,
        on: On,
        working: &Working,
    ) -> Price {
        let prices = &self.prices[kind];
        let mut price = Price { whole: self.floor[kind], base: 0.0, superpage: 0.0 };
        for quantile in 0..QUANTILES {
            let at = (quantile as f64 + 0.5) / QUANTILES as f64;
            let times = -(1.0 - at).ln();
            let share = 1.0 / QUANTILES as f64;
            let (page_time, block_time) = (times / rate, times / block_rate);
            let distance = working.now(page_time);
            // A page with few lines in use has them used more often than a page all of whose lines are.
            let line_distance = working.now(page_time * lines);
            price.whole += share * at_distance(&prices.data, line_distance);
            let translation = match on {
                On::Superpage => at_distance(&prices.translation, working.now(block_time)),
                _ => at_distance(&prices.translation, distance),
            };
            price.base += share * translation;
            price.superpage += share
                * match on {
                    On::Base { .. } => {
                        let then = working.then(block_time);
                        at_distance(&prices.translation, then).min(translation)
                    }
                    On::Superpage => translation,
                    On::Stays => {
                        let then = working.then(page_time);
                        at_distance(&prices.translation, then).min(translation)
                    }
                };
        }
        price.whole += price.base;
        price
    }
}

/// How many TLB entries are used within a time: a table over times, now and on superpages.
struct Working {
    /// Entries within 2^(i / 2) nanoseconds.
    now: Vec<f64>,
    then: Vec<f64>,
}

/// Points of a [`Working`]: to 2^44 ns, which is hours.
const POINTS: usize = 89;

impl Working {
    fn new(
        groups: &[Group],
        rates: &[f64],
        blocks: &[BlockRate],
        streamed: f64,
        shifts: Shifts,
    ) -> Self {
        let used = |rate: f64, time: f64| 1.0 - (-rate * time).exp();
        let per_superpage = f64::from(1u32 << (shifts.superpage - shifts.base));
        let point = |at: usize, superpages: bool| {
            let time = 2f64.powf(at as f64 / 2.0);
            let by_block =
                |on: On| on == On::Superpage || superpages && matches!(on, On::Base { .. });
            let pages: f64 = groups
                .iter()
                .zip(rates)
                .filter(|(group, _)| !by_block(group.on))
                .map(|(group, rate)| group.pages * used(*rate, time))
                .sum();
            let blocks: f64 = blocks
                .iter()
                .filter(|block| by_block(block.on))
                .map(|block| used(block.rate, time))
                .sum();
            let streamed = streamed * time / if superpages { per_superpage } else { 1.0 };
            pages + blocks + streamed
        };
        let table = |superpages| (0..POINTS).map(|at| point(at, superpages)).collect();
        Self { now: table(false), then: table(true) }
    }

    /// Entries used within `time` nanoseconds.
    fn now(&self, time: f64) -> f64 {
        between(&self.now, time)
    }

    /// Entries used within `time` nanoseconds on superpages.
    fn then(&self, time: f64) -> f64 {
        between(&self.then, time)
    }
}

fn between(table: &[f64], time: f64) -> f64 {
    let at = (time.max(1.0).log2() * 2.0).min((POINTS - 1) as f64);
    let below = (at as usize).min(POINTS - 2);
    let part = at - below as f64;
    table[below] * (1.0 - part) + table[below + 1] * part
}

/// The price at a distance, between those of the octaves' middles.
fn at_distance(prices: &[f64], distance: f64) -> f64 {
    // The octave k of prices is that of distances from 2^(k-1) to 2^k.
    let at = (distance.max(1.0).log2() + 0.5).clamp(0.0, (prices.len() - 1) as f64);
    let below = (at as usize).min(prices.len() - 2);
    let part = at - below as f64;
    prices[below] * (1.0 - part) + prices[below + 1] * part
}

/// What goes in order, by site and thread.
#[derive(Debug, Clone, Default)]
pub struct Orders {
    sites: BTreeMap<u64, Order>,
    /// Rates of distinct streams: several instructions of a loop follow one.
    streams: Vec<(f64, bool)>,
    /// Share of each site's samples that waited.
    waiting: BTreeMap<u64, f64>,
}

impl Orders {
    /// Finds what goes in order. `counts` are all samples by instruction pointer, whatever they told.
    pub fn new(seen: &[Seen], counts: &BTreeMap<u64, u32>) -> Self {
        let visit =
            |one: &Seen| Visit { thread: one.thread, time: one.time, address: one.access.address };
        let by_site = by_site(seen.iter().map(|one| (one.access.site, visit(one))));
        let orders = by_site.iter().map(|(site, visits)| (*site, order(visits)));
        let mut result = Self { sites: orders.collect(), ..Self::default() };
        result.join();
        // Distinct streams: those whose site is not within a loop's length of a faster one at the same place in memory.
        let mut known: Vec<(u64, u64, f64)> = Vec::new();
        for (site, visits) in &by_site {
            let Some(Order::Sequential(rate)) = result.sites.get(site) else { continue };
            let middle = visits[visits.len() / 2].address;
            let is_known = known.iter().any(|(other, at, speed)| {
                site.abs_diff(*other) < 4 * AROUND
                    && (speed / rate - 1.0).abs() < 0.5
                    && at.abs_diff(middle) < 1 << 32
            });
            if !is_known {
                known.push((*site, middle, *rate));
                let eligible = seen
                    .iter()
                    .filter(|one| one.access.site == *site)
                    .filter(|one| matches!(one.on, On::Base { .. }));
                result.streams.push((rate.abs(), eligible.count() * 2 > visits.len()));
            }
        }
        result.waiting = waiting(by_site.keys().copied(), counts);
        result
    }

    /// Gives sites with too few samples the order of the site before or after them in the code.
    fn join(&mut self) {
        let known: Vec<(u64, Order)> = self
            .sites
            .iter()
            .filter(|(_, order)| **order != Order::Unknown)
            .map(|(site, order)| (*site, *order))
            .collect();
        for (site, order) in &mut self.sites {
            if *order == Order::Unknown
                && let Some((_, near)) = known
                    .iter()
                    .filter(|(other, _)| other.abs_diff(*site) < 4 * AROUND)
                    .min_by_key(|(other, _)| other.abs_diff(*site))
            {
                *order = *near;
            }
        }
    }

    fn is_sequential(&self, one: &Seen) -> bool {
        self.is_in_order(one.access.site)
    }

    fn is_in_order(&self, site: u64) -> bool {
        matches!(self.sites.get(&site), Some(Order::Sequential(_)))
    }

    /// The sums of all instructions around `site` that go in order. In a loop over memory the wait for a line is seen at
    /// any of them.
    fn loop_of(&self, site: u64, sites: &BTreeMap<u64, Sums>) -> Sums {
        let near = sites.range(site.saturating_sub(2 * AROUND)..site + 2 * AROUND);
        let mut all = Sums::default();
        near.filter(|(site, _)| self.is_in_order(**site)).for_each(|(_, sums)| all.add(sums));
        all
    }

    fn pages_per_second(&self, shifts: Shifts) -> f64 {
        self.streams.iter().map(|(rate, _)| rate / f64::from(1u32 << shifts.base)).sum()
    }

    fn waits(&self, site: u64) -> f64 {
        self.waiting.get(&site).copied().unwrap_or(1.0)
    }
}

/// The share of each site's samples that waited: those beyond the median of the instructions around it. Every
/// instruction takes time to execute, also one whose access hits, and so has samples without a wait.
fn waiting(sites: impl Iterator<Item = u64>, counts: &BTreeMap<u64, u32>) -> BTreeMap<u64, f64> {
    sites
        .map(|site| {
            let near = counts.range(site.saturating_sub(AROUND)..site + AROUND);
            let mut near: Vec<u32> = near.map(|(_, count)| *count).collect();
            near.sort_unstable();
            let number = (2 * AROUND / INSTRUCTION) as usize;
            // Instructions without samples come first in the order.
            let median = (number / 2 + near.len())
                .checked_sub(number)
                .and_then(|at| near.get(at).copied())
                .unwrap_or(0);
            // The samples of a site are on the instruction after it.
            let most = counts.range(site..site + 16).map(|(_, count)| *count).max().unwrap_or(0);
            let share = match most {
                0 => 1.0,
                most => 1.0 - f64::from(median.min(most)) / f64::from(most),
            };
            (site, share)
        })
        .collect()
}

fn kind_of(access: &Access) -> usize {
    match access.kind {
        Kind::Load if access.is_dependent => 0,
        Kind::Load => 1,
        Kind::Update | Kind::Store => 2,
    }
}

/// Groups samples: heavily used pages by themselves, the rest of each block together.
fn groups(random: &[&Seen], shifts: Shifts, orders: &Orders) -> Vec<Group> {
    let mut pages: BTreeMap<u64, (On, usize, [f64; KINDS])> = BTreeMap::new();
    let mut lines: BTreeMap<u64, BTreeMap<u64, usize>> = BTreeMap::new();
    for one in random {
        let page = one.access.address >> shifts.base;
        let entry = pages.entry(page).or_insert((one.on, 0, [0.0; KINDS]));
        *lines.entry(page).or_default().entry(one.access.address >> LINE).or_default() += 1;
        entry.1 += 1;
        entry.2[kind_of(&one.access)] += orders.waits(one.access.site);
    }
    let within = shifts.superpage - shifts.base;
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64 / 2.0;
    // Pages in effective use per block, from how often two samples of a block are on one page.
    let mut blocks: BTreeMap<u64, (usize, f64)> = BTreeMap::new();
    for (page, (_, count, _)) in &pages {
        if *count < HEAVY {
            let block = blocks.entry(page >> within).or_default();
            block.0 += *count;
            block.1 += pairs(*count);
        }
    }
    let all: f64 = blocks.values().map(|(count, _)| pairs(*count)).sum();
    let same: f64 = blocks.values().map(|(_, same)| same).sum();
    let mean = if same >= 4.0 { all / same } else { f64::from(1u32 << within) };
    let mut groups: Vec<Group> = Vec::new();
    let mut light: BTreeMap<u64, usize> = BTreeMap::new();
    let mut numbers: BTreeMap<u64, usize> = BTreeMap::new();
    for (page, (on, count, samples)) in pages {
        let block = page >> within;
        let next = numbers.len();
        let of_block = *numbers.entry(block).or_insert(next);
        let start = block << shifts.superpage;
        if count >= HEAVY {
            let lines = lines_in_use(&lines[&page], shifts);
            let page = Some(page);
            groups.push(Group { block: start, page, on, pages: 1.0, samples, of_block, lines });
            continue;
        }
        let place = *light.entry(block).or_insert_with(|| {
            let (count, same) = blocks[&block];
            let own = if same >= 16.0 { pairs(count) / same } else { mean };
            let most = match on {
                On::Base { resident } => f64::from(resident.max(1)),
                _ => f64::from(1u32 << within),
            };
            let pages = own.max(1.0).min(most);
            groups.push(Group {
                block: start,
                page: None,
                on,
                pages,
                samples: [0.0; KINDS],
                of_block,
                lines: 1.0,
            });
            groups.len() - 1
        });
        for (sum, more) in groups[place].samples.iter_mut().zip(samples) {
            *sum += more;
        }
    }
    groups.retain(|group| group.samples.iter().sum::<f64>() > 0.0);
    groups
}

/// The share of a page's lines in use, from how often two of its samples are on one line.
fn lines_in_use(lines: &BTreeMap<u64, usize>, shifts: Shifts) -> f64 {
    let most = f64::from(1u32 << (shifts.base - LINE));
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64 / 2.0;
    let same: f64 = lines.values().copied().map(pairs).sum();
    (pairs(lines.values().sum()) / same.max(1.0)).clamp(1.0, most) / most
}

#[cfg(test)]
pub(crate) mod tests {
    use prediction::{Curve, Faults, Pair};
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::Step;

    const SHIFTS: Shifts = Shifts { base: 12, superpage: 21 };
    const START: u64 = 1 << 40;

    /// 4 ns, 100 more beyond 2^14 pages of data, 50 more beyond 2^11 entries of the TLB.
    pub(crate) fn prices() -> Costs {
        let step = |from: usize, cost: f64, k: usize| if k > from { cost } else { 0.0 };
        let curve = |price: &dyn Fn(usize) -> f64| Curve {
            first: 6,
            ns: (6..20)
                .map(|k| 4.0 + (7..=k).fold(0.0, |mean, k| (mean + price(k)) / 2.0))
                .collect(),
        };
        let base = |k| step(14, 100.0, k) + step(11, 50.0, k);
        let superpage = |k| step(14, 100.0, k) + step(20, 50.0, k);
        let pair = Pair { base: curve(&base), superpage: curve(&superpage) };
        let accesses = Prices {
            dependent: pair.clone(),
            reads: pair.clone(),
            writes: pair,
            sequential_reads: Sequential { base: 160.0, superpage: 160.0 },
            sequential_writes: Sequential { base: 160.0, superpage: 160.0 },
            faults: Faults { base: 1000.0, superpage: 100_000.0 },
        };
        Costs { accesses, one_stream: Sequential { base: 220.0, superpage: 200.0 } }
    }

    fn seen(at: usize, address: u64, on: On) -> Seen {
        let access =
            Access { site: 0x1000, address, kind: Kind::Load, is_next: false, is_dependent: true };
        Seen { access, thread: Pid(1), time: at as u64 * 1_000_003, on }
    }

    const BASE: On = On::Base { resident: 512 };

    /// Samples on the pages that `page` draws.
    pub(crate) fn samples(count: usize, on: On, mut page: impl FnMut(u64) -> u64) -> Vec<Seen> {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        (0..count)
            .map(|at| {
                let line = random.next_u64() % 64;
                seen(at, START + (page(random.next_u64()) << 12) + 64 * line, on)
            })
            .collect()
    }

    fn saved(seen: &[Seen], windows: &[Replayed]) -> f64 {
        let counts = BTreeMap::from([(0x1004, seen.len() as u32)]);
        let orders = Orders::new(seen, &counts);
        saved_of(seen, windows, seen.len() as f64, &orders)
    }

    fn saved_of(seen: &[Seen], windows: &[Replayed], total: f64, orders: &Orders) -> f64 {
        let model = Model::new(seen, windows, total, &prices(), SHIFTS, orders);
        model.estimate(seen, model.windows()).saved
    }

    /// What uniform use of 1 GiB spends on translation: 50 of 154 ns, less what the nearest distances do not.
    const UNIFORM: f64 = 50.0 / 154.0;

    #[test]
    fn uniform_use_saves_the_price_of_its_translation() {
        let found = saved(&samples(8000, BASE, |random| random % (1 << 18)), &[]);
        assert!((found - UNIFORM).abs() < 0.03, "{found} {UNIFORM}");
        // Half of the samples show no access.
        let half = samples(8000, BASE, |random| random % (1 << 18));
        let orders = Orders::new(&half, &BTreeMap::new());
        let found = saved_of(&half, &[], 16_000.0, &orders);
        assert!((found - UNIFORM / 2.0).abs() < 0.02, "{found}");
    }

    #[test]
    fn little_memory_memory_on_superpages_and_memory_that_stays_save_nothing() {
        assert!(saved(&samples(8000, BASE, |random| random % 64), &[]) < 0.002);
        assert!(saved(&samples(8000, BASE, |random| random % 1024), &[]) < 0.01);
        for on in [On::Superpage, On::Stays] {
            let found = saved(&samples(8000, on, |random| random % (1 << 18)), &[]);
            assert!(found < 0.002, "{on:?} {found}");
        }
        assert_eq!(saved(&[], &[]), 0.0);
    }

    #[test]
    fn skewed_use_saves_less_than_uniform_use() {
        // Half of the uses are of 64 pages. They are half of the accesses if those are as slow; here samples are time.
        let skewed = samples(8000, BASE, |random| match random % 2 {
            0 => (random >> 1) % 64,
            _ => (random >> 1) % (1 << 18),
        });
        let found = saved(&skewed, &[]);
        assert!(found > 0.3 * UNIFORM && found < 0.6 * UNIFORM, "{found}");
    }

    #[test]
    fn what_goes_in_order_saves_nothing() {
        let mut at = 0;
        let in_order = samples(4000, BASE, |_| {
            at = (at + 2500) % (1 << 18);
            at
        });
        assert!(saved(&in_order, &[]) < 0.002);
    }

    /// Windows in which each page is used on `lines` different lines in a row.
    fn windows(lines: u64) -> Vec<Replayed> {
        let mut random = Pcg64Mcg::seed_from_u64(9);
        let window = |_| {
            let mut window = Window::default();
            for at in 0..400u64 {
                if at % lines == 0 {
                    random.next_u64();
                }
                let page = random.clone().next_u64() % (1 << 18);
                // Not neighbouring lines, which would be prefetched.
                let address = START + (page << 12) + 64 * (at % lines * 7 % 64);
                window.steps.push(Step {
                    site: 0x1000,
                    address,
                    kind: Kind::Load,
                    after: 4 * at as u32,
                    from: (at as u32).checked_sub(1),
                    branch: None,
                });
            }
            let on = vec![Some(BASE); window.steps.len()];
            Replayed { window, on }
        };
        (0..20).map(window).collect()
    }

    #[test]
    fn repeated_uses_of_a_page_need_its_translation_once() {
        let uniform = samples(8000, BASE, |random| random % (1 << 18));
        let (once, often) = (saved(&uniform, &windows(1)), saved(&uniform, &windows(8)));
        assert!((once - UNIFORM).abs() < 0.04, "{once}");
        // One of eight accesses to main memory has a walk: 50 of 8 × 104 + 50 ns.
        let expected = 50.0 / (8.0 * 104.0 + 50.0);
        assert!((often - expected).abs() < 0.02, "{often} {expected}");
    }

    #[test]
    fn one_stream_saves_what_its_pages_cost_more() {
        let mut at = 0;
        let in_order = samples(4000, BASE, |_| {
            at = (at + 2500) % (1 << 18);
            at
        });
        // 4,800 words in order: 9 pages, of which the first is not new and the last not whole.
        let mut window = Window::default();
        for at in 0..4800u64 {
            window.steps.push(Step {
                site: 0x1000,
                address: START + 8 * at,
                kind: Kind::Load,
                after: at as u32,
                from: None,
                branch: None,
            });
        }
        let on = vec![Some(BASE); window.steps.len()];
        assert_eq!(streams(&window, SHIFTS), 1);
        let found = saved(&in_order, &vec![Replayed { window, on }; 20]);
        assert!(found > 0.05 && found <= 20.0 / 220.0, "{found}");
    }

    #[test]
    fn an_instruction_among_others_as_slow_does_not_wait() {
        let near = (0..32u64).map(|at| (0x1000 + 4 * at, 100));
        let counts: BTreeMap<u64, u32> = near.collect();
        assert!(waiting([0x1040].into_iter(), &counts)[&0x1040] < 0.01);
        let alone = BTreeMap::from([(0x1044, 1000)]);
        assert!(waiting([0x1040].into_iter(), &alone)[&0x1040] > 0.99);
    }
}
