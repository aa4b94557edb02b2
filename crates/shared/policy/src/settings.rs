//! Settings that a policy gives its executor once: properties of the simulated machine that a design determines. See
//! docs/decisions/policy.md#4.

use units::ByteSize;

use crate::rules::{
    Effort, Eligible, Form, Grain, Locking, Prefault, Reclaim, ResidentCount, Shortage, Trigger,
    ZeroStores,
};
use crate::{Orders, Policy, Reads};

/// The units of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Size of a base page, in bytes.
    pub base_page: u64,
    /// Order of the PMD-level size, which one page table maps: 9 for 2M superpages and 4K base pages.
    pub superpage: u8,
    /// Ticks of the clock per microsecond.
    pub ticks: u64,
}

impl Scale {
    /// Base pages of 4K, superpages of 2M, and one tick per microsecond.
    pub const X86: Self = Self { base_page: 4096, superpage: 9, ticks: 1 };

    pub(crate) fn ticks_of(&self, time: core::time::Duration) -> u64 {
        (time.as_nanos() * u128::from(self.ticks) / 1000) as u64
    }

    pub(crate) fn order(&self, size: ByteSize) -> u8 {
        (size.bytes() / self.base_page).max(1).ilog2() as u8
    }
}

/// How physical memory is managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Physical {
    /// Whether pages are grouped by mobility.
    pub grouping: bool,
    /// Whether anonymous pages may be swapped out.
    pub swaps: bool,
    /// Maximum shift of compaction's deferral: after failures, compaction skips up to 2^shift
    /// attempts.
    pub defer_shift: u8,
    /// Strength of proactive compaction, from 0 to 100.
    pub proactiveness: u8,
    /// Number of compactions in 1000 that give up on a contended lock, and the number of pages that each migrates
    /// before it gives up.
    pub contended: (u16, u32),
    /// Outer `None`: no pool. Inner: the pool's number of superpages; `None`: as many as are mapped.
    pub pool: Option<Option<u64>>,
    /// Whether allocations prefer zeroed memory.
    pub prefers_zeroed: bool,
    /// Whether a zeroed superpage is always available at no cost: the upper bound of all designs.
    pub is_ideal: bool,
    /// Orders of preemptible reservations.
    pub preemptible: Orders,
    /// Orders of reservations.
    pub reserved: Orders,
    /// Orders between a base page and a superpage that a fault may map.
    pub smaller: Orders,
    /// Orders above the PMD-level size that a fault may map.
    pub larger: Orders,
}

/// How memory is zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeroing {
    /// Whether stores bypass the caches.
    pub non_temporal: bool,
    /// Bytes zeroed per call.
    pub bulk: ByteSize,
    /// Whether prezeroing's stores bypass the caches. `None`: no prezeroing.
    pub ahead_non_temporal: Option<bool>,
}

/// What a stock kernel can give a program that runs under a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Kind of pages that the program gets.
    pub pages: LaunchPages,
    /// Size of the program's superpages; `None`: the kernel's default.
    pub size: Option<ByteSize>,
    /// Whether memory is zeroed before it is needed.
    pub prezero: bool,
    /// Pages that a fault maps in addition to the faulting page.
    pub prefault: Prefault,
    /// Whether a fault prepares a whole superpage.
    pub is_whole: bool,
    /// Whether first faults of [`LaunchPages::Transparent`] compact or reclaim, in any memory, if no superpage is free.
    pub compacts: bool,
}

/// The kind of pages that a launched program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchPages {
    /// Base pages.
    Base,
    /// Pages of a pool, reserved when memory is mapped.
    Pool,
    /// THP, from the first fault on.
    Transparent,
    /// Pages that only a modified kernel provides, by reservations or collapses of its own.
    OwnKernel,
}

/// How faults of one address space are served, for models of multithreaded programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPath {
    /// The locks that a fault takes.
    pub locking: Locking,
    /// How resident pages are counted.
    pub resident: ResidentCount,
    /// log2 of the maximum number of pages that a sequential fault maps; 0: one page.
    pub prefault: u8,
    /// Prezeroing: the zeroed shares of free memory (per mille) at which zeroing starts and stops,
    /// and the order of its blocks.
    pub prezero: Option<(u16, u16, u8)>,
    /// Size that a first fault maps; `None`: a base page.
    pub superpage: Option<ByteSize>,
}

impl Policy {
    /// Returns how physical memory is managed.
    pub fn physical(&self) -> Physical {
        let (allocation, memory) = (&self.rules.allocation, &self.rules.memory);
        let preempts = allocation.shortage == Shortage::Preempt;
        let reserved = self.at_fault.reserved;
        Physical {
            grouping: memory.grouping,
            swaps: memory.reclaim != Reclaim::None,
            defer_shift: memory.defer_shift,
            proactiveness: memory.proactiveness,
            contended: (memory.contended_permille, memory.contended_pages),
            pool: (allocation.form == Form::Pool).then_some(memory.pool_pages),
            prefers_zeroed: self.rules.preparation.prezero.is_some(),
            is_ideal: memory.ideal,
            preemptible: if preempts { reserved } else { Orders::NONE },
            reserved,
            smaller: self.at_fault.smaller,
            larger: self.at_fault.larger,
        }
    }

    /// Returns how memory is zeroed, at faults and before it is needed.
    pub fn zeroing(&self) -> Zeroing {
        let preparation = &self.rules.preparation;
        Zeroing {
            non_temporal: preparation.stores == ZeroStores::NonTemporal,
            bulk: preparation.bulk,
            ahead_non_temporal: preparation
                .prezero
                .map(|prezero| prezero.stores == ZeroStores::NonTemporal),
        }
    }

    /// Returns what a stock kernel can give a program that runs under this design.
    pub fn launch(&self) -> Launch {
        let (allocation, preparation) = (&self.rules.allocation, &self.rules.preparation);
        let pages = match (allocation.trigger, allocation.form) {
            (Trigger::Never, _) => LaunchPages::Base,
            (Trigger::Mmap, _) => LaunchPages::Pool,
            (Trigger::FirstFault, Form::Superpage) => LaunchPages::Transparent,
            (Trigger::FirstFault | Trigger::Scan, _) => LaunchPages::OwnKernel,
        };
        Launch {
            pages,
            size: allocation.sizes.last().copied(),
            prezero: preparation.prezero.is_some(),
            prefault: preparation.prefault,
            is_whole: preparation.grain == Grain::Superpage,
            compacts: pages == LaunchPages::Transparent
                && allocation.eligible == Eligible::Always
                && !matches!(allocation.effort, Effort::None | Effort::Wake),
        }
    }

    /// Returns how faults of one address space are served. Ignores the program's advice.
    pub fn fault_path(&self) -> FaultPath {
        let rules = &self.rules;
        let is_whole = rules.allocation.eligible == Eligible::Always
            && rules.allocation.trigger == Trigger::FirstFault
            && rules.allocation.form != Form::Reservation
            && rules.preparation.grain == Grain::Superpage;
        FaultPath {
            locking: rules.fault.locking,
            resident: rules.fault.resident,
            prefault: match rules.preparation.prefault {
                Prefault::Doubling(order) => order,
                // Memory that was never touched has no resident neighbours.
                Prefault::None | Prefault::Resident(_) => 0,
            },
            prezero: rules
                .preparation
                .prezero
                .map(|rule| (rule.start_permille, rule.stop_permille, rule.order)),
            superpage: rules.allocation.sizes.last().filter(|_| is_whole).copied(),
        }
    }

    /// The set of facts that the policy uses and that are expensive to determine.
    pub fn reads(&self) -> Reads {
        self.at_fault.reads
    }
}
