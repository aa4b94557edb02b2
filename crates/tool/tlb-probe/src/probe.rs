//! `Probe`: the calibrator's whole view of a machine. What is estimated is estimated through this
//! trait alone, so that a simulated machine of known geometry can stand behind it and be found out.
//! See docs/decisions/tlb.md#5.

use std::fmt;

use units::PageSize;

/// What a chase runs over: a line of a page. Pages are numbered from the start of an address range
/// that is aligned to a gigabyte at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The page's number, in pages of the size that is probed.
    pub page: u64,
    /// The cache line within it.
    pub line: u64,
}

impl Place {
    /// Its bytes from the start, with lines of `line` bytes.
    pub fn offset(&self, page: PageSize, line: u64) -> usize {
        (self.page * page.bytes() + self.line * line) as usize
    }
}

/// A page size that the machine offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The size.
    pub page: PageSize,
    /// How its pages are got, in words.
    pub means: String,
    /// The most pages that one chase may touch.
    pub pages: u64,
    /// The pages of the address range: every number is below.
    pub span: u64,
}

/// Page sizes that are not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOffered {
    /// The sizes; none: superpages, whose size is not known.
    pub sizes: Vec<PageSize>,
    /// Why, and the remedy.
    pub why: String,
}

impl fmt::Display for NotOffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sizes.is_empty() {
            return write!(f, "superpages: {}", self.why);
        }
        let sizes: Vec<String> = self.sizes.iter().map(PageSize::to_string).collect();
        write!(f, "pages of {}: {}", sizes.join(", "), self.why)
    }
}

/// What cycles are counted in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    /// Cycles of the core in a microsecond.
    pub core_mhz: f64,
    /// Ticks of the time-stamp counter in a microsecond, where there is one.
    pub counter_mhz: Option<f64>,
    /// The lowest and the highest clock of the core seen so far.
    pub seen_mhz: (f64, f64),
    /// Readings that were thrown away because the clock changed under them.
    pub retried: u32,
}

impl Clock {
    /// How far the clock moved during the measurement, as a share of it.
    pub fn drift(&self) -> f64 {
        (self.seen_mhz.1 - self.seen_mhz.0) / self.core_mhz
    }
}

/// Why a probe has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Nobody offered pages of this size.
    #[error("pages of {0} are not available")]
    NotOffered(PageSize),
    /// The pages were promised and did not come.
    #[error("pages of {page}: {why}")]
    NotGot {
        /// Of this size.
        page: PageSize,
        /// What happened, and the remedy.
        why: String,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error(transparent)]
    System(#[from] sys::SysError),
}

/// A machine, as far as a program can feel it.
pub trait Probe {
    /// The page sizes it offers, the base page first, ascending.
    fn offers(&self) -> Vec<Offer>;

    /// Bytes of a cache line.
    fn line(&self) -> u64;

    /// Mean cycles per access of a chase over `places`: each load's address is what the load before
    /// it read, in an order drawn from `seed` in which all are met once before one is met again.
    /// Caches and TLBs are as such a chase leaves them.
    fn chase(&mut self, page: PageSize, places: &[Place], seed: u64) -> Result<f64, ProbeError>;

    /// Other memory for pages of this size from now on: what a walk costs depends on where frames and page
    /// tables lie. A probe on which it does not has nothing to do.
    fn renew(&mut self, _page: PageSize) -> Result<(), ProbeError> {
        Ok(())
    }

    /// The clock, as far as it is known by now.
    fn clock(&self) -> Clock;
}
