//! Facts about memory of a running program, as an executor reports them. Amounts are in bytes.

use super::state::FIRST_LOOK;
use crate::{Action, Outcome};
use crate::{Advisor, Fallback};

/// The facts of one event. A fact that the event's decision does not use may be left at its default; expensive facts
/// are learned when the advisor asks ([`crate::Action::Read`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Size of the superpages in question.
    pub superpage: u64,
    /// Size of a base page.
    pub base_page: u64,
    /// Whether no file may be opened and nothing probed: a seccomp filter may be in place.
    pub is_sealed: bool,

    /// Length of the mapping.
    pub length: u64,
    /// Offset of the mapping's start in its superpage.
    pub offset: u64,
    /// Kind of the memory.
    pub kind: Kind,
    /// Use of the memory.
    pub used: Use,
    /// Fallback if the pool has no superpages for the mapping.
    pub fallback: Fallback,
    /// Length before the mapping grew.
    pub old: u64,
    /// Advised bytes of the old length.
    pub advised: u64,
    /// Whether the bytes behind the advised ones seem to be touched.
    pub is_filled: bool,

    /// Whether the kernel's superpages are turned off.
    pub is_off: bool,
    /// For a segment or file: whether it is unmodified, so that its file's superpages may be mapped.
    pub has_file: bool,
    /// For a segment or file: whether a copy may replace it.
    pub may_copy: bool,

    /// Whether a first touch of advised memory may compact (THP `defrag`).
    pub compacts: bool,
    /// Whether larger superpages than `superpage` are also enabled.
    pub has_larger: bool,
    /// Total memory of the machine.
    pub total: u64,
    /// Free memory in blocks of a superpage or more; `None`: not read, or unavailable.
    pub contiguous: Option<u64>,
    /// Free memory in blocks of any size.
    pub free: u64,
    /// Memory that was advised and promised, and not touched yet.
    pub outstanding: u64,
    /// Reclaimable memory: clean page cache and similar; `None`: not read.
    pub reclaimable: Option<u64>,
    /// The largest size below `superpage` (mTHP) that advised memory gets; 0: none, or not read.
    pub smaller: u64,
    /// Free memory in blocks of the size `smaller` or more.
    pub contiguous_smaller: u64,
    /// Whether a supplier can be asked to free superpages.
    pub has_supply: bool,
    /// Number of superpages freed for this piece; `None`: not asked.
    pub obtained: Option<u64>,
    /// Number of direct compactions since boot.
    pub stalls: u64,
    /// Number of first touches since boot that wanted a superpage and got base pages.
    pub fallbacks: u64,
    /// Number of faults of this process.
    pub faults: u64,

    /// Resident memory of the process; `None`: not read.
    pub resident: Option<u64>,
    /// The smallest headroom in the process's cgroups; `None`: not read, or no limit.
    pub headroom: Option<u64>,
    /// Whether the process has no limit of its own on memory or address space.
    pub is_unlimited: bool,
    /// Whether all of the mapping lies on private superpages.
    pub is_whole: bool,
    /// Bytes of the mapping that are populated already, from its first superpage on.
    pub prepared: u64,
    /// Unmapped memory that is kept, in bytes.
    pub kept: u64,
    /// Whether a kept mapping has the wanted length.
    pub has_fitting: bool,
    /// [`super::State::requests`] when the mapping was kept.
    pub born: u64,
}

/// The kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Memory that is advised whole or not at all.
    #[default]
    Whole,
    /// A private mapping of the program, which may have advised it.
    Mapping,
    /// malloc's memory; only the library advises it.
    Heap,
    /// The main thread's stack, which the kernel grows as one mapping.
    Stack,
    /// A region that the program requested by the library's API.
    Region,
    /// A small mapping inside a larger one. The kernel merges the two only if they have the same advice.
    Joined,
    /// A copy that replaces memory of the pool: one mapping, like the original.
    Copy,
    /// A segment of the program, with contents of its file.
    Segment,
    /// The part of a segment without file contents.
    Bss,
    /// A large file that the program maps for reading.
    File,
}

