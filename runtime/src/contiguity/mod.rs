//! How much of the program's memory is advised for superpages: as much as free memory is
//! contiguous.
//!
//! Where memory is fragmented (one page in each superpage that cannot be moved is enough), each
//! first touch of advised memory goes into direct compaction for milliseconds and then gets base
//! pages all the same. Nothing can be taken back while a program touches one large piece. So
//! `decide` says before the advice how much of it fits, from the free blocks in /proc/buddyinfo (3
//! microseconds) less what was advised before and is still untouched. Where free memory is short
//! because page cache fills it, or the file cannot be read, a few superpages are tried (`probe`).
//! What went wrong all the same is seen in /proc/vmstat afterwards: it is counted, and for a while,
//! longer each time, nothing is advised.
//!
//! A mapping that is advised in part is two to the kernel, and `mremap` of both at once fails. So
//! the border is noted, and [`rejoin`] removes it first.
//!
//! Everything here is a hint in plain atomics: no lock, no allocation, and a child of a fork goes
//! on as its parent was. Once a seccomp filter may be in place no file is opened and nothing is
//! tried: the last answer stays.
//!
//! # Safety
//! Advice changes no contents.

mod blocks;
mod decide;
mod granted;
mod machine;
mod probe;
mod tables;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

use crate::ledger::{self, Kind, Reason};
use crate::raw::{self, Errno};
use crate::{filter, maps};
use decide::{Decision, Facts};

/// Pieces of this size are decided anew; for smaller ones what was read is good for as much in all.
const FRESH: usize = 8 << 20;
/// Advised in all before the machine's counters are looked at: it costs a small program nothing.
/// And before they are looked at again, unless that went well: then twice as much each time.
const FIRST_LOOK: usize = 64 << 20;
/// The most between two looks.
const MAX_LOOK: usize = 512 << 20;
/// Fallbacks that are the program's own, by its faults, from which on they count.
const MANY_FALLBACKS: usize = 16;
/// Asked for in all before something is tried, ...
const FIRST_TRIAL: usize = 64 << 20;
/// ... and after a trial that went well, and at first after one that did not.
const NEXT_TRIAL: usize = 256 << 20;
/// The longest pause.
const MAX_PAUSE: usize = 64 << 30;

/// Asked for, and advised, so far.
static ASKED: AtomicUsize = AtomicUsize::new(0);
static ADVISED: AtomicUsize = AtomicUsize::new(0);
/// Asked for since free blocks were last read, and what may still be advised without reading them.
static SINCE: AtomicUsize = AtomicUsize::new(usize::MAX / 2);
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// Whether there was too little.
static SHORT: AtomicBool = AtomicBool::new(false);

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

static TRIALS: Pause = Pause::new(FIRST_TRIAL);
static TRIED_AT: AtomicUsize = AtomicUsize::new(0);
/// Of the last trial.
static VERDICT: AtomicU8 = AtomicU8::new(0);
const GOOD: u8 = 1;
const BAD: u8 = 2;

static LOSSES: Pause = Pause::new(0);
/// `ADVISED` at which the counters are looked at next, and what they were.
static LOOK_AT: AtomicUsize = AtomicUsize::new(FIRST_LOOK);
static LOOK_AFTER: AtomicUsize = AtomicUsize::new(FIRST_LOOK);
static HAS_LOOKED: AtomicBool = AtomicBool::new(false);
static STALLS: AtomicUsize = AtomicUsize::new(0);
static FALLBACKS: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Until when something is left alone, measured in bytes that are asked for.
struct Pause {
    until: AtomicUsize,
    length: AtomicUsize,
}

impl Pause {
    const fn new(until: usize) -> Self {
        Self { until: AtomicUsize::new(until), length: AtomicUsize::new(NEXT_TRIAL) }
    }

    fn is_over(&self) -> bool {
        ASKED.load(Relaxed) >= self.until.load(Relaxed)
    }

    /// It went well: the next pause is a short one.
    fn reset(&self) {
        self.length.store(NEXT_TRIAL, Relaxed);
        self.until.store(ASKED.load(Relaxed).saturating_add(NEXT_TRIAL), Relaxed);
    }

