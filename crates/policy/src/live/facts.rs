//! What an executor knows about memory of a running program. Amounts are in bytes.

use super::state::FIRST_LOOK;
use super::{Fallback, Policy};
use crate::{Action, Result, Wait};

/// What is known now. What an event is not decided by may be left at its default; what costs something to learn is
/// learned when a policy asks ([`crate::Action::Read`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The size of the superpages that are meant.
    pub superpage: u64,
    /// The size of a base page.
    pub base_page: u64,
    /// No file may be opened and nothing tried: a seccomp filter may be in place.
    pub is_sealed: bool,

    /// The length of the mapping.
    pub length: u64,
    /// Where it begins in its superpage.
    pub offset: u64,
    /// What the memory is.
    pub kind: Kind,
    /// What it is used for.
    pub used: Use,
    /// What is wanted where the pool has no superpages for it.
    pub fallback: Fallback,
    /// Of a mapping that grew, the length before.
    pub old: u64,
    /// How much of that was advised.
    pub advised: u64,
    /// What lies behind that seems to be touched.
    pub is_filled: bool,

    /// Superpages that the kernel makes are turned off.
    pub is_off: bool,
    /// Of a segment or file: it is as its file is, whose own superpages may lie there.
    pub has_file: bool,
    /// Of a segment or file: a copy of it may take its place.
    pub may_copy: bool,

    /// A first touch of advised memory may compact (THP `defrag`).
    pub compacts: bool,
    /// Larger superpages than these are on as well.
    pub has_larger: bool,
    /// Memory of the machine.
    pub total: u64,
    /// Free in blocks of a superpage or more; `None`: not read, or not to be had.
    pub contiguous: Option<u64>,
    /// Free in blocks of any size.
    pub free: u64,
    /// Advised and promised before, and not touched yet.
    pub outstanding: u64,
    /// Could be free: clean page cache and the like; `None`: not read.
    pub reclaimable: Option<u64>,
    /// The largest of the smaller sizes (mTHP) that advised memory gets; 0: none, or not read.
    pub smaller: u64,
    /// Free in blocks of that size or more.
    pub contiguous_smaller: u64,
    /// Somebody can be asked to make superpages free.
    pub has_supply: bool,
    /// Superpages that were made free for this piece; `None`: not asked.
    pub obtained: Option<u64>,
    /// Direct compactions since the machine started.
    pub stalls: u64,
    /// First touches since then that were to get a superpage and got base pages.
    pub fallbacks: u64,
    /// Faults of this process.
    pub faults: u64,

    /// Memory the process has; `None`: not read.
    pub resident: Option<u64>,
    /// What its cgroups leave it, the least; `None`: not read, or no limit.
    pub headroom: Option<u64>,
    /// No limit of the process's own is on its memory or address space.
    pub is_unlimited: bool,
    /// The mapping lies on superpages of its own, all of it.
    pub is_whole: bool,
    /// Its beginning that is populated already, from its first superpage on.
    pub prepared: u64,
    /// Memory that is kept of what the program unmapped.
    pub kept: u64,
    /// Some of that is one mapping of the length that is wanted.
    pub has_fitting: bool,
    /// [`super::State::requests`] when it was kept.
    pub born: u64,
}

/// What memory is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Memory that is advised whole or not at all.
    #[default]
    Whole,
    /// A private mapping of the program's, whose advice may be the program's.
    Mapping,
    /// malloc's memory; nobody else gives advice for it.
    Heap,
    /// The main thread's stack, which the kernel grows as one mapping.
    Stack,
    /// A region that the program asked for by the library's own functions.
    Region,
    /// A small mapping that is put into a larger one, and must have the same advice to be joined with it.
    Joined,
    /// A copy that is to take the place of memory of the pool: one mapping, as that is.
    Copy,
    /// A segment of the program, with contents of its file.
    Segment,
    /// Memory of a segment that its file has no contents of.
    Bss,
    /// A large file that the program maps to read it.
    File,
}

impl Kind {
    /// Whether free memory decides how much of it is advised.
    pub(super) fn is_weighed(self) -> bool {
        matches!(self, Self::Whole | Self::Mapping | Self::Heap)
    }

    /// Whether it has contents when it is mapped, or is part of the program as it was loaded.
    pub(super) fn is_loaded(self) -> bool {
        matches!(self, Self::Segment | Self::Bss | Self::File)
    }
}

