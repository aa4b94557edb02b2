//! Event 1: a free physical superpage is acquired.

use alloc::vec::Vec;

use units::ByteSize;

use crate::Condition;
use crate::rules::table::{rules, words};

rules! {
    /// The rules of physical allocation.
    pub struct Allocation {
        /// What makes a program get a superpage.
        trigger: Trigger = Trigger::FirstFault, "trigger";
        /// A fault maps a page of a size only where this holds. `None`: wherever one fits.
        when: Option<Condition> = None, "when";
        /// What it gets.
        form: Form = Form::Superpage, "form";
        /// The sizes that may be had, ascending: the page table's superpage, smaller ones (mTHP, the sizes of Navarro
        /// et al.) and larger ones (Trident). A fault, and a scan with a condition, take the largest that fits and is
        /// worth it.
        sizes: Vec<ByteSize> = alloc::vec![ByteSize::mib(2)], "sizes";
        /// Which mappings may have superpages.
        eligible: Eligible = Eligible::Always, "eligible";
        /// What a fault may do to get one.
        effort: Effort = Effort::None, "effort";
        /// What a fault may do in a mapping that was advised (MADV_HUGEPAGE).
        effort_advised: Effort = Effort::None, "effort-advised";
        /// How far a superpage may reach past the end of what is mapped.
        growth: Growth = Growth::Within, "growth";
        /// What happens where no superpage can be had.
        shortage: Shortage = Shortage::BasePage, "shortage";
        /// A read of untouched memory maps a shared superpage of zeros.
        zero_page: bool = false, "zero-page";
        /// Reservations are broken, least recently changed first, when base pages run out.
        break_reservations: bool = false, "break-reservations";
    }
}

words! {
    /// What makes a program get a physical superpage.
    pub enum Trigger {
        /// Nothing: base pages only.
        Never = "never",
        /// The mapping itself: pages of a pool are set aside (hugetlb).
        Mmap = "mmap",
        /// The first fault in a virtual superpage.
        FirstFault = "first-fault",
        /// A background scan, later (see [`super::Scan`]).
        Scan = "scan",
    }

    /// What is acquired.
    pub enum Form {
        /// A superpage, whole, mapped as one.
        Superpage = "superpage",
        /// A superpage kept together for a virtual superpage, populated page by page.
        Reservation = "reservation",
        /// A page of a pool that was set aside beforehand.
        Pool = "pool",
    }

    /// Which mappings may have superpages.
    pub enum Eligible {
        /// Every anonymous mapping.
        Always = "always",
        /// Those advised.
        Advised = "advised",
    }

    /// What may be done to get a free superpage when none is free.
    pub enum Effort {
        /// Nothing.
        None = "none",
        /// Wake the background daemons, take one only if it is free now.
        Wake = "wake",
        /// Compact and reclaim at once, asynchronously, without retry; gives up if compaction is deferred.
        Direct = "direct",
        /// As `Direct`, with a second, synchronous attempt.
        DirectRetry = "direct-retry",
        /// As Linux 4.3: an asynchronous compaction, reclaim, another; gives up at once if deferred.
        Direct43 = "direct-4.3",
    }

    /// How far a superpage may reach past the end of what is mapped.
    pub enum Growth {
        /// Not at all: the whole window must lie in the mapping (Linux; Navarro et al.: in the object as it is now).
        Within = "within",
        /// Anonymous memory may grow into it (FreeBSD).
        PastEnd = "past-end",
    }

    /// What happens where no superpage can be had.
    pub enum Shortage {
        /// A smaller size, at last a base page.
        BasePage = "base-page",
        /// The reservation whose last allocation is oldest gives up its free part (Navarro et al.).
        Preempt = "preempt",
        /// The mapping is refused (hugetlb).
        Refuse = "refuse",
    }
}
