//! Holds free memory fragmented: in a percentage of the free superpages, some pages stay in use.
//!
//! Memory is faulted on superpages. Each superpage is split (MADV_COLD on a part of it) and freed except for a few
//! pages, so that hardly more memory is ever in use than the pages that stay. Movable pages match Quicksilver's
//! `fragment_level` in number and position (docs/sources/policies.md 4.1); compaction can make the superpage whole
//! again. A pinned page ([`sys::pin`]) cannot be moved. Only memory is changed, and the kernel frees it when this
//! process ends, however it ends.
//! See docs/decisions/bench.md#3.

use std::ops::Range;
use std::time::Duration;

use host::{FreeContiguity, ReadError, Root};
use sys::SysError;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use sys::pin::PinnedPages;
use units::{ByteSize, PageSize};

/// Which pages of a fragmented superpage stay in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The last 16 pages of the superpage, which compaction can move.
    Movable,
    /// The first page of the superpage, pinned so that nothing can move it.
    Pinned,
}

const MOVABLE_PAGES: u64 = 16;
/// Number of superpages faulted at a time, to limit the memory in use.
const CHUNK: u64 = 64;
/// Number of superpages split and freed last. The kernel keeps the most recently freed base pages in per-CPU lists,
/// where they are not merged. One such page keeps its whole superpage from being free, so the last pages come from few
/// superpages.
const CUSHION: u64 = 40;
/// Maximum number of passes over superpages that became free meanwhile.
const MAX_PASSES: u32 = 3;
/// Pause before each of these passes.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// Maximum number of consecutive batches that do not reduce the number of free superpages. Compaction or other
/// processes may free them as fast, or the kernel may not give the last ones to programs (zone DMA).
const MAX_STUCK: u32 = 4;

impl Kind {
    fn kept(self, superpage: PageSize) -> Range<usize> {
        let (superpage, page) = (superpage.bytes(), sys::param::page_size().bytes());
        let kept = match self {
            Self::Movable => superpage - (MOVABLE_PAGES * page).min(superpage / 2)..superpage,
            Self::Pinned => 0..page,
        };
        kept.start as usize..kept.end as usize
    }
}

/// The part of free memory to fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All free superpages.
    All,
    /// Only this many bytes are fragmented; all other free memory is left alone.
    Part(ByteSize),
    /// All but this many bytes are occupied. The level applies to the bytes left.
    Leave(ByteSize),
    /// A program needs this many bytes, of which the level (in percent) is made unavailable. All other free memory
    /// is fragmented too. This is Frag-L of the laboratory.
    Needed(ByteSize),
}

/// Free memory of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// The size of superpages.
    pub superpage: PageSize,
    /// Number of free superpages.
    pub superpages: u64,
    /// Bytes available without swapping, within the limits of control groups.
    pub available: ByteSize,
    /// The part of `available` that should stay free.
    pub margin: ByteSize,
}

/// The goal, in superpages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The pages of a superpage that stay in use.
    pub kind: Kind,
    /// Fragmentation level in percent.
    pub level: u8,
    /// The size of superpages.
    pub superpage: PageSize,
    /// Number of superpages to occupy entirely.
    pub occupied: u64,
    /// Number of superpages to fragment.
    pub fragmented: u64,
    /// Number of free superpages to leave on the machine; `None`: superpages that are not fragmented are left alone.
    pub left: Option<u64>,
    /// Maximum number of superpages to fragment, if more become free meanwhile.
    pub most: u64,
}

/// Why a goal is impossible.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GoalError {
    /// The request is smaller than one superpage.
    #[error("{0} is less than a superpage of {1}; give at least that")]
    LessThanOne(ByteSize, PageSize),
    /// The request exceeds the free superpages.
    #[error(
        "{wanted} is more than lies free in superpages ({free}); give less, or free some memory"
    )]
    NotFree {
        /// The requested size.
        wanted: ByteSize,
        /// The free size.
        free: ByteSize,
    },
    /// The goal leaves too little memory.
    #[error(
        "{taken} would be taken of {available} available, but {margin} should stay with the rest of the machine; \
         leave more, or free some memory"
    )]
    NoHeadroom {
        /// Memory that would be taken.
        taken: ByteSize,
        /// Available memory.
        available: ByteSize,
        /// Memory that should remain.
        margin: ByteSize,
    },
}

