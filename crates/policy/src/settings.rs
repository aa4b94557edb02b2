//! What a policy tells its executor once: facts of the simulated machine that a design sets, not decisions.
//! See docs/decisions/policy.md#4.

use units::ByteSize;

use crate::rules::{
    Eligible, Form, Grain, Locking, Prefault, Reclaim, ResidentCount, Shortage, Trigger, ZeroStores,
};
use crate::{Orders, Policy, Reads};

/// The units of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Bytes of a base page.
    pub base_page: u64,
    /// The order of the page table's superpage: 9 for 2M in pages of 4K.
    pub superpage: u8,
    /// Ticks of its clock in a microsecond.
    pub ticks: u64,
}

impl Scale {
    /// Pages of 4K with superpages of 2M, and microseconds.
    pub const X86: Self = Self { base_page: 4096, superpage: 9, ticks: 1 };

    pub(crate) fn ticks_of(&self, time: core::time::Duration) -> u64 {
        (time.as_nanos() * u128::from(self.ticks) / 1000) as u64
    }

    pub(crate) fn order(&self, size: ByteSize) -> u8 {
        (size.bytes() / self.base_page).max(1).ilog2() as u8
    }
}

/// How physical memory is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Physical {
    /// Pages are grouped by mobility.
    pub grouping: bool,
    /// Anonymous pages may be swapped out.
    pub swaps: bool,
    /// After failures 2^this attempts at compaction are skipped, at most.
    pub defer_shift: u8,
    /// How eagerly memory is compacted ahead of need, 0 to 100.
    pub proactiveness: u8,
    /// How many of 1000 compactions are given up for somebody else's lock, and what each has moved in vain.
    pub contended: (u16, u32),
    /// There is a pool, of so many superpages; `None` in it: as many as are mapped.
    pub pool: Option<Option<u64>>,
    /// Allocations take zeroed memory if there is any.
    pub prefers_zeroed: bool,
    /// A superpage is always to be had, zeroed, at no cost: the upper bound of all designs.
    pub is_ideal: bool,
    /// Sizes of reservations that can be taken from one another.
    pub preemptible: Orders,
    /// Sizes of reservations.
    pub reserved: Orders,
    /// Sizes between a base page and a superpage that a fault may map.
    pub smaller: Orders,
    /// Sizes above the page table's superpage that a fault may map.
    pub larger: Orders,
}

/// How memory is zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeroing {
    /// Past the caches.
    pub non_temporal: bool,
    /// In one call.
    pub bulk: ByteSize,
    /// The same of memory that is zeroed ahead of need: past the caches. `None`: none is.
    pub ahead_non_temporal: Option<bool>,
}

/// What a program can be given that runs under a design on a stock kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Its pages.
    pub pages: LaunchPages,
    /// The size of its superpages; `None`: as the kernel has them.
    pub size: Option<ByteSize>,
    /// Memory is zeroed before it is needed.
    pub prezero: bool,
    /// Pages beside a faulting one are mapped as well.
    pub prefault: Prefault,
    /// A fault prepares a whole superpage.
    pub is_whole: bool,
}

/// The pages that a program is launched with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchPages {
    /// Base pages.
    Base,
    /// Of a pool, reserved when memory is mapped.
    Pool,
    /// Transparent superpages, from the first fault on.
    Transparent,
    /// None that a stock kernel has: they are reserved or collapsed by a kernel of its own.
    OwnKernel,
}

/// How faults of one address space are served, for models of many threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPath {
    /// The locks.
    pub locking: Locking,
    /// How resident pages are counted.
    pub resident: ResidentCount,
    /// Faults in order map up to 2^this pages at once; 0: one.
    pub prefault: u8,
    /// Zeroing ahead: from and up to so many per mille of free memory, in blocks of 2^this pages.
    pub prezero: Option<(u16, u16, u8)>,
    /// A first fault maps this much; `None`: a base page.
    pub superpage: Option<ByteSize>,
}

impl Policy {
    /// How physical memory is kept.
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

    /// How memory is zeroed, at faults and ahead of them.
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

    /// What a program can be given on a stock kernel.
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

    /// How faults of one address space are served. What a program advises is not considered.
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
                // Neighbours that are in memory already: there are none where nobody was before.
                Prefault::None | Prefault::Resident(_) => 0,
            },
            prezero: rules
                .preparation
                .prezero
                .map(|rule| (rule.start_permille, rule.stop_permille, rule.order)),
            superpage: rules.allocation.sizes.last().filter(|_| is_whole).copied(),
        }
    }

    /// The facts that it reads and that cost something to learn.
    pub fn reads(&self) -> Reads {
        self.at_fault.reads
    }
}
