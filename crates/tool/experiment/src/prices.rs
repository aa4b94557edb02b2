//! Measures this machine's [`Prices`]: makes the same accesses alternately to memory verified to be on base pages and
//! on superpages.
//!
//! Changes no setting of the machine.
//! See docs/decisions/prediction.md#2.

use std::time::{Duration, Instant};

use host::{Root, Thp};
use prediction::{Curve, Faults, Frames, Near, Pair, Prices, Sequential};
use sys::SysError;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use units::{ByteSize, PageSize, Pid};
use workload::priced::{self as kernels, Random, Word};

use crate::first_touch::{first_touches, pages_of};
use crate::stats::describe::median;
use crate::warm::{Blocks, warm};

/// Binary logarithm of the smallest footprint, in base pages: 64 pages fit the first level of every known TLB.
const MIN_OCTAVE: usize = 6;
/// Number of measurements per visit, of which the median is used.
const REPEATS: u64 = 3;
/// Number of measurements per visit if frames matter: [`Samples::with_near_frames`].
const NEAR_REPEATS: u64 = 5;
/// Fewest of these measurements, however long they take on a busy machine.
const MIN_NEAR_REPEATS: u64 = 2;
/// Time after which no further round of these measurements begins.
const MAX_NEAR_TIME: Duration = Duration::from_secs(10);
/// Index of the first footprint at which base pages with neighbouring frames are measured: 1,024 pages.
const NEAR_FROM: usize = 4;
/// Number of measurements of far accesses, of which the median is used.
const FAR_REPEATS: u64 = 9;
/// Approximate duration of one measurement, in nanoseconds.
const SLICE: f64 = 8e6;
/// Minimum and maximum number of accesses of one measurement.
const ACCESSES: (f64, f64) = (20_000.0, 2_000_000.0);
/// Minimum size of the largest footprint, in bytes; larger than every cache.
const MIN_FOOTPRINT: usize = 256 << 20;

/// Maximum number of successive requests for a superpage that fail. Each of them compacts all memory.
const MAX_FAILURES: u32 = 32;

/// Why there are no prices.
#[derive(Debug, thiserror::Error)]
pub enum PricesError {
    /// The kernel refused.
    #[error("memory prices: {0}")]
    Sys(#[from] SysError),
    /// This machine has no superpage size, or no transparent superpages.
    #[error(
        "memory prices: this kernel has no transparent superpages; no superpage's price can be \
         measured"
    )]
    NoSuperpages,
    /// The memory is not on the requested pages.
    #[error("memory prices: only {got} of {of} requested are on {}", .on.with_remedy())]
    NotGot {
        /// Bytes on the requested pages.
        got: ByteSize,
        /// Bytes requested.
        of: ByteSize,
        /// The requested pages.
        on: Wanted,
    },
    /// Cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// Pages that prices were to be measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Base pages.
    Base,
    /// Superpages that were split.
    Split,
    /// Superpages; whether THP is off for memory that asks for it (`never`).
    Superpages {
        /// `enabled` is `never`, and the kernel made none on request either.
        thp_off: bool,
    },
}

impl Wanted {
    fn with_remedy(self) -> &'static str {
        match self {
            Self::Base => "base pages; free memory is short",
            Self::Split => "split superpages; this kernel does not split them on advice",
            Self::Superpages { thp_off: true } => {
                "superpages: THP is off; as root: echo madvise > \
                 /sys/kernel/mm/transparent_hugepage/enabled"
            }
            Self::Superpages { thp_off: false } => {
                "superpages, also after compaction for each: free memory is short or fragmented; as \
                 root: sysctl -w vm.compact_memory=1"
            }
        }
    }
}

/// Measurements of one or several visits, from which prices are computed. The load of a shared host and the positions
/// of frames differ from one minute to the next. A comparison with runs therefore needs visits before and after them.
pub struct Samples {
    superpage: PageSize,
    base: PageSize,
    bytes: usize,
    footprints: Vec<usize>,
    points: Vec<[Point; 3]>,
    /// Number of measurements per visit.
    repeats: u64,
    /// Whether base pages with neighbouring frames are measured too.
    with_near: bool,
    /// Spread of the other base pages' frames, by footprint; empty: unknown.
    spread: Vec<f64>,
    /// Nanoseconds per base page in sequential order: reads, then writes; each on base pages and on superpages.
    sequential: [[Vec<f64>; 2]; 2],
    /// Nanoseconds of first touches: on base pages, and on superpages.
    faults: [Vec<f64>; 2],
    /// Number of finished visits. Each visit adds equally many measurements to every list.
    visits: usize,
}

