//! `Probe`: the calibrator's only interface to a machine, so that tests can replace it by a simulated machine of known
//! geometry. See docs/decisions/tlb.md#5.

use std::fmt;

use units::PageSize;

/// A cache line of a page, which a chase visits. Pages are numbered from the start of an address range aligned to at
/// least a gigabyte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Page number, in pages of the probed size.
    pub page: u64,
    /// Index of the cache line in the page.
    pub line: u64,
}

impl Place {
    /// Number of bytes from the start of the range, for lines of `line` bytes.
    pub fn offset(&self, page: PageSize, line: u64) -> usize {
        (self.page * page.bytes() + self.line * line) as usize
    }
}

/// A page size that the machine offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Page size.
    pub page: PageSize,
    /// How its pages are allocated, in words.
    pub means: String,
    /// Maximum number of pages in one chase.
    pub pages: u64,
    /// Number of pages in the address range.
    pub span: u64,
}

/// Page sizes that are not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOffered {
    /// The sizes; empty for superpages of unknown size.
    pub sizes: Vec<PageSize>,
    /// Reason and remedy.
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

/// The measured clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    /// Core clock in MHz.
    pub core_mhz: f64,
    /// Frequency of the time-stamp counter in MHz, if there is one.
    pub counter_mhz: Option<f64>,
    /// Lowest and highest core clock so far, in MHz.
    pub seen_mhz: (f64, f64),
    /// Number of readings discarded because the clock changed during them.
    pub retried: u32,
}

impl Clock {
    /// Relative change of the clock during the measurement, as a share of the core clock (0.01
    /// means 1 %).
    pub fn drift(&self) -> f64 {
        (self.seen_mhz.1 - self.seen_mhz.0) / self.core_mhz
    }
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The probe does not offer pages of this size.
    #[error("pages of {0} are not available")]
    NotOffered(PageSize),
    /// Offered pages could not be allocated.
    #[error("pages of {page}: {why}")]
    NotGot {
        /// Page size.
        page: PageSize,
        /// What happened, and the remedy.
        why: String,
    },
    /// A stop was requested.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error(transparent)]
    System(#[from] sys::SysError),
}

/// The calibrator's interface to a machine.
pub trait Probe {
    /// Returns the page sizes that the machine offers, ascending, so the base page is first.
    fn offers(&self) -> Vec<Offer>;

    /// Size of a cache line in bytes.
    fn line(&self) -> u64;

    /// Chases pointers over `places` in a random cyclic order from `seed`; each load reads the address of the next.
    /// Returns the mean number of cycles per access, with caches and TLBs in the steady state of the chase.
    fn chase(&mut self, page: PageSize, places: &[Place], seed: u64) -> Result<f64, ProbeError>;

    /// Switches to other memory for pages of this size, because the cost of a walk depends on the location of frames
    /// and page tables. The default does nothing, for probes whose walks cost the same everywhere.
    fn renew(&mut self, _page: PageSize) -> Result<(), ProbeError> {
        Ok(())
    }

    /// Returns the clocks measured so far.
    fn clock(&self) -> Clock;
}