impl Kind {
    /// Whether free memory decides how much of the memory is advised.
    pub(super) fn is_weighed(self) -> bool {
        matches!(self, Self::Whole | Self::Mapping | Self::Heap)
    }

    /// Whether the memory has contents when it is mapped, or is part of the loaded program.
    pub(super) fn is_loaded(self) -> bool {
        matches!(self, Self::Segment | Self::Bss | Self::File)
    }
}

/// The use of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Use {
    /// Unused so far.
    #[default]
    Fresh,
    /// Unused so far, and little of it may ever be used.
    Reserved,
    /// In use.
    Old,
    /// No longer used.
    Unmapped,
}

// Events of the memory of a running program.

/// An event, for which the advisor decides an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// New memory is mapped. Decides how much of it is advised.
    Mapped,
    /// Part of a segment is loaded, before the program runs; or a large file is mapped.
    Loaded,
    /// A mapping was enlarged, in place or by a move, and kept its advice. Decides how much of the added part keeps
    /// the advice.
    Grew,
    /// A partly advised mapping is about to be moved or resized as a whole.
    Moves,
    /// The pool has no superpages for memory that should lie on it.
    NoPoolPage,
    /// A new, fully advised mapping is about to be handed out.
    Ready,
    /// The program requests a mapping that a kept one may serve.
    Wanted,
    /// The program requested a mapping that a kept one could not serve.
    PassedBy,
    /// The program unmaps a whole mapping, with the bounds at which mmap returned it.
    Unmapped,
    /// The program maps memory at the address of a kept mapping.
    Claimed,
    /// Memory or address space is short, or nothing may be kept from now on.
    Pressure,
    /// The program asks for information that would reveal unwritten but resident memory.
    Shown,
    /// The process ends.
    Ended,
    /// An action was completed or failed.
    Outcome {
        /// The action.
        action: Action,
        /// Its result.
        result: Outcome,
        /// Maximum time per superpage, in microseconds ([`Action::Probe`]).
        cost: u32,
    },
}

/// Facts that are expensive to learn: an executor learns them when the advisor asks ([`Action::Read`]), and reports the
/// outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The machine's loss counters: [`super::Facts::stalls`], `fallbacks` and `faults`.
    Losses,
    /// Free memory by block size: [`super::Facts::contiguous`], `free`, and an upper bound of `outstanding`.
    Free,
    /// The exact `outstanding`, [`super::Facts::reclaimable`], and [`super::Facts::smaller`] with its free
    /// memory.
    Spare,
    /// Resident memory of the process: [`super::Facts::resident`].
    Resident,
    /// Headroom in its cgroups: [`super::Facts::headroom`].
    Headroom,
    /// [`super::Facts::is_unlimited`], and if so [`super::Facts::is_whole`].
    Whole,
}

// Back-off where first touches compacted and failed, as the machine's counters show.

/// Maximum number of bytes advised between two reads of the counters.
const MAX_LOOK: u64 = 512 << 20;
/// Minimum number of stalls for a loss, and also of fallbacks that the program's own faults
/// explain.
const MANY_FALLBACKS: u64 = 16;

impl Advisor {
    /// Reads the machine's counters.
    pub(super) fn look(&mut self) -> Action {
        let state = &mut self.state;
        state.look_at = state.advised.saturating_add(state.look_after);
        Action::Read(Source::Losses)
    }

    /// Compares the counters with the last read. After many stalls and fallbacks, advises nothing for a while, longer
    /// each time. Otherwise doubles the interval to the next read.
    pub(super) fn looked(&mut self, result: Outcome, facts: &Facts) -> Action {
        let is_read = matches!(result, Outcome::Done { .. });
        if is_read && self.are_many(facts) {
            self.state.look_after = FIRST_LOOK;
            let bytes = self.state.losses.grow(self.state.requested);
            return Action::Wait { bytes };
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
        // The counters are machine-wide. Each superpage of ours that fell back caused one fault of ours per base page.
        let own = fallbacks.min(faults >> facts.order());
        if stalls >= MANY_FALLBACKS && own >= MANY_FALLBACKS {
            return true;
        }
        state.look_after = MAX_LOOK.min(state.look_after * 2);
        state.losses.shorten();
        false
    }
}