/// What memory is used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Use {
    /// Nothing yet.
    #[default]
    Fresh,
    /// Nothing yet, and little of it may ever be.
    Reserved,
    /// It is in use.
    Old,
    /// Nothing any more.
    Unmapped,
}

// What happens to the memory of a running program.

/// What happened. Which facts each is decided by is said at the function that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Memory is mapped, and nothing is known yet of its pages: how much of it is advised.
    Mapped,
    /// Part of a segment is loaded, and nothing of the program has run; or a large file is mapped.
    Loaded,
    /// A mapping was enlarged in place or moved, with the advice it had: how much of what was added keeps it.
    Grew,
    /// A mapping that was advised in part is to be moved or resized as one.
    Moves,
    /// The pool had no superpages for memory that was to lie on it.
    NoPoolPage,
    /// A new mapping that is advised whole is about to be handed out.
    Ready,
    /// The program asks for a mapping that may be one that was kept.
    Wanted,
    /// A request had no use for a mapping that is kept.
    PassedBy,
    /// The program unmaps a mapping that is as it was handed out.
    Unmapped,
    /// The program maps something where a mapping is kept.
    Claimed,
    /// Memory or address space is short, or nothing may be kept from now on.
    Pressure,
    /// The program asks what would show that nothing was written to memory that is there.
    Shown,
    /// The process ends.
    Ended,
    /// What was asked for is done, or failed.
    Outcome {
        /// What was asked for.
        action: Action,
        /// How it ended.
        result: Result,
        /// The longest it took, for each superpage, in microseconds ([`Action::Probe`]).
        cost: u32,
    },
}

/// Facts that cost something to learn: an executor learns them when a policy asks ([`Action::Read`]), and tells how
/// that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// What went wrong on the machine so far: [`super::Facts::stalls`], `fallbacks` and `faults`.
    Losses,
    /// Free memory by size of blocks: [`super::Facts::contiguous`], `free`, and `outstanding` at most.
    Free,
    /// `outstanding` as it is, [`super::Facts::reclaimable`], and [`super::Facts::smaller`] with what is free of it.
    Spare,
    /// What the process has: [`super::Facts::resident`].
    Resident,
    /// What its cgroups leave it: [`super::Facts::headroom`].
    Headroom,
    /// [`super::Facts::is_unlimited`], and [`super::Facts::is_whole`] where it is.
    Whole,
}

// Back off where first touches compacted in vain: the machine's counters tell what went wrong all the same.

/// The most that is advised between two looks.
const MAX_LOOK: u64 = 512 << 20;
/// Fallbacks that are the program's own, by its faults, from which on they count.
const MANY_FALLBACKS: u64 = 16;

impl Policy {
    /// The machine's counters are due.
    pub(super) fn look(&mut self) -> Action {
        let state = &mut self.state;
        state.look_at = state.advised.saturating_add(state.look_after);
        Action::Read(Source::Losses)
    }

    /// Compares the counters with what they were: where there were many stalls and fallbacks nothing is advised for a
    /// while, longer each time; else the next look is further away.
    pub(super) fn looked(&mut self, result: Result, facts: &Facts) -> Action {
        let is_read = matches!(result, Result::Done { .. });
        if is_read && self.are_many(facts) {
            self.state.look_after = FIRST_LOOK;
            let bytes = self.state.losses.grow(self.state.requested);
            return Action::Wait(Wait::Bytes(bytes));
        }
        self.weigh(facts)
    }

    fn are_many(&mut self, facts: &Facts) -> bool {
        let state = &mut self.state;
        let now = [facts.stalls, facts.fallbacks, facts.faults];
        let before = core::mem::replace(&mut state.seen, now);
        if !core::mem::replace(&mut state.has_looked, true) {
            return false;
        }
        let [stalls, fallbacks, faults] = [0, 1, 2].map(|at| now[at].saturating_sub(before[at]));
        // They are everybody's, but a superpage of ours that fell back was as many faults of ours.
        let own = fallbacks.min(faults >> facts.order());
        if stalls >= MANY_FALLBACKS && own >= MANY_FALLBACKS {
            return true;
        }
        state.look_after = MAX_LOOK.min(state.look_after * 2);
        state.losses.shorten();
        false
    }
}