    /// It did not: twice as long each time.
    fn grow(&self) {
        let length = self.length.load(Relaxed);
        self.until.store(ASKED.load(Relaxed).saturating_add(length), Relaxed);
        self.length.store(length.saturating_mul(2).min(MAX_PAUSE), Relaxed);
    }
}

/// What memory is used for when it is advised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nothing yet.
    Fresh,
    /// Nothing yet, and little of it may ever be.
    Reserved,
    /// It is in use.
    Old,
}

/// Advises as much of `[start, start + length)` as free memory allows: nothing, a part that begins
/// at `start`, or all. Returns how many bytes; why they are not all is counted. errno is left
/// alone. Nobody uses the memory yet.
pub fn advise(kind: Kind, start: usize, length: usize) -> usize {
    give(kind, start, length, Use::Fresh)
}

/// The same of memory that is in use.
pub fn advise_old(kind: Kind, start: usize, length: usize) -> usize {
    give(kind, start, length, Use::Old)
}

/// The same for address space that is only reserved, of which little may come to be touched: all or
/// nothing, and later pieces do not wait for its touches.
pub fn advise_reserved(kind: Kind, start: usize, length: usize) -> usize {
    give(kind, start, length, Use::Reserved)
}

/// To be called before `[start, start + length)` is moved or resized by `mremap`: it becomes one
/// mapping. Returns how many bytes were advised, for [`grown`]: those before the first border.
pub fn rejoin(start: usize, length: usize) -> usize {
    granted::remove_borders(start, start.saturating_add(length))
}

/// The program, or malloc, does something else with `[start, end)`: its borders are no longer ours.
pub fn forget(start: usize, end: usize) {
    granted::forget_borders(start, end);
}

/// The program watches memory through userfaultfd: nothing of its mappings is populated any more, or that would wait
/// for whoever answers.
pub fn is_watched() {
    IS_WATCHED.store(true, Relaxed);
}

/// A mapping that `mremap` has enlarged.
pub struct Grown {
    pub start: usize,
    pub length: usize,
    /// Its length before.
    pub old: usize,
    /// How much of that was advised, as [`rejoin`] said.
    pub advised: usize,
}

/// What was added to a mapping has the advice of what was there. It keeps it as far as free memory
/// allows. Returns how many of the added bytes are advised.
pub fn grown(kind: Kind, grown: &Grown) -> usize {
    let &Grown { start, length, old, advised } = grown;
    let superpage = machine::superpage();
    let is_filled = |from: usize| granted::is_filled(start + from, start + old, superpage);
    // What lies behind a border is decided again, unless it is touched already.
    let from = if advised >= old || is_filled(advised) { old } else { advised };
    let need = (start + length) / superpage * superpage - (start + from) / superpage * superpage;
    if length <= old || old < superpage || need == 0 {
        return length.saturating_sub(old);
    }
    let was_short = SHORT.load(Relaxed);
    let piece =
        Piece { start: start + from, length: length - from, need: Some(need), is_reserved: false };
    let fits = fits(kind, piece);
    let border = piece.start + fits.bytes;
    let is_all = border == start + length;
    if kind != Kind::Heap {
        // It may be any memory, and the advice it has may be the program's.
        if is_all && !was_short && machine::larger_thp().is_none() {
            fits.promise(piece.start);
            return length - old;
        }
        if !maps::is_private_anonymous(start, start + length) {
            return length - old;
        }
    }
    if !is_all {
        ledger::because(Reason::Fragmented);
        // Before a border there is advice, which is not for memory that never had it.
        let may_advise = from < old || is_filled(0) || maps::is_advised(start);
        if !may_advise || !withdraw(start, border, start + length) {
            return 0;
        }
    } else if !tables::make(start + old, length - old)
        || advice(start, length, libc::MADV_HUGEPAGE).is_err()
    {
        return 0;
    }
    fits.promise(piece.start);
    ADVISED.fetch_add(fits.bytes, Relaxed);
    (border - start).saturating_sub(old)
}