/// Accesses to memory far beyond the caches, in nanoseconds: on base pages and on superpages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FarAccesses {
    /// Bytes of memory on each kind of page.
    pub memory: ByteSize,
    /// Dependent loads (pointer chase).
    pub dependent: [f64; 2],
    /// Independent updates, as in GUPS.
    pub independent: [f64; 2],
}

impl FarAccesses {
    /// Measures over `memory` bytes on each kind of page. `step` works as in [`Samples::visit`].
    pub fn measure(
        memory: ByteSize,
        superpage: Option<PageSize>,
        mut step: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, PricesError> {
        let superpage = superpage.ok_or(PricesError::NoSuperpages)?;
        let bytes = superpage.floor(memory.bytes()) as usize;
        let mut sides = [
            Side::new(bytes, superpage, Advice::NoHugePage, Touched::InOrder)?,
            Side::new(bytes, superpage, Advice::HugePage, Touched::InOrder)?,
        ];
        let kernels: [Random; 2] = [kernels::dependent, kernels::updates];
        let mut points: [Point; 2] = Default::default();
        for repeat in 0..=FAR_REPEATS {
            if !step(repeat as usize, FAR_REPEATS as usize + 1) {
                return Err(PricesError::Interrupted);
            }
            for (kernel, point) in kernels.iter().zip(&mut points) {
                point.sample(&mut sides, bytes, *kernel, repeat == 0, repeat);
            }
        }
        let [dependent, independent] =
            points.map(|point| [BASE, SUPERPAGE].map(|side| middle(&point.times[side])));
        Ok(Self { memory: ByteSize(bytes as u64), dependent, independent })
    }
}

/// Measures the nanoseconds to read a base page in one stream, on both kinds of pages of `memory` bytes. Prefetchers that
/// stop at the end of a page stop less often on superpages. Where there are several streams they fetch from others
/// meanwhile, so [`Prices::sequential_reads`] does not show it.
///
/// # Errors
/// The memory is not on the requested pages.
pub fn one_stream(
    memory: ByteSize,
    superpage: Option<PageSize>,
) -> Result<Sequential, PricesError> {
    let superpage = superpage.ok_or(PricesError::NoSuperpages)?;
    let bytes = superpage.floor(memory.bytes()) as usize;
    let mut sides = [
        Side::new(bytes, superpage, Advice::NoHugePage, Touched::Apart)?,
        Side::new(bytes, superpage, Advice::HugePage, Touched::InOrder)?,
    ];
    let pages = sys::param::page_size().count(bytes as u64) as f64;
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..FAR_REPEATS {
        for (side, times) in sides.iter_mut().zip(&mut times) {
            times.push(kernels::one_stream(side.words(bytes)) / pages);
        }
    }
    let [base, superpage] = times.map(|times| middle(&times));
    Ok(Sequential { base, superpage })
}

struct Side {
    memory: Mapping,
}

impl Samples {
    /// Creates samples without measurements, for footprints up to `most`. A visit needs twice that memory.
    pub fn new(most: ByteSize, superpage: Option<PageSize>) -> Result<Self, PricesError> {
        let superpage = superpage.ok_or(PricesError::NoSuperpages)?;
        let base = sys::param::page_size();
        let bytes = superpage.floor(most.bytes().max(MIN_FOOTPRINT as u64)) as usize;
        let page = base.bytes() as usize;
        let footprints: Vec<usize> =
            (MIN_OCTAVE..).map(|k| page << k).take_while(|footprint| *footprint <= bytes).collect();
        let points = footprints.iter().map(|_| Default::default()).collect();
        let (sequential, faults) = Default::default();
        Ok(Self {
            superpage,
            base,
            bytes,
            footprints,
            points,
            repeats: REPEATS,
            with_near: false,
            spread: Vec::new(),
            sequential,
            faults,
            visits: 0,
        })
    }

