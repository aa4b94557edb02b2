//! Event 2: the initial contents of a physical superpage are produced.

use core::time::Duration;

use units::ByteSize;

/// The rules of physical preparation.
#[derive(Debug, Clone, PartialEq)]
pub struct Preparation {
    /// How much a fault prepares.
    pub grain: Grain,
    /// A fault that finds at least this many pages populated prepares the rest at once.
    pub fill_at: Option<u16>,
    /// The stores that zero.
    pub stores: ZeroStores,
    /// Bytes zeroed by one call; a superpage is zeroed in steps of this size.
    pub bulk: ByteSize,
    /// The rest is prepared in the background.
    pub background: Option<BackgroundFill>,
    /// Free memory is zeroed before it is needed.
    pub prezero: Option<Prezero>,
    /// Pages beside the faulting one are mapped as well.
    pub prefault: Prefault,
}

/// How much a fault prepares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// One base page.
    Page,
    /// The whole superpage.
    Superpage,
}

/// The kind of stores that zero memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroStores {
    /// Through the caches.
    Temporal,
    /// Past the caches (movnti and its like).
    NonTemporal,
}

/// A daemon that completes partly populated reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackgroundFill {
    /// From this many populated pages on.
    pub at: u16,
    /// Its period.
    pub every: Duration,
    /// Pages filled per pass, at most.
    pub budget_pages: u32,
}

/// Zeroing free memory ahead of demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prezero {
    /// The order of the blocks that are zeroed.
    pub order: u8,
    /// Blocks per pass.
    pub blocks: u32,
    /// Time between passes.
    pub every: Duration,
    /// Start when less than this many per mille of the free memory is zeroed (1000: always).
    pub start_permille: u16,
    /// Stop at this many.
    pub stop_permille: u16,
    /// The stores it zeroes with (those of faults may differ: HawkEye's do).
    pub stores: ZeroStores,
}

/// Which pages a fault maps beside the one that was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefault {
    /// None.
    None,
    /// Up to this many pages each side that are already in memory (FreeBSD).
    Resident(u8),
    /// Doubling batches while faults are sequential, up to 2^order (Lameter): of base pages, or of
    /// superpages where those are the grain.
    Doubling(u8),
}