/// Takes the advice of `[border, end)` back; `false`: of all that begins at `start`, because it would not be
/// one mapping again. There is no way but MADV_NOHUGEPAGE; [`rejoin`] takes that back in turn.
fn withdraw(start: usize, border: usize, end: usize) -> bool {
    // First of all of it: the base page that joins the parts would be a superpage.
    let is_withdrawn = advice(start, end - start, libc::MADV_NOHUGEPAGE).is_ok();
    is_withdrawn
        && !IS_WATCHED.load(Relaxed)
        && can_be_rejoined(border)
        && granted::add_border(border, end)
        && advice(start, border - start, libc::MADV_HUGEPAGE).is_ok()
}

/// At the end of the process: whether what was advised last could be had.
pub fn finish() {
    if HAS_LOOKED.load(Relaxed) && !filter::may_be_in_place() {
        look();
    }
}

fn give(kind: Kind, start: usize, length: usize, used: Use) -> usize {
    let is_reserved = used == Use::Reserved;
    let mut fits = fits(kind, Piece { start, length, need: None, is_reserved });
    if fits.bytes < length {
        ledger::because(Reason::Fragmented);
        let border = start + fits.bytes;
        if fits.bytes > 0
            && !(can_be_rejoined(border) && granted::add_border(border, start + length))
        {
            fits.bytes = 0;
        }
    }
    if fits.bytes == 0 {
        return 0;
    }
    // Shared memory has sizes of its own, and old memory its page tables.
    let has_size = kind == Kind::Shared || used == Use::Old || tables::make(start, fits.bytes);
    if !has_size || advice(start, fits.bytes, libc::MADV_HUGEPAGE).is_err() {
        ledger::because(Reason::ThpOff);
        return 0;
    }
    fits.promise(start);
    if !is_reserved {
        ADVISED.fetch_add(fits.bytes, Relaxed);
    }
    fits.bytes
}

fn advice(start: usize, length: usize, advice: c_int) -> Result<(), Errno> {
    // SAFETY: advice about superpages changes no contents.
    unsafe { raw::madvise(start, length, advice) }
}

/// Memory of which is to be decided how much is advised.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    length: usize,
    /// The superpages that it may come to hold, in bytes; `None`: as many as its length.
    need: Option<usize>,
    is_reserved: bool,
}

/// How much of a piece fits.
#[derive(Clone, Copy)]
struct Fits {
    bytes: usize,
    /// Whether that is kept for it until it is touched.
    is_promised: bool,
}

impl Fits {
    const NOTHING: Self = Self { bytes: 0, is_promised: false };

    fn promise(self, start: usize) {
        if self.is_promised && self.bytes > 0 {
            granted::add(start, start + self.bytes);
        }
    }
}

fn fits(kind: Kind, piece: Piece) -> Fits {
    let all = Fits { bytes: piece.length, is_promised: false };
    if filter::may_be_in_place() {
        return if SHORT.load(Relaxed) { Fits::NOTHING } else { all };
    }
    if !machine::compacts_at_touches() {
        return all;
    }
    if !piece.is_reserved {
        let asked = piece.length;
        ASKED.fetch_add(asked, Relaxed);
        if ADVISED.load(Relaxed).saturating_add(asked) >= LOOK_AT.load(Relaxed) {
            look();
        }
    }
    if !LOSSES.is_over() {
        return Fits::NOTHING;
    }
    let whole = || piece.length.checked_next_multiple_of(machine::superpage());
    let need = piece.need.or_else(whole).unwrap_or(piece.length);
    let since = SINCE.fetch_add(need, Relaxed);
    if since.saturating_add(need) < FRESH {
        if SHORT.load(Relaxed) {
            return Fits::NOTHING;
        }
        let take = |left: usize| left.checked_sub(need);
        if LEFT.fetch_update(Relaxed, Relaxed, take).is_ok() {
            return Fits { is_promised: true, ..all };
        }
    }
    decided(kind, piece, need)
}