impl GoalError {
    /// Returns whether the machine is the cause, not the request.
    pub fn is_cannot(&self) -> bool {
        !matches!(self, Self::LessThanOne(..))
    }
}

impl Goal {
    /// Returns the goal of a level (in percent) on a machine.
    ///
    /// # Errors
    /// Too few superpages are free, or too little memory would remain.
    pub fn new(kind: Kind, level: u8, extent: Extent, free: Free) -> Result<Self, GoalError> {
        let superpage = free.superpage;
        let size = |superpages: u64| ByteSize(superpages.saturating_mul(superpage.bytes()));
        let meant = match extent {
            Extent::All => free.superpages,
            Extent::Part(wanted) | Extent::Leave(wanted) | Extent::Needed(wanted) => {
                wanted.bytes() / superpage.bytes()
            }
        };
        if let Extent::Part(wanted) | Extent::Leave(wanted) | Extent::Needed(wanted) = extent {
            if meant == 0 {
                return Err(GoalError::LessThanOne(wanted, superpage));
            }
            if meant > free.superpages {
                return Err(GoalError::NotFree { wanted, free: size(free.superpages) });
            }
        }
        let of_meant = (meant as f64 * f64::from(level) / 100.0).round() as u64;
        let left = meant - of_meant;
        let (occupied, fragmented, left) = match extent {
            Extent::All => (0, of_meant, Some(left)),
            Extent::Part(_) => (0, of_meant, None),
            Extent::Leave(_) => (free.superpages - meant, of_meant, Some(left)),
            Extent::Needed(_) => (0, free.superpages - left, Some(left)),
        };
        // All available memory may become free superpages as other processes free memory. The bound is needed because
        // the kernel makes movable ones whole about as fast as they are fragmented.
        let half = fragmented + fragmented / 2;
        let most = match extent {
            Extent::All | Extent::Needed(_) if fragmented > 0 => {
                half.max(free.available.bytes() / superpage.bytes())
            }
            Extent::Part(_) => fragmented,
            Extent::All | Extent::Needed(_) | Extent::Leave(_) => half,
        };
        let goal = Self { kind, level, superpage, occupied, fragmented, left, most };
        let taken = ByteSize(goal.bytes().bytes().saturating_add(size(goal.kept_whole()).bytes()));
        let (available, margin) = (free.available, free.margin);
        if taken.bytes().saturating_add(margin.bytes()) > available.bytes() {
            return Err(GoalError::NoHeadroom { taken, available, margin });
        }
        Ok(goal)
    }