    /// Also measures base pages with neighbouring frames, and moves the frames of the other base pages apart:
    /// [`Samples::near`]. A visit then needs five times the memory for a moment.
    /// See docs/decisions/advise.md#6.
    pub fn with_near_frames(self) -> Self {
        Self { with_near: true, repeats: NEAR_REPEATS, ..self }
    }

    /// Measures first touches alone: of [`Samples::prices`], only [`Prices::faults`] is then valid.
    pub fn of_first_touches(superpage: Option<PageSize>) -> Result<Self, PricesError> {
        let (footprints, points) = Default::default();
        Ok(Self { footprints, points, ..Self::new(ByteSize(0), superpage)? })
    }

    /// Measures on newly allocated memory. `step` gets the number of steps done and the total, and cancels by returning
    /// false.
    pub fn visit(&mut self, mut step: impl FnMut(usize, usize) -> bool) -> Result<(), PricesError> {
        let has_accesses = !self.footprints.is_empty();
        let of = if has_accesses { self.repeats as usize + 3 } else { 2 };
        let mut next = |done: usize| match step(done, of) {
            true => Ok(()),
            false => Err(PricesError::Interrupted),
        };
        next(0)?;
        match has_accesses {
            true => self.visit_accesses(&mut next)?,
            // Verify that there are superpages.
            false => {
                Side::new(self.bytes, self.superpage, Advice::HugePage, Touched::InOrder)?;
            }
        }
        next(of - 1)?;
        let kinds = [(Advice::NoHugePage, self.base), (Advice::HugePage, self.superpage)];
        for (times, (advice, size)) in self.faults.iter_mut().zip(kinds) {
            let touches =
                first_touches(self.superpage, advice, size.bytes() as usize, REPEATS as usize)?;
            times.extend(touches.iter().map(|touch| touch.with_return));
        }
        self.visits += 1;
        Ok(())
    }

    /// Measures random accesses, then accesses in order.
    fn visit_accesses(
        &mut self,
        next: &mut dyn FnMut(usize) -> Result<(), PricesError>,
    ) -> Result<(), PricesError> {
        // Superpages first: base pages take frames from anywhere.
        let superpage = Side::new(self.bytes, self.superpage, Advice::HugePage, Touched::InOrder)?;
        let near = match self.with_near {
            // Contiguous memory may be short for as much again; then nothing is known apart.
            true => Side::with_near_frames(self.bytes, self.superpage).ok(),
            false => None,
        };
        let touched = if near.is_some() { Touched::Apart } else { Touched::InOrder };
        let base = Side::new(self.bytes, self.superpage, Advice::NoHugePage, touched)?;
        self.spread = match near {
            Some(_) => base.spread(&self.footprints),
            None => Vec::new(),
        };
        let mut sides = vec![base, superpage];
        sides.extend(near);
        let kernels: [Random; 3] = [kernels::dependent, kernels::reads, kernels::writes];
        // Loop over rounds outermost: a disturbance of a second then spoils one sample of several points, not all
        // samples of one point.
        let begun = Instant::now();
        for repeat in 0..=self.repeats {
            if self.with_near && repeat > MIN_NEAR_REPEATS && begun.elapsed() > MAX_NEAR_TIME {
                break;
            }
            next(repeat as usize)?;
            let footprints = self.footprints.iter().enumerate();
            for (points, (place, footprint)) in self.points.iter_mut().zip(footprints) {
                // Few pages are translated alike, wherever their frames are.
                let number = if place < NEAR_FROM { sides.len().min(2) } else { sides.len() };
                for (kernel, point) in kernels.iter().zip(points) {
                    let seed = (place as u64) << 8 | repeat;
                    point.sample(&mut sides[..number], *footprint, *kernel, repeat == 0, seed);
                }
            }
        }
        next(self.repeats as usize + 1)?;
        // Free the old memory first: both together would need half as much memory again.
        sides.truncate(2);
        let superpage = sides.pop();
        drop(sides);
        let touched = if self.with_near { Touched::Apart } else { Touched::InTurns };
        let base = Side::new(self.bytes, self.superpage, Advice::NoHugePage, touched)?;
        if let Some(superpage) = superpage {
            self.visit_in_order(&mut [base, superpage]);
        }
        Ok(())
    }

