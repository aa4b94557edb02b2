//! Zeroing ahead: when the daemon (scrubd, one per node) zeroes free memory, in what blocks, and with what. Its work is in
//! `memory`. See docs/decisions/faults.md#11.

use std::str::FromStr;

use policy::ahead::Refill;
use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::{FaultsError, Kernel, Machine};

/// The largest order of a free block: the kernel's default (assumed for ia64).
pub const MAX_BLOCK_ORDER: u8 = 10;

/// When free memory is zeroed, and in what blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scrub {
    /// Starts when less than this many per mille of a node's free memory are zeroed.
    pub start_permille: u16,
    /// Stops at this many per mille.
    pub stop_permille: u16,
    /// Starts once 2^this pages are not zeroed, and zeroes blocks of so many. Large ones first: each is split into many, and
    /// costs less a byte.
    pub order: u8,
    /// Goes on with ever smaller blocks, down to this order.
    pub stop_order: u8,
    /// Pauses while this many threads run, or more.
    pub load: u32,
    /// What does the zeroing.
    #[serde(skip_deserializing)]
    pub by: Zeroing,
}

/// What zeroes for the daemon.
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

/// A machine's block transfer engine. What is smaller or larger than it takes is a CPU's.
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
    /// Whether the engine zeroes a block of this size.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        (self.least.0..=self.most.0).contains(&bytes)
    }
}

impl Scrub {
    /// The rule of a node with `free` pages of free memory.
    pub(super) fn refill(&self, free: u64) -> Refill {
        let share = |permille: u16| (free as u128 * u128::from(permille) / 1000) as u64;
        // It zeroes what was freed; nobody gives zeroed memory back, however long it is not used.
        Refill {
            start: share(self.start_permille),
            stop: share(self.stop_permille),
            load: u64::from(self.load),
            patience_ms: u64::MAX,
        }
    }
}

/// The daemon's settings, where they are not the machine's: `scrub_start`, `scrub_stop` and `scrub_load` of Lameter's patches
/// up to V7 (docs/sources/policies.md 3.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Starts once a block of this order is not zeroed.
    pub start: Option<u8>,
    /// The smallest order that is zeroed.
    pub stop: Option<u8>,
    /// Pauses while this many threads run, or more.
    pub load: Option<u32>,
    /// What does the zeroing.
    pub by: Zeroing,
}

impl ScrubSettings {
    /// Sets them in a kernel, if that zeroes ahead.
    ///
    /// # Errors
    /// [`FaultsError::Scrub`], [`FaultsError::NoEngine`]: orders that no block has, an engine that the machine lacks or that is
    /// never used.
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
            // By orders alone.
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

/// What the daemons did in a run, and the free memory at its end: everything is freed, and their last turn has not come.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZeroedAhead {
    /// Number of pages zeroed between the run's start and its end.
    pub pages: u64,
    /// Number of pages that faults found zeroed.
    pub found_pages: u64,
    /// CPU time of the daemons. An engine uses none.
    pub cpu_seconds: f64,
    /// Free memory of each node.
    pub nodes: Vec<FreeBlocks>,
}

/// Free blocks of a node by order, from 2^0 pages on, as /proc/buddyinfo has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FreeBlocks {
    /// Blocks that are not zeroed.
    pub not_zeroed: Vec<u64>,
    /// Blocks that are zeroed.
    pub zeroed: Vec<u64>,
}

impl FreeBlocks {
    /// Of so many pages of both kinds. Memory is taken from the block that was split last, and what was taken is freed whole:
    /// so pages of a kind form the largest blocks that their number allows. Kinds never share a block.
    pub(super) fn new(not_zeroed: u64, zeroed: u64) -> Self {
        let blocks = |pages: u64| {
            let split = (0..MAX_BLOCK_ORDER).map(|order| pages >> order & 1);
            split.chain([pages >> MAX_BLOCK_ORDER]).collect()
        };
        Self { not_zeroed: blocks(not_zeroed), zeroed: blocks(zeroed) }
    }
}
