//! `Calibration`: everything that was found, as it is printed and kept (`superpage.tlb/1`). Facts only;
//! cycles are those of the core, sizes are bytes, unknown is null.

use host::TlbArray;
use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::agree::Cost;
use crate::backing::Backing;
use crate::walks::Step;

/// The schema's name and version.
pub const SCHEMA: &str = "superpage.tlb/1";

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA`].
    pub schema: String,
    /// The seed of every random order.
    pub seed: u64,
    /// How long it took.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// The processor, as far as it says what it is; nothing of it was used to measure.
    pub processor: Processor,
    /// The clock.
    pub clock: ClockReport,
    /// The base page.
    pub base_page: PageSize,
    /// Cycles of a load that hits the first level of TLB and cache.
    #[serde(deserialize_with = "units::cycles")]
    pub load_cycles: f64,
    /// By page size, ascending.
    pub sizes: Vec<SizeReport>,
    /// How instructions are fetched, by page size: the pages of code that the first level keeps, and the cycles of jumps
    /// between them. Empty where that was not measured.
    #[serde(default)]
    pub instructions: Vec<SizeReport>,
    /// What longer walks for base pages cost.
    pub walk_steps: Vec<Step>,
    /// Whether superpages reach the TLB.
    pub backing: Option<Backing>,
    /// Accesses far beyond the caches; missing where they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<Accesses>,
    /// What is in doubt: findings that repeated readings, or what the processor says of itself, contradict.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// What the processor says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// Its name.
    pub model: Option<String>,
    /// Its maker.
    pub vendor: Option<String>,
    /// `cpu family` of x86.
    #[serde(default)]
    pub family: Option<u32>,
    /// `model` of x86, Arm's part number.
    #[serde(default)]
    pub number: Option<u32>,
    /// Whether this is a virtual machine, if that is known.
    pub guest: Option<bool>,
    /// TLB arrays by CPUID; empty where it does not tell.
    pub arrays: Vec<TlbArray>,
}

/// The clock, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ClockReport {
    /// The core's cycles in a microsecond, by a chain of dependent additions.
    #[serde(deserialize_with = "units::mhz")]
    pub core_mhz: f64,
    /// The time-stamp counter's ticks in a microsecond.
    #[serde(deserialize_with = "units::mhz")]
    pub counter_mhz: Option<f64>,
    /// The lowest and highest clock of the core between measurements.
    #[serde(deserialize_with = "units::mhz")]
    pub seen_mhz: (f64, f64),
    /// Chases that were made again because the clock changed under them.
    pub retried: u32,
}

units::checked!(ClockReport, LevelReport);

impl ClockReport {
    fn check(&self) -> Result<(), String> {
        let (low, high) = self.seen_mhz;
        (low <= high).then_some(()).ok_or("seen_mhz does not ascend".to_string())
    }
}

impl LevelReport {
    fn check(&self) -> Result<(), String> {
        let ascends = self.range.is_none_or(|(low, high)| low <= high);
        let has_ways = self.ways.zip(self.entries).is_none_or(|(ways, entries)| ways <= entries);
        match () {
            () if !ascends => Err("range does not ascend".to_string()),
            () if !has_ways => Err("ways are more than entries".to_string()),
            () => Ok(()),
        }
    }
}

/// Accesses to memory far beyond the caches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// The bytes of that memory.
    #[serde(deserialize_with = "units::bytes")]
    pub bytes: u64,
    /// Loads each of which needs the one before.
    pub dependent: OnPages,
    /// Updates that do not wait for each other, as those of GUPS.
    pub independent: OnPages,
}

/// Nanoseconds of an access, by what it lies on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OnPages {
    /// Base pages.
    #[serde(deserialize_with = "units::nanoseconds")]
    pub base_ns: f64,
    /// Superpages.
    #[serde(deserialize_with = "units::nanoseconds")]
    pub superpage_ns: f64,
}

/// One page size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeReport {
    /// The size.
    pub page: PageSize,
    /// How its pages were got.
    pub means: String,
    /// TLB levels, first to last.
    pub levels: Vec<LevelReport>,
    /// What a miss of all levels costs beyond a hit in the first, page tables being in the caches.
    pub miss: Option<Cost>,
    /// The footprint at which that was measured.
    #[serde(deserialize_with = "units::count")]
    pub miss_pages: Option<u64>,
    /// The share of resamples of the curve's rounds in which the same levels are found; null or missing: unknown.
    #[serde(default, deserialize_with = "units::share")]
    pub confidence: Option<f64>,
    /// The curve.
    pub curve: Vec<CurvePoint>,
}

/// One TLB level for one page size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct LevelReport {
    /// The most neighbouring pages whose translations it keeps; null if the curve ends first.
    #[serde(deserialize_with = "units::count")]
    pub entries: Option<u64>,
    /// Where `entries` may as well lie: what noise allows of a level that ends with its first miss; else from the
    /// first misses to where half of all accesses miss.
    #[serde(default, deserialize_with = "units::count")]
    pub range: Option<(u64, u64)>,
    /// Whether it ends with its first miss. If not, sets are drawn by a hash, and `entries` is where misses cost a
    /// tenth of all they will.
    #[serde(default = "yes")]
    pub sharp: bool,
    /// Its ways; as many as entries: fully associative; null: it does not show.
    #[serde(deserialize_with = "units::count")]
    pub ways: Option<u64>,
    /// What a hit costs beyond one in the first level; null for the first.
    pub hit: Option<Cost>,
}

fn yes() -> bool {
    true
}

/// A point of the curve, in cycles per access.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Pages.
    #[serde(deserialize_with = "units::count")]
    pub pages: u64,
    /// One line in each page.
    #[serde(deserialize_with = "units::cycles")]
    pub spread: f64,
    /// As many lines in few pages, freed of what their own translation cost.
    #[serde(deserialize_with = "units::cycles_more_or_less")]
    pub packed: f64,
}

impl Calibration {
    /// What was found for a page size.
    pub fn size(&self, page: PageSize) -> Option<&SizeReport> {
        self.sizes.iter().find(|size| size.page == page)
    }

    /// What was found for the base page.
    pub fn base(&self) -> Option<&SizeReport> {
        self.size(self.base_page)
    }

    /// Nanoseconds of so many cycles.
    pub fn nanoseconds(&self, cycles: f64) -> f64 {
        nanoseconds(cycles, self.clock.core_mhz)
    }
}

/// Nanoseconds of so many cycles at a clock.
pub fn nanoseconds(cycles: f64, mhz: f64) -> f64 {
    cycles * 1000.0 / mhz
}

/// Cycles of so many nanoseconds at a clock.
pub fn cycles(nanoseconds: f64, mhz: f64) -> f64 {
    nanoseconds * mhz / 1000.0
}