    /// Measures the nanoseconds to read and to write all lines of a base page in order, on both sides, with parallel
    /// streams as in STREAM. A single stream is prefetched so well that its translation hardly shows. The price of a
    /// written page is what copy and triad take beyond the three pages that they read. Reading alone does not show that
    /// price, because write-allocate reads and write-backs mix with other lines.
    fn visit_in_order(&mut self, sides: &mut [Side; 2]) {
        let pages = (self.bytes as u64 / 4 / self.base.bytes()) as f64;
        for repeat in 0..=REPEATS {
            for (side, place) in sides.iter_mut().zip(0..) {
                let [reads, copy, triad] = kernels::streams(side.words(self.bytes));
                if repeat > 0 {
                    self.sequential[0][place].push(reads / 2.0 / pages);
                    let writes = (copy + triad - 1.5 * reads) / 2.0;
                    self.sequential[1][place].push(writes.max(0.0) / pages);
                }
            }
        }
    }

    /// Returns the median prices of all visits.
    pub fn prices(&self) -> Prices {
        self.priced(&middle)
    }

    /// Returns the median prices of each visit; their spread shows the effect of frames and other load.
    pub fn by_visit(&self) -> Vec<Prices> {
        (0..self.visits)
            .map(|visit| {
                self.priced(&|times| {
                    let part = |visit| times.len() * visit / self.visits;
                    middle(&times[part(visit)..part(visit + 1)])
                })
            })
            .collect()
    }

    fn priced(&self, middle: &dyn Fn(&[f64]) -> f64) -> Prices {
        let [dependent, reads, writes] = [0, 1, 2].map(|kernel| {
            let curve = |side| self.curve(kernel, side, middle);
            Pair { base: curve(BASE), superpage: curve(SUPERPAGE) }
        });
        let [sequential_reads, sequential_writes] =
            self.sequential.each_ref().map(|[base, superpage]| Sequential {
                base: middle(base),
                superpage: middle(superpage),
            });
        let [base, superpage] = self.faults.each_ref().map(|times| middle(times));
        let faults = Faults { base, superpage };
        Prices { dependent, reads, writes, sequential_reads, sequential_writes, faults }
    }

    fn curve(&self, kernel: usize, side: usize, middle: &dyn Fn(&[f64]) -> f64) -> Curve {
        let ns = |point: &[Point; 3]| {
            let times = &point[kernel].times;
            middle(if times[side].is_empty() { &times[BASE] } else { &times[side] })
        };
        Curve { first: MIN_OCTAVE, ns: self.points.iter().map(ns).collect() }
    }