/// The same, from what the machine says now.
fn decided(kind: Kind, piece: Piece, need: usize) -> Fits {
    let Piece { start, length, is_reserved, .. } = piece;
    let superpage = machine::superpage();
    SINCE.store(0, Relaxed);
    let Some(free) = machine::free(superpage) else {
        let is_good = trial(0) != Some(false);
        SHORT.store(!is_good, Relaxed);
        LEFT.store(if is_good { FRESH } else { 0 }, Relaxed);
        return Fits { bytes: if is_good { length } else { 0 }, is_promised: false };
    };
    let mut facts = Facts {
        need,
        contiguous: free.contiguous,
        free: free.all,
        total: machine::total(),
        outstanding: granted::at_most(),
        was_short: SHORT.load(Relaxed),
        may_part: !is_reserved && matches!(kind, Kind::Heap | Kind::Mmap),
        is_reserved,
        ..Facts::default()
    };
    let mut decision = facts.decide();
    if decision != Decision::All {
        facts.outstanding = granted::outstanding(superpage);
        facts.reclaimable = machine::reclaimable().unwrap_or(0);
        decision = facts.decide();
    }
    if decision == Decision::Doubtful {
        facts.tried = Some(trial(facts.contiguous).unwrap_or(false));
        decision = facts.decide();
    }
    let bytes = match decision {
        Decision::All | Decision::Oversized => length,
        // The border is that of a superpage.
        Decision::Part(usable) => {
            ((start + usable.min(length)) & !(superpage - 1)).saturating_sub(start)
        }
        Decision::Nothing | Decision::Doubtful => 0,
    };
    SHORT.store(bytes < length, Relaxed);
    LEFT.store(if bytes < length { 0 } else { facts.usable().saturating_sub(need) }, Relaxed);
    Fits { bytes, is_promised: !is_reserved && decision != Decision::Oversized }
}

/// Mappings with an `anon_vma` of their own are never merged (`is_mergeable_anon_vma`, mm/vma.c).
/// So the piece gets its own before it is parted: by its first fault, of the page behind the
/// border.
fn can_be_rejoined(border: usize) -> bool {
    // SAFETY: a fault, which changes no contents.
    unsafe { raw::madvise(border, raw::base_page(), libc::MADV_POPULATE_WRITE) }.is_ok()
}

/// Whether superpages are had in good time besides the `free` ones: tried, or known from the last
/// time; `None`: not known.
///
/// More must be asked for than are free, or nothing is learned of those that are not. What is asked
/// for is zeroed for nothing, so it may be a sixteenth of what the program asked for since the last
/// trial.
fn trial(free: usize) -> Option<bool> {
    const BESIDES: usize = 4;
    let superpage = machine::superpage();
    let asked = ASKED.load(Relaxed);
    let affordable = asked.saturating_sub(TRIED_AT.load(Relaxed)) / 16 / superpage;
    let count = free / superpage + BESIDES;
    if TRIALS.is_over() && count <= affordable.max(BESIDES) {
        TRIED_AT.store(asked, Relaxed);
        if let Some(is_good) = probe::superpages(count, superpage) {
            VERDICT.store(if is_good { GOOD } else { BAD }, Relaxed);
            if is_good { TRIALS.reset() } else { TRIALS.grow() }
        }
    }
    match VERDICT.load(Relaxed) {
        GOOD => Some(true),
        BAD => Some(false),
        _ => None,
    }
}

/// Compares the machine's counters with what they were at the last look.
fn look() {
    let after = LOOK_AFTER.load(Relaxed);
    LOOK_AT.store(ADVISED.load(Relaxed).saturating_add(after), Relaxed);
    let (Some(counters), Some(faults)) = (machine::counters(), probe::process_faults()) else {
        return;
    };
    let since = |last: &AtomicUsize, now: usize| now.saturating_sub(last.swap(now, Relaxed));
    let stalls = since(&STALLS, counters.stalls);
    let fallbacks = since(&FALLBACKS, counters.fallbacks);
    let faults = since(&FAULTS, faults);
    if !HAS_LOOKED.swap(true, Relaxed) {
        return;
    }
    // They are everybody's, but a superpage of ours that fell back was as many faults of ours.
    let own = fallbacks.min(faults / (machine::superpage() / raw::base_page()).max(1));
    if stalls >= MANY_FALLBACKS && own >= MANY_FALLBACKS {
        ledger::because(Reason::Compacted);
        LOOK_AFTER.store(FIRST_LOOK, Relaxed);
        LOSSES.grow();
    } else {
        LOOK_AFTER.store(MAX_LOOK.min(after * 2), Relaxed);
        LOSSES.length.store(NEXT_TRIAL, Relaxed);
    }
}
