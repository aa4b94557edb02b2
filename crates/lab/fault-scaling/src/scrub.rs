//! Settings of prezeroing: when the daemon (scrubd, one per node) zeroes free memory, in which blocks, and by CPU or
//! engine. `memory` performs its work. See docs/decisions/faults.md#11.

use std::str::FromStr;

use policy::ahead::Refill;
use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::{FaultsError, Kernel, Machine};

/// The largest order of a free block: the kernel's default (assumed for ia64).
pub const MAX_BLOCK_ORDER: u8 = 10;

/// Settings of the daemon that zeroes free memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scrub {
    /// The daemon starts when less than this many per mille of a node's free memory are zeroed.
    pub start_permille: u16,
    /// The daemon stops when this many per mille of the node's free memory are zeroed.
    pub stop_permille: u16,
    /// The daemon starts when 2^`order` free pages are not zeroed, and zeroes blocks of that size first. Large blocks
    /// cost less per byte, and serve many allocations.
    pub order: u8,
    /// The daemon continues with smaller blocks, down to this order.
    pub stop_order: u8,
    /// The daemon pauses while this many threads run, or more.
    pub load: u32,
    /// What does the zeroing.
    #[serde(skip_deserializing)]
    pub by: Zeroing,
}

/// What zeroes pages for the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zeroing {
    /// A CPU of the node, while it is idle.
    #[default]
    Cpu,
    /// The machine's block transfer engine, without a CPU.
    Bte,
}

impl FromStr for Zeroing {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "bte" => Ok(Self::Bte),
            _ => Err("expected cpu or bte"),
        }
    }
}

/// A machine's block transfer engine. A CPU zeroes the blocks outside of its size limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Engine {
    /// Bandwidth of zeroing, in bytes per second.
    #[serde(deserialize_with = "super::machine::size")]
    pub bandwidth: ByteSize,
    /// Minimum size of a block.
    #[serde(deserialize_with = "super::machine::size")]
    pub least: ByteSize,
    /// Maximum size of a block.
    #[serde(deserialize_with = "super::machine::size")]
    pub most: ByteSize,
}

impl Engine {
    /// Returns whether the engine zeroes a block of this size.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        (self.least.0..=self.most.0).contains(&bytes)
    }
}

impl Scrub {
    /// Returns the rule for a node with `free` free pages.
    pub(super) fn refill(&self, free: u64) -> Refill {
        let share = |permille: u16| (free as u128 * u128::from(permille) / 1000) as u64;
        // Zeroed memory stays zeroed until it is used, so patience is infinite.
        Refill {
            start: share(self.start_permille),
            stop: share(self.stop_permille),
            load: u64::from(self.load),
            patience_ms: u64::MAX,
        }
    }
}

/// Settings of the daemon that replace the machine's: `scrub_start`, `scrub_stop` and `scrub_load` of Lameter's patches
/// up to V7 (docs/sources/policies.md 3.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubSettings {
    /// The daemon starts when a block of this order is not zeroed.
    pub start: Option<u8>,
    /// The smallest order that the daemon zeroes.
    pub stop: Option<u8>,
    /// The daemon pauses while this many threads run, or more.
    pub load: Option<u32>,
    /// What zeroes pages for the daemon.
    pub by: Zeroing,
}

impl ScrubSettings {
    /// Applies the settings to a kernel. Without prezeroing they are only checked.
    ///
    /// # Errors
    /// [`FaultsError::Scrub`]: an invalid order, or an engine that takes none of the blocks. [`FaultsError::NoEngine`]:
    /// the machine has no engine.
    pub fn apply(&self, kernel: &mut Kernel, machine: &Machine) -> Result<(), FaultsError> {
        let wrong = |setting: String, wanted: String| FaultsError::Scrub { setting, wanted };
        if let Some(start) = self.start.filter(|start| *start > MAX_BLOCK_ORDER) {
            let wanted = format!("expected an order of 0 to {MAX_BLOCK_ORDER}");
            return Err(wrong(format!("--scrub-start {start}"), wanted));
        }
        let engine = match (self.by, machine.engine) {
            (Zeroing::Bte, None) => return Err(FaultsError::NoEngine(machine.name.clone())),
            (Zeroing::Bte, engine) => engine,
            (Zeroing::Cpu, _) => None,
        };
        let Some(scrub) = &mut kernel.prezero else { return Ok(()) };
        if self.start.is_some() || self.stop.is_some() {
            // The orders alone decide.
            (scrub.start_permille, scrub.stop_permille) = (1000, 1000);
        }
        scrub.order = self.start.unwrap_or(scrub.order);
        scrub.load = self.load.unwrap_or(scrub.load);
        scrub.by = self.by;
        if let Some(stop) = self.stop.filter(|stop| *stop > scrub.order) {
            let wanted = format!("expected at most {}, the order at which it starts", scrub.order);
            return Err(wrong(format!("--scrub-stop {stop}"), wanted));
        }
        scrub.stop_order = self.stop.unwrap_or(scrub.stop_order.min(scrub.order));
        let takes = |engine: &Engine, order: u8| engine.takes(machine.base_page.0 << order);
        if let Some(engine) = engine
            && !(scrub.stop_order..=scrub.order).any(|order| takes(&engine, order))
        {
            let largest = ByteSize(machine.base_page.0 << scrub.order);
            let wanted = format!(
                "it takes blocks of {} to {}, and the largest here has {largest}: set another --scrub-start",
                engine.least, engine.most
            );
            return Err(wrong("--zeroing bte".to_string(), wanted));
        }
        Ok(())
    }
}

/// Work of the daemons in a run, and the free memory at its end, after everything was freed and before the daemons'
/// next turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZeroedAhead {
    /// Number of pages zeroed during the run.
    pub pages: u64,
    /// Number of pages that faults found zeroed.
    pub found_pages: u64,
    /// CPU time of the daemons. The engine uses none.
    pub cpu_seconds: f64,
    /// Free memory of each node.
    pub nodes: Vec<FreeBlocks>,
}

/// Number of free blocks of a node by order, from order 0, as in /proc/buddyinfo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FreeBlocks {
    /// Blocks that are not zeroed.
    pub not_zeroed: Vec<u64>,
    /// Blocks that are zeroed.
    pub zeroed: Vec<u64>,
}

impl FreeBlocks {
    /// Computes the blocks from numbers of pages. Allocation continues in the block that was split last, and everything
    /// is freed, so the pages of a kind form the largest possible blocks. Blocks are never mixed.
    pub(super) fn new(not_zeroed: u64, zeroed: u64) -> Self {
        let blocks = |pages: u64| {
            let split = (0..MAX_BLOCK_ORDER).map(|order| pages >> order & 1);
            split.chain([pages >> MAX_BLOCK_ORDER]).collect()
        };
        Self { not_zeroed: blocks(not_zeroed), zeroed: blocks(zeroed) }
    }
}