    /// The median prices on base pages with neighbouring frames. `None`: not asked for, or the frames of the other base
    /// pages are unknown, because this process lacks CAP_SYS_ADMIN.
    pub fn near(&self) -> Option<Near> {
        if self.spread.is_empty() {
            return None;
        }
        let [dependent, reads, writes] = [0, 1, 2].map(|kernel| self.curve(kernel, NEAR, &middle));
        Some(Near { dependent, reads, writes, spread: self.spread.clone() })
    }
}

/// Places of sides in [`Point::times`].
const BASE: usize = 0;
const SUPERPAGE: usize = 1;
const NEAR: usize = 2;

/// Order of first touches of base pages, which is also their order in physical memory. AMD's TLB coalesces neighbours
/// touched in order into one entry, and close frames need fewer of the hypervisor's tables.
#[derive(Clone, Copy, PartialEq)]
enum Touched {
    /// In order, as programs fill one structure.
    InOrder,
    /// Four quarters in turns, as STREAM's arrays are filled. (Measured in order, STREAM's translation seemed to cost
    /// nothing; it really cost 13 %.)
    InTurns,
    /// In turns with pages of other memory, which is then freed, so that the frames are not neighbours.
    Apart,
}

/// Pages of other memory touched after the page at `place` of `bytes` bytes: more at the begin, so that small footprints
/// are as far apart as the few hot pages of a program. In all 1.75 times the memory.
fn apart(place: usize, bytes: usize) -> usize {
    match place {
        _ if place < bytes / 16 => 7,
        _ if place < bytes / 4 => 3,
        _ => 1,
    }
}

impl Side {
    /// Populates `bytes` bytes, and verifies that they are on the requested pages.
    fn new(
        bytes: usize,
        superpage: PageSize,
        advice: Advice,
        touched: Touched,
    ) -> Result<Self, PricesError> {
        // Warm as before a compared run, so that base pages lie where the run's pages lie. (Their position made the
        // difference between 0.76 and 1.3 s for the same GUPS.)
        let blocks = if advice == Advice::HugePage { Blocks::Whole } else { Blocks::Small };
        warm(&Root::real(), bytes as u64, superpage, blocks, || false);
        let mut memory = Mapping::aligned(bytes, superpage)?;
        memory.advise(advice)?;
        let page = sys::param::page_size().bytes() as usize;
        let parts = if touched == Touched::InTurns { 4 } else { 1 };
        let (stretch, bytes_mut) = (bytes / parts, memory.bytes_mut());
        let mut between = match touched {
            Touched::Apart => Some(Mapping::aligned(2 * bytes, superpage)?),
            _ => None,
        };
        if let Some(between) = &mut between {
            between.advise(advice)?;
        }
        let mut next = 0;
        for at in (0..stretch).step_by(page) {
            (0..parts).for_each(|part| bytes_mut[part * stretch + at] = 0);
            if let Some(between) = &mut between {
                for _ in 0..apart(at, bytes) {
                    between.bytes_mut()[next] = 0;
                    next += page;
                }
            }
        }
        drop(between);
        let side = Self { memory };
        let Some(mut got) = side.got(advice) else { return Ok(side) };
        let mut side = side;
        if got < bytes as u64 && advice == Advice::HugePage {
            // Compaction may provide superpages that faults did not get without waiting. The read-back below verifies
            // it.
            collapse(&mut side.memory, superpage);
            got = side.got(advice).unwrap_or(got);
        }
        // A few missing superpages do not change a price.
        if got < bytes as u64 / 100 * 95 {
            let on = match advice {
                Advice::HugePage => Wanted::Superpages { thp_off: thp_is_off(&Root::real()) },
                _ => Wanted::Base,
            };
            return Err(PricesError::NotGot { got: ByteSize(got), of: ByteSize(bytes as u64), on });
        }
        Ok(side)
    }

    /// Base pages with neighbouring frames: superpages that were split.
    fn with_near_frames(bytes: usize, superpage: PageSize) -> Result<Self, PricesError> {
        let mut side = Self::new(bytes, superpage, Advice::HugePage, Touched::InOrder)?;
        let page = sys::param::page_size().bytes() as usize;
        // A split leaves no page to memory that is zero.
        side.memory.bytes_mut().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        let length = superpage.bytes() as usize;
        for start in (0..bytes).step_by(length) {
            // The first page alone: a range within a superpage splits it (madvise_cold_or_pageout_pte_range).
            side.memory.advise_range(start..start + page, Advice::Cold)?;
        }
        // Splits where the advice is without effect are missing; the read-back finds them.
        if let Some(got) = side.got(Advice::NoHugePage).filter(|got| *got < bytes as u64 / 100 * 95)
        {
            let (got, of) = (ByteSize(got), ByteSize(bytes as u64));
            return Err(PricesError::NotGot { got, of, on: Wanted::Split });
        }
        side.memory.advise(Advice::NoHugePage)?;
        side.memory.bytes_mut().iter_mut().step_by(page).for_each(|byte| *byte = 0);
        Ok(side)
    }