    /// Returns the number of superpages held whole until all others are fragmented. They are then free at the end, and
    /// compaction cannot use them to make other superpages.
    fn kept_whole(&self) -> u64 {
        match self.kind {
            Kind::Pinned if self.fragmented > 0 => self.left.unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns the number of bytes held when the goal is reached.
    pub fn bytes(&self) -> ByteSize {
        bytes(self.kind, self.superpage, self.occupied, self.fragmented)
    }
}

fn bytes(kind: Kind, superpage: PageSize, occupied: u64, fragmented: u64) -> ByteSize {
    let kept = kind.kept(superpage).len() as u64;
    let whole = occupied.saturating_add(if fragmented > 0 { CUSHION } else { 0 });
    let whole = whole.saturating_mul(superpage.bytes());
    ByteSize(whole.saturating_add(fragmented.saturating_mul(kept)))
}

/// Why memory was not taken.
#[derive(Debug, thiserror::Error)]
pub enum FragmentError {
    /// Superpages are free, but none was allocated.
    #[error(
        "no superpage was available for fragmenting: transparent superpages are off, here or for this process; enable \
         them with: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    )]
    NoSuperpages,
    /// The kernel refused.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// Free memory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The caller cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// Fragmented and occupied memory; freed on drop. A fork does not copy it.
#[derive(Debug)]
pub struct Held {
    /// The goal.
    pub goal: Goal,
    memory: Vec<Mapping>,
    pins: PinnedPages,
    /// Freed last, because fields are dropped in the order of declaration.
    cushion: Vec<Mapping>,
    pagemap: Pagemap,
    /// Number of superpages occupied entirely.
    pub occupied: u64,
    /// Number of superpages fragmented.
    pub fragmented: u64,
}

impl Held {
    /// Takes memory until the goal is reached or no more is available; the fields hold how much was reached. `goes_on`
    /// gets the numbers of superpages done and wanted, and cancels by returning false.
    ///
    /// # Errors
    /// No superpage is available, or `goes_on` returned false. All memory is freed.
    pub fn take(
        root: &Root,
        goal: Goal,
        mut goes_on: impl FnMut(u64, u64) -> bool,
    ) -> Result<Self, FragmentError> {
        let pagemap = Pagemap::open(sys::param::own_pid())?;
        let (memory, pins) = (Vec::new(), PinnedPages::default());
        let mut held =
            Self { goal, memory, pins, cushion: Vec::new(), pagemap, occupied: 0, fragmented: 0 };
        let total = goal.occupied + goal.fragmented;
        if goal.fragmented > 0 {
            let (mut piece, got) = fault(&held.pagemap, goal.superpage, CUSHION)?;
            let all = goal.superpage.bytes() as usize;
            got.into_iter().try_for_each(|start| held.split(&mut piece, start, &(0..all)))?;
            held.cushion.push(piece);
        }
        let mut told = |held: &Self| match goes_on(held.occupied + held.fragmented, total) {
            true => Ok(()),
            false => Err(FragmentError::Interrupted),
        };
        let mut left = Vec::new();
        held.whole(goal.kept_whole(), &mut left, |held, _| told(held))?;
        let mut whole = std::mem::take(&mut held.memory);
        held.occupied = held.whole(goal.occupied, &mut whole, |held, got| {
            held.occupied = got;
            told(held)
        })?;
        held.memory = whole;
        match (goal.kind, goal.left) {
            (Kind::Pinned, Some(_)) => held.fragment_all(&mut told)?,
            _ => held.fragment_free(root, &mut told)?,
        }
        // Recently freed memory may be merged only now, so look again.
        for _ in 0..MAX_PASSES {
            let is_left =
                |left: u64| superpages(root, goal.superpage).map(|free| free > left + CHUNK);
            let Some(Ok(true)) = goal.left.filter(|_| goal.fragmented > 0).map(is_left) else {
                break;
            };
            std::thread::sleep(SETTLED_AFTER);
            held.fragment_free(root, &mut told)?;
        }
        drop(left);
        if total > 0 && held.occupied + held.fragmented == 0 {
            return Err(FragmentError::NoSuperpages);
        }
        Ok(held)
    }

    /// If the goal leaves a number of superpages free, fragments superpages that became free since: compaction makes
    /// movable superpages whole, and other programs free theirs.
    ///
    /// # Errors
    /// As [`Held::take`], but memory held before stays held.
    pub fn renew(
        &mut self,
        root: &Root,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), FragmentError> {
        if (self.goal.kind, self.goal.left.is_some()) != (Kind::Movable, true) {
            return Ok(());
        }
        let before = std::mem::take(&mut self.fragmented);
        let renewed = self.fragment_free(root, &mut |_| match goes_on() {
            true => Ok(()),
            false => Err(FragmentError::Interrupted),
        });
        self.fragmented += before;
        renewed
    }

    /// Returns the number of bytes held.
    pub fn bytes(&self) -> ByteSize {
        bytes(self.goal.kind, self.goal.superpage, self.occupied, self.fragmented)
    }

    /// Takes `count` superpages whole into `pieces`. Returns the number taken.
    fn whole(
        &mut self,
        count: u64,
        pieces: &mut Vec<Mapping>,
        mut told: impl FnMut(&mut Self, u64) -> Result<(), FragmentError>,
    ) -> Result<u64, FragmentError> {
        let mut all = 0;
        while all < count {
            told(self, all)?;
            let (piece, got) = fault(&self.pagemap, self.goal.superpage, CHUNK.min(count - all))?;
            if got.is_empty() {
                break;
            }
            pieces.push(piece);
            all += got.len() as u64;
        }
        Ok(all)
    }

    /// Fragments free superpages until only as many are free as wanted, or the maximum is fragmented.
    fn fragment_free(
        &mut self,
        root: &Root,
        told: &mut impl FnMut(&Self) -> Result<(), FragmentError>,
    ) -> Result<(), FragmentError> {
        let goal = self.goal;
        let mut free = superpages(root, goal.superpage)?;
        let mut stuck = 0;
        while stuck < MAX_STUCK {
            told(self)?;
            let above = goal.left.map_or(CHUNK, |left| free.saturating_sub(left));
            let count = CHUNK.min(above).min(goal.most.saturating_sub(self.fragmented));
            if count == 0 {
                break;
            }
            let got = self.fragment(count)?;
            let before = std::mem::replace(&mut free, superpages(root, goal.superpage)?);
            let moved_on = got > 0 && (goal.left.is_none() || free < before);
            stuck = if moved_on { 0 } else { stuck + 1 };
        }
        Ok(())
    }

    /// Fragments superpages until none is available. This includes superpages that compaction makes for our faults, as
    /// it would for the program's.
    fn fragment_all(
        &mut self,
        told: &mut impl FnMut(&Self) -> Result<(), FragmentError>,
    ) -> Result<(), FragmentError> {
        let mut stuck = 0;
        while self.goal.fragmented > 0 && stuck < MAX_STUCK {
            told(self)?;
            let few = self.fragment(CHUNK)? < CHUNK / 16;
            stuck = if few { stuck + 1 } else { 0 };
        }
        Ok(())
    }

    /// Fragments `count` superpages. Returns the number fragmented.
    fn fragment(&mut self, count: u64) -> Result<u64, FragmentError> {
        let (mut piece, got) = fault(&self.pagemap, self.goal.superpage, count)?;
        let superpage = self.goal.superpage.bytes() as usize;
        let kept = self.goal.kind.kept(self.goal.superpage);
        for start in &got {
            self.split(&mut piece, *start, &kept)?;
            let stays = start + kept.start..start + kept.end;
            if self.goal.kind == Kind::Pinned {
                // Pin after the split: a superpage with an extra reference cannot be split.
                self.pins.pin(&mut piece, stays.clone())?;
            }
            for rest in [*start..stays.start, stays.end..start + superpage] {
                piece.advise_range(rest, Advice::DontNeed)?;
            }
        }
        self.memory.push(piece);
        self.fragmented += got.len() as u64;
        Ok(got.len() as u64)
    }

    /// Makes the kernel split the superpage at `start`, of which the part `kept` stays. Without the split, parts freed
    /// from a whole superpage would stay in memory until memory is short. The writes are needed because the split frees
    /// zero pages (Linux 6.12, `try_to_map_unused_to_zeropage`).
    fn split(
        &self,
        piece: &mut Mapping,
        start: usize,
        kept: &Range<usize>,
    ) -> Result<(), SysError> {
        let page = sys::param::page_size().bytes() as usize;
        let stays = start + kept.start..start + kept.end;
        stays.step_by(page).for_each(|at| piece.bytes_mut()[at] = 1);
        piece.advise_range(start..start + page, Advice::Cold)
    }
}

/// Faults `count` superpages of memory. Returns the offsets of those that really are superpages, and frees the rest.
pub(crate) fn fault(
    pagemap: &Pagemap,
    superpage: PageSize,
    count: u64,
) -> Result<(Mapping, Vec<usize>), FragmentError> {
    let size = superpage.bytes() as usize;
    let page = sys::param::page_size().bytes() as usize;
    let mut piece = Mapping::aligned(count as usize * size, superpage)?;
    piece.advise(Advice::DontFork)?;
    // Ignore the error of a kernel without THP.
    let _ = piece.advise(Advice::HugePage);
    let starts = (0..piece.len()).step_by(size);
    starts.clone().for_each(|start| piece.bytes_mut()[start] = 1);
    // Otherwise khugepaged would refill the freed pages.
    let _ = piece.advise(Advice::NoHugePage);
    let mut got = Vec::new();
    for start in starts {
        let last = piece.address() + (start + size - page) as u64;
        match pagemap.is_exclusive(last)? {
            Some(_) => got.push(start),
            None => piece.advise_range(start..start + size, Advice::DontNeed)?,
        }
    }
    Ok((piece, got))
}

/// Returns the number of free superpages; 0 if the free lists do not report it.
fn superpages(root: &Root, superpage: PageSize) -> Result<u64, ReadError> {
    Ok(FreeContiguity::read(root, superpage)?.superpages.unwrap_or(0))
}

#[cfg(test)]
mod tests;
