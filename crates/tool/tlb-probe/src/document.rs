//! `Calibration`: all results, as printed and saved (`superpage.tlb/1`). Cycles are core cycles, sizes are in bytes,
//! and null means unknown.

use host::TlbArray;
use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::agree::Cost;
use crate::backing::Backing;
use crate::walks::Step;

/// Name and version of the schema.
pub const SCHEMA: &str = "superpage.tlb/1";

/// All results of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA`].
    pub schema: String,
    /// Seed of all random orders.
    pub seed: u64,
    /// Duration in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// The CPU's self-description, which no measurement uses.
    pub processor: Processor,
    /// The measured clock.
    pub clock: ClockReport,
    /// Base page size.
    pub base_page: PageSize,
    /// Cycles of a load that hits in the first TLB level and the first data cache.
    #[serde(deserialize_with = "units::cycles")]
    pub load_cycles: f64,
    /// Results by page size, ascending.
    pub sizes: Vec<SizeReport>,
    /// Instruction fetches by page size: the number of code pages that the first level holds, and the cycles of jumps
    /// between pages. Empty if not measured.
    #[serde(default)]
    pub instructions: Vec<SizeReport>,
    /// Costs of further page-table levels in walks for base pages.
    pub walk_steps: Vec<Step>,
    /// Whether superpages take single TLB entries.
    pub backing: Option<Backing>,
    /// Accesses to memory far larger than the caches; missing if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<Accesses>,
    /// The same for less memory, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearer_accesses: Vec<Accesses>,
    /// Warnings about results that repeated readings or the CPU's self-description contradict.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Failed measurements, with reasons.
    pub notes: Vec<String>,
}

/// The CPU's self-description.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// Model name.
    pub model: Option<String>,
    /// Vendor.
    pub vendor: Option<String>,
    /// `cpu family` of x86.
    #[serde(default)]
    pub family: Option<u32>,
    /// `model` of x86, `CPU part` of Arm.
    #[serde(default)]
    pub number: Option<u32>,
    /// Whether this is a virtual machine, if known.
    pub guest: Option<bool>,
    /// TLB arrays from CPUID; empty if CPUID describes none.
    pub arrays: Vec<TlbArray>,
}

/// The measured clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ClockReport {
    /// Core clock in MHz, from a chain of dependent additions.
    #[serde(deserialize_with = "units::mhz")]
    pub core_mhz: f64,
    /// Frequency of the time-stamp counter in MHz.
    #[serde(deserialize_with = "units::mhz")]
    pub counter_mhz: Option<f64>,
    /// Lowest and highest core clock between measurements, in MHz.
    #[serde(deserialize_with = "units::mhz")]
    pub seen_mhz: (f64, f64),
    /// Number of chases repeated because the clock changed during them.
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

/// Accesses to memory far larger than the caches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// Size of that memory in bytes.
    #[serde(deserialize_with = "units::bytes")]
    pub bytes: u64,
    /// Loads whose addresses depend on the preceding load.
    pub dependent: OnPages,
    /// Independent updates, as in GUPS.
    pub independent: OnPages,
}

/// Nanoseconds per access, by the backing of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OnPages {
    /// On base pages.
    #[serde(deserialize_with = "units::nanoseconds")]
    pub base_ns: f64,
    /// On superpages.
    #[serde(deserialize_with = "units::nanoseconds")]
    pub superpage_ns: f64,
}

/// Results for one page size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeReport {
    /// Page size.
    pub page: PageSize,
    /// How the pages were allocated.
    pub means: String,
    /// TLB levels, first to last.
    pub levels: Vec<LevelReport>,
    /// Cycles by which a miss in all levels is slower than a first-level hit, with page tables in the data caches.
    pub miss: Option<Cost>,
    /// Number of pages at which `miss` was measured.
    #[serde(deserialize_with = "units::count")]
    pub miss_pages: Option<u64>,
    /// Share of resamples of the curve's rounds in which the same levels are found; null or missing: unknown.
    #[serde(default, deserialize_with = "units::share")]
    pub confidence: Option<f64>,
    /// The curve of latency against footprint.
    pub curve: Vec<CurvePoint>,
}

/// One TLB level for one page size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct LevelReport {
    /// Maximum number of adjacent pages whose translations the level holds; null if the curve ends first.
    #[serde(deserialize_with = "units::count")]
    pub entries: Option<u64>,
    /// Confidence range of `entries`. For a sharp end it reflects noise; otherwise it reaches from the first misses to
    /// where half of all accesses miss.
    #[serde(default, deserialize_with = "units::count")]
    pub range: Option<(u64, u64)>,
    /// Whether the level misses abruptly when it is full. If false, a hash selects the sets, and `entries` is the
    /// footprint at which misses reach a tenth of their final cost.
    #[serde(default = "yes")]
    pub sharp: bool,
    /// Associativity: the number of ways. Equal to `entries` if fully associative; null if not
    /// found.
    #[serde(deserialize_with = "units::count")]
    pub ways: Option<u64>,
    /// Cycles by which a hit is slower than a first-level hit; null for the first level.
    pub hit: Option<Cost>,
}

fn yes() -> bool {
    true
}

/// A point of the curve, in cycles per access.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Number of pages.
    #[serde(deserialize_with = "units::count")]
    pub pages: u64,
    /// Cycles for one line in each page.
    #[serde(deserialize_with = "units::cycles")]
    pub spread: f64,
    /// Cycles for the same number of lines in few pages, corrected for their translation cost.
    #[serde(deserialize_with = "units::cycles_more_or_less")]
    pub packed: f64,
}

impl Calibration {
    /// The results for a page size.
    pub fn size(&self, page: PageSize) -> Option<&SizeReport> {
        self.sizes.iter().find(|size| size.page == page)
    }

    /// The results for the base page.
    pub fn base(&self) -> Option<&SizeReport> {
        self.size(self.base_page)
    }

    /// Converts core cycles to nanoseconds.
    pub fn nanoseconds(&self, cycles: f64) -> f64 {
        nanoseconds(cycles, self.clock.core_mhz)
    }
}

/// Nanoseconds of `cycles` at a clock in MHz.
pub fn nanoseconds(cycles: f64, mhz: f64) -> f64 {
    cycles * 1000.0 / mhz
}

/// Cycles of `nanoseconds` at a clock in MHz.
pub fn cycles(nanoseconds: f64, mhz: f64) -> f64 {
    nanoseconds * mhz / 1000.0
}
