//! Event 2: the initial contents of a physical superpage are produced.

use core::time::Duration;

use units::ByteSize;

use crate::rules::table::{
    Key, Keys, Limit, ONE_OR_MORE, PERIOD, Slot, choice, limit, rules, words,
};

rules! {
    /// The rules of physical preparation.
    pub struct Preparation {
        /// How much a fault prepares.
        grain: Grain = Grain::Superpage, "grain";
        /// A fault that finds at least this many pages populated prepares the rest at once.
        fill_at: Option<u16> = None, "fill-at";
        /// The stores that zero.
        stores: ZeroStores = ZeroStores::Temporal, "zeroing";
        /// Bytes zeroed by one call; a superpage is zeroed in steps of this size. clear_huge_page goes page by page.
        bulk: ByteSize = ByteSize::kib(4), "bulk";
        /// The rest is prepared in the background.
        background: Option<BackgroundFill> = None, "background";
        /// Free memory is zeroed before it is needed.
        prezero: Option<Prezero> = None, "prezero";
        /// Pages beside the faulting one are mapped as well.
        prefault: Prefault = Prefault::None, "prefault";
    }

    /// A daemon that completes partly populated reservations.
    /// By default as Quicksilver's async-64 script.
    #[derive(Copy, Eq)]
    pub struct BackgroundFill {
        /// From this many populated pages on.
        at: u16 = 64, "at";
        /// Its period.
        every: Duration = Duration::from_secs(1), "every", PERIOD;
        /// Pages filled per pass, at most.
        budget_pages: u32 = 200_000, "budget-pages", ONE_OR_MORE;
    }

    /// Zeroing free memory ahead of demand.
    /// By default as HawkEye: ten blocks of order 10, then a second's sleep, without end.
    #[derive(Copy, Eq)]
    pub struct Prezero {
        /// The order of the blocks that are zeroed.
        order: u8 = 10, "order", limit(0, 10, "must be 0 to 10 (4M), the buddy allocator's largest");
        /// Blocks per pass.
        blocks: u32 = 10, "blocks", ONE_OR_MORE;
        /// Time between passes.
        every: Duration = Duration::from_secs(1), "every", PERIOD;
        /// Start when less than this many per mille of the free memory is zeroed (1000: always).
        start_permille: u16 = 1000, "start-permille", limit(1, 1000, "must be 1 to 1000 (1000: always)");
        /// Stop at this many.
        stop_permille: u16 = 1000, "stop-permille";
        /// The stores it zeroes with (those of faults may differ: HawkEye's do).
        stores: ZeroStores = ZeroStores::NonTemporal, "zeroing";
    }
}

words! {
    /// How much a fault prepares.
    pub enum Grain {
        /// One base page.
        Page = "page",
        /// The whole superpage.
        Superpage = "superpage",
    }

    /// The kind of stores that zero memory.
    pub enum ZeroStores {
        /// Through the caches.
        Temporal = "temporal",
        /// Past the caches (movnti and its like).
        NonTemporal = "non-temporal",
    }
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

choice! {
    Prefault {
        Self::None => "none" = Self::None,
        // FreeBSD's.
        Self::Resident(_) => "resident" = Self::Resident(4),
        // Lameter's best for programs with much memory.
        Self::Doubling(_) => "doubling" = Self::Doubling(4),
    }
}

/// A table of its own: the kind, and what goes with it.
impl Key for Prefault {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        const PAGES: Option<Limit> =
            limit(1, u64::MAX, "must be 1 or more; kind = \"none\" for none");
        const ORDER: Option<Limit> =
            limit(1, 9, "must be 1 to 9 (512 pages); kind = \"none\" for none");
        if keys.enter(name, true) {
            keys.key("kind", none, Slot::Word(self));
        }
        match self {
            Self::Resident(pages) => pages.visit("pages", PAGES, keys),
            _ => keys.only_with(&["pages"], "kind = \"resident\""),
        }
        match self {
            Self::Doubling(order) => order.visit("order", ORDER, keys),
            _ => keys.only_with(&["order"], "kind = \"doubling\""),
        }
        keys.leave();
    }
}
