//! Settings that a policy gives its executor once: facts of the simulated machine that a design sets, not decisions.
//! See docs/decisions/policy.md#4.

use units::ByteSize;

use crate::rules::{
    Eligible, Form, Grain, Locking, Prefault, Reclaim, ResidentCount, Shortage, Trigger, ZeroStores,
};
use crate::{Orders, Policy, Reads};

/// The units of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Size of a base page, in bytes.
    pub base_page: u64,
    /// Order of the page table's superpage: 9 for 2M in pages of 4K.
    pub superpage: u8,
    /// Ticks of the clock per microsecond.
    pub ticks: u64,
}

impl Scale {
    /// Base pages of 4K, superpages of 2M, and a clock in microseconds.
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
    /// Maximum shift of compaction's deferral: after failures 2^shift attempts are skipped.
    pub defer_shift: u8,
    /// Proactiveness of compaction, 0 to 100.
    pub proactiveness: u8,
    /// Number of compactions in 1000 that give up on a contended lock, and the pages that each has migrated in
    /// vain.
    pub contended: (u16, u32),
    /// The pool and its number of superpages, if there is a pool; inner `None`: as many as are mapped.
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
    /// Orders above the page table's superpage that a fault may map.
    pub larger: Orders,
}

/// How memory is zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeroing {
    /// Whether stores bypass the caches.
    pub non_temporal: bool,
    /// Bytes zeroed per call.
    pub bulk: ByteSize,
    /// Whether stores of prezeroing bypass the caches. `None`: no prezeroing.
    pub ahead_non_temporal: Option<bool>,
}

/// What a stock kernel can give a program that runs under a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The pages of the program.
    pub pages: LaunchPages,
    /// Size of its superpages; `None`: the kernel's.
    pub size: Option<ByteSize>,
    /// Whether memory is zeroed before it is needed.
    pub prezero: bool,
    /// The pages that a fault maps in addition to the faulting one.
    pub prefault: Prefault,
    /// Whether a fault prepares a whole superpage.
    pub is_whole: bool,
}

/// The pages of a launched program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchPages {
    /// Base pages.
    Base,
    /// Pages of a pool, reserved when memory is mapped.
    Pool,
    /// Transparent superpages from the first fault on.
    Transparent,
    /// Pages that no stock kernel provides: a modified kernel reserves or collapses them.
    OwnKernel,
}

/// How faults of one address space are served, for models of multithreaded programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPath {
    /// The locks.
    pub locking: Locking,
    /// How resident pages are counted.
    pub resident: ResidentCount,
    /// Sequential faults map up to 2^this pages at once; 0: one page.
    pub prefault: u8,
    /// Prezeroing: start and stop in zeroed per mille of free memory, in blocks of 2^this pages.
    pub prezero: Option<(u16, u16, u8)>,
    /// Size that a first fault maps; `None`: a base page.
    pub superpage: Option<ByteSize>,
}

impl Policy {
    /// How physical memory is managed.
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

    /// How memory is zeroed, at faults and ahead of demand.
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

    /// What a stock kernel can give a program.
    pub fn launch(&self) -> Launch {
        let (allocation, preparation) = (&self.rules.allocation, &self.rules.preparation);
        Launch {
            pages: match (allocation.trigger, allocation.form) {
                (Trigger::Never, _) => LaunchPages::Base,
                (Trigger::Mmap, _) => LaunchPages::Pool,
                (Trigger::FirstFault, Form::Superpage) => LaunchPages::Transparent,
                (Trigger::FirstFault | Trigger::Scan, _) => LaunchPages::OwnKernel,
            },
            size: allocation.sizes.last().copied(),
            prezero: preparation.prezero.is_some(),
            prefault: preparation.prefault,
            is_whole: preparation.grain == Grain::Superpage,
        }
    }

    /// How faults of one address space are served. The program's advice is not considered.
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
                // Resident neighbours: there are none in memory that was never touched.
                Prefault::None | Prefault::Resident(_) => 0,
            },
            prezero: rules
                .preparation
                .prezero
                .map(|rule| (rule.start_permille, rule.stop_permille, rule.order)),
            superpage: rules.allocation.sizes.last().filter(|_| is_whole).copied(),
        }
    }

    /// The facts that the policy reads and that are expensive to learn.
    pub fn reads(&self) -> Reads {
        self.at_fault.reads
    }
}