    /// Spread of the frames of the first pages, by footprint; empty: unknown.
    fn spread(&self, footprints: &[usize]) -> Vec<f64> {
        let start = self.memory.address();
        let end = start + self.memory.len() as u64;
        let pagemap = Pagemap::open(Pid(std::process::id() as i32));
        let Ok(all) = pagemap.and_then(|map| map.frames(start, end)) else {
            return Vec::new();
        };
        let page = sys::param::page_size().bytes() as usize;
        let spread = |footprint: &usize| {
            let mut frames = Frames::default();
            let numbers = all.iter().take(footprint / page).flatten();
            // Without the privilege all numbers are 0.
            numbers.filter(|number| **number > 0).for_each(|number| frames.add(*number));
            frames.spread()
        };
        footprints.iter().map(spread).collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns the number of bytes on the requested pages; `None` if the kernel does not report it (before Linux 6.7).
    fn got(&self, advice: Advice) -> Option<u64> {
        let found = pages_of(&self.memory)?;
        Some(match advice {
            Advice::HugePage => found.huge.bytes(),
            _ => found.present.bytes() - found.huge.bytes(),
        })
    }

    fn words(&mut self, bytes: usize) -> &mut [Word] {
        self.memory.bytes_mut()[..bytes].as_chunks_mut().0
    }
}

/// Asks for each superpage that faults did not get. A request for all memory ends at the first superpage for which the
/// kernel finds no block of memory (madvise_collapse() in mm/khugepaged.c); the next request often succeeds.
fn collapse(memory: &mut Mapping, superpage: PageSize) {
    let length = superpage.bytes() as usize;
    let mut failures = 0;
    for start in (0..memory.len()).step_by(length) {
        match memory.advise_range(start..start + length, Advice::Collapse) {
            Ok(()) => failures = 0,
            Err(_) => failures += 1,
        }
        if failures > MAX_FAILURES {
            break;
        }
    }
}

fn thp_is_off(root: &Root) -> bool {
    let enabled = Thp::from_root(root).and_then(|thp| thp.enabled);
    enabled.is_some_and(|enabled| enabled.is("never"))
}

#[derive(Default)]
struct Point {
    /// Number of accesses per sample. The warming round sets it so that a sample fills a slice.
    count: u64,
    /// Nanoseconds per access: on base pages, on superpages, and on base pages with neighbouring frames.
    times: [Vec<f64>; 3],
}

impl Point {
    fn sample(
        &mut self,
        sides: &mut [Side],
        footprint: usize,
        kernel: Random,
        warming: bool,
        seed: u64,
    ) {
        let count = if warming { ACCESSES.0 as u64 } else { self.count };
        // A running program has page-table lines in its caches, as far as they fit. The other side has just used the
        // caches, so fill them again: four accesses per line of a table, which holds eight entries. Use the measured
        // kernel for this: other processes evict lines from a shared cache meanwhile, and have more time for it during
        // a chase. (Filling with independent loads made a chase's translation cheaper than a program sees.)
        let tables = footprint as u64 / sys::param::page_size().bytes() / 2;
        for (side, times) in sides.iter_mut().zip(&mut self.times) {
            kernel(side.words(footprint), tables, !seed);
            let ns = kernel(side.words(footprint), count, seed);
            match warming {
                true => self.count = (SLICE / ns.max(0.1)).clamp(ACCESSES.0, ACCESSES.1) as u64,
                false => times.push(ns),
            }
        }
    }
}

/// Returns the median; 0 for an empty list, before the first visit.
fn middle(times: &[f64]) -> f64 {
    median(&mut times.to_vec()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superpage_that_cannot_be_made_does_not_keep_the_next_from_being_made() {
        let superpage = Thp::pmd_size_of(&Root::real()).ok();
        testkit::require!(superpage.is_some(), "no transparent superpages");
        testkit::lock_machine!(shared);
        let superpage = superpage.unwrap();
        let length = superpage.bytes() as usize;
        let mut memory = Mapping::aligned(3 * length, superpage).unwrap();
        memory.advise(Advice::NoHugePage).unwrap();
        memory.bytes_mut().fill(1);
        for start in [0, 2 * length] {
            memory.advise_range(start..start + length, Advice::HugePage).unwrap();
        }
        // Whether the kernel can make one at all.
        let made = memory.advise_range(0..length, Advice::Collapse);
        testkit::require!(made.is_ok(), "the kernel makes no superpage now: {made:?}");
        let found = pages_of(&memory);
        testkit::require!(found.is_some(), "the kernel does not report page sizes");
        collapse(&mut memory, superpage);
        assert_eq!(pages_of(&memory).unwrap().huge.bytes(), 2 * superpage.bytes());
    }

    #[test]
    fn the_remedy_is_that_of_the_cause() {
        let line = |on| {
            let (got, of) = (ByteSize::mib(190), ByteSize::mib(256));
            PricesError::NotGot { got, of, on }.to_string()
        };
        let short = line(Wanted::Superpages { thp_off: false });
        assert!(short.ends_with("as root: sysctl -w vm.compact_memory=1"), "{short}");
        assert!(!short.contains("transparent_hugepage"), "{short}");
        let off = line(Wanted::Superpages { thp_off: true });
        assert!(off.ends_with("> /sys/kernel/mm/transparent_hugepage/enabled"), "{off}");
        assert!(!off.contains("compact_memory"), "{off}");
    }
}
