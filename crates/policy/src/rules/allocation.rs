//! Event 1: a free physical superpage is acquired.

use alloc::vec::Vec;

use units::ByteSize;

use crate::Condition;

/// The rules of physical allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// What makes a program get a superpage.
    pub trigger: Trigger,
    /// A fault maps a page of a size only where this holds. `None`: wherever one fits.
    pub when: Option<Condition>,
    /// What it gets.
    pub form: Form,
    /// The sizes that may be had, ascending: the page table's superpage, smaller ones (mTHP, the sizes of Navarro
    /// et al.) and larger ones (Trident). A fault, and a scan with a condition, take the largest that fits and is
    /// worth it.
    pub sizes: Vec<ByteSize>,
    /// Which mappings may have superpages.
    pub eligible: Eligible,
    /// What a fault may do to get one.
    pub effort: Effort,
    /// What a fault may do in a mapping that was advised (MADV_HUGEPAGE).
    pub effort_advised: Effort,
    /// How far a superpage may reach past the end of what is mapped.
    pub growth: Growth,
    /// What happens where no superpage can be had.
    pub shortage: Shortage,
    /// A read of untouched memory maps a shared superpage of zeros.
    pub zero_page: bool,
    /// Reservations are broken, least recently changed first, when base pages run out.
    pub break_reservations: bool,
}

/// What makes a program get a physical superpage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Nothing: base pages only.
    Never,
    /// The mapping itself: pages of a pool are set aside (hugetlb).
    Mmap,
    /// The first fault in a virtual superpage.
    FirstFault,
    /// A background scan, later (see [`super::Scan`]).
    Scan,
}

/// What is acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A superpage, whole, mapped as one.
    Superpage,
    /// A superpage kept together for a virtual superpage, populated page by page.
    Reservation,
    /// A page of a pool that was set aside beforehand.
    Pool,
}

/// Which mappings may have superpages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eligible {
    /// Every anonymous mapping.
    Always,
    /// Those advised.
    Advised,
}

/// What may be done to get a free superpage when none is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Nothing.
    None,
    /// Wake the background daemons, take one only if it is free now.
    Wake,
    /// Compact and reclaim at once, asynchronously, without retry; gives up if compaction is deferred.
    Direct,
    /// As `Direct`, with a second, synchronous attempt.
    DirectRetry,
    /// As Linux 4.3: an asynchronous compaction, reclaim, another; gives up at once if deferred.
    Direct43,
}

/// How far a superpage may reach past the end of what is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Not at all: the whole window must lie in the mapping (Linux; Navarro et al.: in the object as it is now).
    Within,
    /// Anonymous memory may grow into it (FreeBSD).
    PastEnd,
}

/// What happens where no superpage can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// A smaller size, at last a base page.
    BasePage,
    /// The reservation whose last allocation is oldest gives up its free part (Navarro et al.).
    Preempt,
    /// The mapping is refused (hugetlb).
    Refuse,
}
