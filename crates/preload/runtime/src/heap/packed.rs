//! Packed objects: objects whose own mapping is too small, or badly placed, for superpages.
//!
//! glibc maps each object of 128 KiB or more separately, where the kernel puts it; a mapping of 1 MiB holds no
//! superpage. A new object therefore moves to a slot of the library's region before malloc returns. Only its header was
//! written. glibc keeps no list of mappings, and later reads only that header: `free` unmaps exactly the slot,
//! `realloc` moves it by mremap, `mallinfo2` is unchanged. Objects in the region are adjacent, so the first touch of
//! each superpage allocates it in one page fault, and nothing is copied.
//!
//! Life of an object: mapped by glibc -> moved to a slot, or left in place and recorded as a sample -> unmapped by
//! glibc's free -> its pages released. For the life cycle of a superpage see `slots`.
//!
//! # When
//! A program that touches little of its objects would pay for whole superpages. So the first 3 MiB of objects, and a
//! few later ones, are left where glibc put them. These samples show how much of such objects is touched (`mincore`).
//! Objects are packed while nine tenths of the samples are touched. Short ends of packed objects are on base pages,
//! too; if they stay untouched, the next objects become samples. The unused end of the last superpage is limited while
//! the heap is small.
//!
//! # Memory that is freed
//! A superpage in which one object lives and another was freed is charged whole: the freed pages are dead. Once dead
//! pages are more than a fiftieth of the memory in use, the superpages with most dead pages are split. `MADV_COLD` on
//! one base page splits its superpage, and keeps the contents.
//!
//! # Safety
//! Objects belong to this thread: malloc has just returned them. The region is mapped only where nothing is mapped, and
//! a slot is handed out once, under the lock. See docs/decisions/heap.md#9.

use std::ffi::c_void;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use super::arenas;
use super::chunk::{Chunk, HEADER};
use super::large::BACKED_FROM;
use super::slots::{self, Slots, Table, Totals};
use crate::contiguity;
use crate::counters::{self, Column, Kind};
use crate::lock::{Lock, Rank};
use crate::settings;
use crate::{executor, filter, in_place, limits, pagemap, raw, sizes};

/// Minimum length of packed objects, with the header; a program may have set malloc's threshold lower.
const MIN_LENGTH: usize = 64 << 10;
/// Maximum length. The unaligned ends of larger objects are a small part of them.
const MAX_LENGTH: usize = 64 << 20;
/// Objects that grow to less than this are copied to a slot. `mremap` moves larger ones (`large`).
const MAX_GROWN: usize = 16 << 20;
/// The first objects, up to this many bytes in all, stay where glibc put them. Later ones may be
/// packed.
const LEFT_FIRST: usize = 3 << 20;
/// Heap size from which a whole superpage may be mapped ahead of requests.
const LARGE_HEAP: usize = 40 << 20;
/// The region grows by 1/PIECE_SHARE of its size, but by at least a superpage.
const PIECE_SHARE: usize = 32;
/// Maximum number of bytes by which the region grows at a time.
const MAX_PIECE: usize = 64 << 20;
/// Maximum superpage size; with larger ones nothing is packed.
const MAX_SUPERPAGE: usize = 4 << 20;
/// After superpages were not available, the region does not grow for this many bytes of objects;
/// doubled each time.
const MIN_PAUSE: usize = 4 << 20;
const MAX_PAUSE: usize = 16 << 20;
const MAX_SUPERPAGES: usize = 32 << 10;
/// Distance of the region's end below glibc's first mapping; the kernel's later mappings fit in between.
const SPACE_ABOVE: usize = 64 << 30;
/// At most 1/SAMPLE_SHARE of the packed bytes are left as samples.
const SAMPLE_SHARE: usize = 40;
/// Interval between checks of samples, in bytes of objects.
const LOOK_EVERY: usize = 1 << 20;
/// The newest samples, up to this many bytes, decide. With fewer sampled bytes there is no
/// decision.
const SAMPLED: usize = 2 << 20;
const MIN_SAMPLED: usize = 1 << 20;
/// Maximum superpages split in one call.
const MAX_SPLITS: usize = 8;
/// Initial credit, in bytes. Packing adds to the credit, and splitting a superpage subtracts its size: a
/// split costs what packing a whole superpage gained.
const FIRST_CREDIT: isize = 256 << 20;
/// Maximum credit, in bytes.
const MAX_CREDIT: isize = 1 << 30;
/// Without credit, an object that is not packed adds 1/CREDIT_OF_LEFT of its size.
const CREDIT_OF_LEFT: usize = 32;

/// How much of the objects is touched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Density {
    Unknown,
    /// Nine tenths or more.
    Dense,
    Sparse,
}

/// Mapped memory of the region that is not handed out. (p): guarded by the lock `REGION`.
struct Region {
    /// At the region's end: `next..end`.
    frontier: Extent,
    /// Free superpages that were mapped again.
    reused: Extent,
    /// Bytes of objects for which a slot was looked for.
    sought: usize,
    /// No growth until `sought` reaches this value: superpages were not available.
    until: usize,
    /// Length of the last such pause; 0 after growth.
    pause: usize,
}

/// Mapped, advised and untouched memory that is handed out from its start.
#[derive(Clone, Copy)]
struct Extent {
    next: usize,
    end: usize,
}

impl Extent {
    const EMPTY: Self = Self { next: 0, end: 0 };
}

static REGION: Lock<Region> = Lock::new(
    Rank::Packed,
    Region { frontier: Extent::EMPTY, reused: Extent::EMPTY, sought: 0, until: 0, pause: 0 },
);
/// Start of the region; 0: none yet.
static START: AtomicUsize = AtomicUsize::new(0);
/// The region's table, with [`MAX_SUPERPAGES`] entries.
static TABLE: AtomicPtr<Slots> = AtomicPtr::new(std::ptr::null_mut());
static TOTALS: Totals = Totals::new();
/// (a) End of the last slot cut from the frontier.
static END: AtomicUsize = AtomicUsize::new(0);
/// (a) Bytes of all objects packed so far, freed ones included.
static PACKED: AtomicUsize = AtomicUsize::new(0);
/// (a) See [`FIRST_CREDIT`].
static CREDIT: AtomicIsize = AtomicIsize::new(FIRST_CREDIT);

fn table() -> Option<Table<'static>> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    // SAFETY: an array of that length that is never unmapped, all zero at first.
    let superpages = unsafe { std::slice::from_raw_parts(table, MAX_SUPERPAGES) };
    Some(Table::new(superpages, &TOTALS, sizes::superpage() / raw::base_page()))
}

/// Whether an address is in the region.
#[inline]
pub fn contains(address: usize) -> bool {
    let start = START.load(Relaxed);
    start != 0 && address.wrapping_sub(start) < MAX_SUPERPAGES * sizes::superpage()
}

/// Whether objects may be packed at all.
fn is_on() -> bool {
    let (superpage, base) = (sizes::superpage(), raw::base_page());
    settings::get().is_thp()
        && (1 << 20..=MAX_SUPERPAGE).contains(&superpage)
        && superpage / base <= slots::MAX_PAGES
        && executor::advises()
        && !in_place::is_asked()
        // A filter may forbid the calls.
        && !filter::may_be_in_place()
        && !limits::is_future_locked()
}

/// Moves a new object to a slot; `None`: it stays where it is.
///
/// # Safety
/// glibc has just returned the object, aligned to `alignment`, with its own mapping.
pub unsafe fn place(chunk: Chunk, alignment: usize) -> Option<*mut c_void> {
    // SAFETY: the caller keeps this function's contract.
    let (start, length) = unsafe { chunk.mapping() }?;
    let may_move = alignment <= raw::base_page() && is_on();
    let moved = if may_move && (MIN_LENGTH..=MAX_LENGTH).contains(&length) {
        // SAFETY: the caller keeps this function's contract. malloc may fill objects (M_PERTURB), but at least one page
        // is readable.
        raw::keeping_errno(|| unsafe {
            let is_empty = (chunk.memory as *const usize).read() == 0;
            let may_move = is_empty
                && has_credit(length)
                && samples::density(length) == Density::Dense
                && !samples::choose(length);
            if may_move { move_to_slot(chunk, start, length, 0) } else { None }
        })
    } else {
        None
    };
    if moved.is_none() {
        samples::add(start, length);
        if length < BACKED_FROM.load(Relaxed) {
            counters::count(Kind::Heap, Column::Small, length);
        }
    }
    moved
}

/// As [`place`], for an object that `realloc` enlarged by a factor of 1.4 or more, with `kept` bytes of contents.
/// Copying these costs less than the superpages gain. The object's touched pages show whether it is dense; if it
/// `was_packed`, samples show that. The caller has called [`resized`] or [`record_unpacked`].
///
/// # Safety
/// As [`place`].
pub unsafe fn place_grown(chunk: Chunk, kept: usize, was_packed: bool) -> Option<*mut c_void> {
    // SAFETY: the caller keeps this function's contract.
    let (start, length) = unsafe { chunk.mapping() }?;
    // An aligned object would waste the space before it, and an object that shrank holds fewer than `kept` bytes.
    let is_fit = (sizes::superpage() / 2..MAX_GROWN).contains(&length)
        && chunk.memory == start + HEADER
        && kept <= chunk.usable();
    if !is_fit || contains(start) || kept > length / 10 * 7 || !is_on() {
        return None;
    }
    let pages = kept / raw::base_page();
    let is_dense = match was_packed {
        // On superpages, touched base pages cannot be told from others.
        true => samples::density(length) != Density::Sparse,
        false => pagemap::resident(start, pages).is_some_and(|there| there * 10 >= pages * 9),
    };
    if !is_dense || !has_credit(length) {
        return None;
    }
    // SAFETY: the caller keeps this function's contract.
    let moved = raw::keeping_errno(|| unsafe { move_to_slot(chunk, start, length, kept) });
    if moved.is_some() {
        samples::remove(start, length);
        if length >= BACKED_FROM.load(Relaxed) {
            // `large` has advised the object at its old address.
            counters::count(Kind::Heap, Column::Returned, length);
            contiguity::forget(start, start + length);
        }
    }
    moved
}

/// Whether packing has gained more than splitting cost. If not, counts an object of `length` bytes as left in place.
fn has_credit(length: usize) -> bool {
    let is_any = CREDIT.load(Relaxed) > 0;
    if !is_any {
        CREDIT.fetch_add((length / CREDIT_OF_LEFT).cast_signed(), Relaxed);
    }
    is_any
}

/// # Safety
/// As [`place`] and [`place_grown`].
unsafe fn move_to_slot(
    chunk: Chunk,
    start: usize,
    length: usize,
    kept: usize,
) -> Option<*mut c_void> {
    // Other threads wait while the region grows, as long as they would have waited for glibc's own mmap.
    let slot = REGION.with(|region| region.cut(start, length)).flatten()?;
    let at = slot + (chunk.memory - start);
    // SAFETY: only the header and `kept` bytes were written. No other object has the slot.
    unsafe {
        let header = (chunk.memory - HEADER) as *const u8;
        std::ptr::copy_nonoverlapping(header, (at - HEADER) as *mut u8, HEADER + kept);
        if raw::munmap(start, length).is_err() {
            // The process has its maximum number of VMAs. Unmapping the slot needs none.
            let _ = raw::munmap(slot, length);
            released(slot, length);
            return None;
        }
    }
    PACKED.fetch_add(length, Relaxed);
    if CREDIT.load(Relaxed) < MAX_CREDIT {
        CREDIT.fetch_add(length.cast_signed(), Relaxed);
    }
    counters::count(Kind::Heap, Column::Advised, length);
    Some(at as *mut c_void)
}

impl Region {
    /// Returns a slot; `None`: none is available.
    fn cut(&mut self, near: usize, length: usize) -> Option<usize> {
        self.sought += length;
        if START.load(Relaxed) == 0 {
            begin(near)?;
            let start = START.load(Relaxed);
            self.frontier = Extent { next: start, end: start };
        }
        let table = table()?;
        let most = most_ahead();
        if !self.reused.has(length) {
            self.reuse(table, length);
        }
        let slot = match self.reused.cut(length, most) {
            Some(slot) => slot,
            None => {
                if !self.frontier.has(length) {
                    self.grow(table, length)?;
                }
                let slot = self.frontier.cut(length, most);
                END.store(self.frontier.next, Relaxed);
                slot?
            }
        };
        table.claim((slot - START.load(Relaxed)) / raw::base_page(), length / raw::base_page());
        Some(slot)
    }

    /// Maps free superpages again.
    fn reuse(&mut self, table: Table, length: usize) {
        let (start, superpage) = (START.load(Relaxed), sizes::superpage());
        let number = |address: usize| address.saturating_sub(start) / superpage;
        let least = length.div_ceil(superpage);
        let most = least.max(self.piece() / superpage);
        let mapped = number(self.reused.next)..number(self.reused.end);
        let among = 0..number(self.frontier.next);
        let Some(run) = table.free_run(least, most, among, &mapped) else { return };
        let (at, size) = (start + run.start * superpage, run.len() * superpage);
        if raw::map_at(at, size, raw::READ_WRITE, 0).is_none() {
            table.abandon(run.start, run.len());
            return;
        }
        if contiguity::advise(Kind::Heap, at, size) < size {
            contiguity::forget(at, at + size);
            unmap(at, at + size);
            return;
        }
        self.reused.end_early(table);
        table.renew(run.start, run.len());
        self.reused = Extent { next: at, end: at + size };
    }

    /// Bytes mapped at once.
    fn piece(&self) -> usize {
        let held = TOTALS.live.load(Relaxed) * raw::base_page();
        (held / PIECE_SHARE).clamp(sizes::superpage(), MAX_PIECE)
    }

    /// Maps and advises at least `length` more bytes behind the frontier; after a pause, as many as the objects of that
    /// pause: the advisor has superpages made free only for a program that requests much.
    fn grow(&mut self, table: Table, length: usize) -> Option<()> {
        let superpage = sizes::superpage();
        if self.sought < self.until || !limits::has_no_memory_rlimits() {
            return None;
        }
        let piece = self.piece().max(length).max(self.pause).next_multiple_of(superpage);
        let start = START.load(Relaxed);
        let last = start + MAX_SUPERPAGES * superpage;
        let Extent { end, .. } = self.frontier;
        // Another mapping may lie there: try a few addresses further up.
        let places = (0..8).map(|skipped| end + skipped * MAX_PIECE);
        let mut places = places.filter(|at| at + piece <= last);
        let mapped = places.find(|at| raw::map_at(*at, piece, raw::READ_WRITE, 0).is_some());
        let Some(at) = mapped.filter(|at| !is_locked(*at, piece)) else {
            if let Some(at) = mapped {
                unmap(at, at + piece);
            }
            return self.pause();
        };
        let advised = contiguity::advise(Kind::Heap, at, piece) / superpage * superpage;
        if advised < piece {
            contiguity::forget(at, at + piece);
            unmap(at + advised, at + piece);
        }
        if advised < length {
            unmap(at, at + advised);
            return self.pause();
        }
        if at != end {
            self.frontier.end_early(table);
            table.abandon((end - start) / superpage, (at - end) / superpage);
            self.frontier.next = at;
        }
        table.renew((at - start) / superpage, advised / superpage);
        self.frontier.end = at + advised;
        self.pause = 0;
        Some(())
    }

    fn pause(&mut self) -> Option<()> {
        self.pause = (self.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        self.until = self.sought + self.pause;
        None
    }
}

impl Extent {
    /// Ends the extent: nothing more is cut from it.
    fn end_early(&mut self, table: Table) {
        let Self { next, end } = *self;
        unmap(next, end);
        let boundary = next.next_multiple_of(sizes::superpage());
        if boundary > next {
            // A touch of an earlier slot may have faulted in the whole superpage.
            let base = raw::base_page();
            let first = (next - START.load(Relaxed)) / base;
            table.claim(first, (boundary - next) / base);
            table.release(first, (boundary - next) / base);
        }
        *self = Self { next: end, end };
    }

    fn has(self, length: usize) -> bool {
        self.end - self.next >= length
    }

    /// Cuts off a slot. If the slot reaches only a little into its last superpage, that end goes on base pages and
    /// becomes a sample. If the slot begins a superpage and more than `most` bytes of that superpage would stay ahead
    /// of requests, these bytes are unmapped. The slot's part then goes on base pages, and the next slot begins another
    /// superpage.
    fn cut(&mut self, length: usize, most: usize) -> Option<usize> {
        if !self.has(length) {
            return None;
        }
        let superpage = sizes::superpage();
        let (slot, end) = (self.next, self.next + length);
        let last = end / superpage * superpage;
        let begins_last = slot <= last && end != last;
        let is_short = slot < last && samples::has_short_end(last, end);
        if begins_last && (is_short || last + superpage - end > most) {
            if slot == last {
                return None;
            }
            let next = last + superpage;
            unmap(end, next);
            self.next = next;
        } else {
            self.next = end;
        }
        Some(slot)
    }
}

/// Finds addresses for the region and maps its table.
fn begin(near: usize) -> Option<()> {
    let superpage = sizes::superpage();
    let below = SPACE_ABOVE + MAX_SUPERPAGES * superpage;
    let start = near.checked_sub(below)? / superpage * superpage;
    if start < below {
        return None;
    }
    let bytes = MAX_SUPERPAGES * size_of::<Slots>();
    let table = raw::map(bytes, libc::MAP_NORESERVE).ok()?;
    TABLE.store(table as *mut Slots, Release);
    limits::before_locking(|| _ = give_back_ahead());
    START.store(start, Release);
    Some(())
}

/// Maximum bytes of a superpage that may stay unused: a small program must not use much more memory than it needs.
fn most_ahead() -> usize {
    let superpage = sizes::superpage();
    let holds = total_bytes() + arenas::total_bytes();
    match arenas::are_large() {
        // The last superpage of an arena is also half used on average.
        true if holds < 2 * LARGE_HEAP => superpage / 4,
        false if holds < LARGE_HEAP => superpage / 8 * 7,
        _ => superpage,
    }
}

/// Whether newly mapped memory is locked: the kernel then refuses `MADV_DONTNEED`.
fn is_locked(start: usize, length: usize) -> bool {
    // SAFETY: the memory is untouched.
    unsafe { raw::madvise(start, length, libc::MADV_DONTNEED) }.is_err()
}

/// Unmaps memory of the region that is in no slot.
fn unmap(start: usize, end: usize) {
    if start < end {
        // SAFETY: as the callers say.
        let _ = unsafe { raw::munmap(start, end - start) };
    }
}

/// Unmaps memory that is not handed out, before it would be locked or when memory ran out. `false`: the frontier had
/// none.
pub fn give_back_ahead() -> bool {
    let Some(table) = table() else { return false };
    let work = |region: &mut Region| {
        let is_any = region.frontier.next < region.frontier.end;
        region.reused.end_early(table);
        region.reused = Extent::EMPTY;
        let next = region.frontier.next.next_multiple_of(sizes::superpage());
        region.frontier.end_early(table);
        region.frontier = Extent { next, end: next };
        is_any
    };
    raw::keeping_errno(|| REGION.try_with(work)) == Some(true)
}

/// Bytes of live objects, packed or left in place.
pub fn total_bytes() -> usize {
    TOTALS.live.load(Relaxed) * raw::base_page() + samples::live()
}

/// Call after an object was freed or moved away; glibc has unmapped its memory.
pub fn released(start: usize, length: usize) {
    let Some(table) = table().filter(|_| contains(start)) else { return };
    let base = raw::base_page();
    table.release((start - START.load(Relaxed)) / base, length / base);
    let most = (TOTALS.live.load(Relaxed) / 50).max((1 << 20) / base);
    if TOTALS.dead.load(Relaxed) > most {
        raw::keeping_errno(|| split(table, most));
    }
}

/// Splits superpages until half of the allowed dead pages remain.
#[cold]
fn split(table: Table, most: usize) {
    static IS_BUSY: AtomicBool = AtomicBool::new(false);
    if filter::may_be_in_place() || IS_BUSY.swap(true, Acquire) {
        return;
    }
    let (start, superpage) = (START.load(Relaxed), sizes::superpage());
    let end = (END.load(Relaxed) - start).div_ceil(superpage);
    for _ in 0..MAX_SPLITS {
        if TOTALS.dead.load(Relaxed) <= most / 2 {
            break;
        }
        let Some((number, page)) = table.split_worst(end) else { break };
        CREDIT.fetch_sub(superpage.cast_signed(), Relaxed);
        let base = raw::base_page();
        // SAFETY: changes no contents, even if the object was freed meanwhile.
        let _ = unsafe {
            raw::madvise(start + number * superpage + page * base, base, libc::MADV_COLD)
        };
    }
    IS_BUSY.store(false, Release);
}

/// Call after `realloc` turned the mapping `[start, start + length)` into `new`.
///
/// # Safety
/// glibc's realloc has just returned the object.
pub unsafe fn resized(start: usize, length: usize, new: Chunk) {
    // SAFETY: the caller keeps this function's contract.
    let mapping = if new.is_mapped() { unsafe { new.mapping() } } else { None };
    let (was_packed, base) = (contains(start), raw::base_page());
    match mapping {
        Some((at, now)) if at == start && was_packed => {
            if let Some(table) = table()
                && now > length
            {
                table.claim((start + length - START.load(Relaxed)) / base, (now - length) / base);
            }
            if now < length {
                counters::count(Kind::Heap, Column::Returned, length - now);
                released(start + now, length - now);
            }
        }
        _ => {
            if was_packed {
                if mapping.is_none_or(|(_, now)| now < sizes::superpage()) {
                    counters::count(Kind::Heap, Column::Returned, length);
                }
                released(start, length);
            } else {
                samples::remove(start, length);
            }
            if let Some((at, now)) = mapping {
                samples::add(at, now);
            }
        }
    }
}

/// Records an object with a separate mapping that realloc returned with contents.
///
/// # Safety
/// glibc has just returned the object.
pub unsafe fn record_unpacked(chunk: Chunk) {
    // SAFETY: the caller keeps this function's contract.
    if let Some((start, length)) = unsafe { chunk.mapping() } {
        samples::add(start, length);
    }
}

/// Call after `realloc` moved an object from `[start, start + length)` to `new`. Splits its first and last superpage,
/// which it shares with other objects. Otherwise pages that other objects free would stay charged as long as the object
/// lives.
///
/// # Safety
/// glibc's realloc has just returned the object.
pub unsafe fn split_moved(start: usize, length: usize, new: Chunk) {
    // SAFETY: the caller keeps this function's contract.
    let Some((at, now)) = (unsafe { new.mapping() }).filter(|_| new.is_mapped()) else { return };
    if at == start || now < length || filter::may_be_in_place() {
        return;
    }
    let (superpage, base) = (sizes::superpage(), raw::base_page());
    let last = start + length - base;
    let is_one = start / superpage == last / superpage;
    for page in [at, at + length - base].into_iter().take(if is_one { 1 } else { 2 }) {
        CREDIT.fetch_sub(superpage.cast_signed(), Relaxed);
        // SAFETY: it changes no contents.
        let _ = raw::keeping_errno(|| unsafe { raw::madvise(page, base, libc::MADV_COLD) });
    }
}

/// Call before freeing an object that was left where glibc put it.
pub fn forget_unpacked(start: usize, length: usize) {
    samples::remove(start, length);
}

/// In a forked child: drops extents that another thread was cutting.
pub fn after_fork() {
    REGION.after_fork(|region, was_held| {
        if was_held {
            region.reused = Extent::EMPTY;
            let end = region.frontier.end;
            region.frontier = Extent { next: end, end };
        }
    });
}

/// Samples: objects left where glibc put them, which show how much of such objects is touched.
///
/// The entries are hints in plain atomics. If the object of an entry was freed, `mincore` reports that its memory is
/// unmapped.
mod samples {
    use super::*;

    struct Sample {
        start: AtomicUsize,
        length: AtomicUsize,
        /// Pages resident at the last check.
        touched: AtomicUsize,
    }

    const COUNT: usize = 16;
    static SAMPLES: [Sample; COUNT] = [const {
        Sample {
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            touched: AtomicUsize::new(0),
        }
    }; COUNT];
    /// Index of the next entry.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    /// Bytes of live objects left in place.
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    /// Bytes of objects left in place as samples, freed ones included.
    static CHOSEN: AtomicUsize = AtomicUsize::new(0);
    static DENSITY: AtomicU8 = AtomicU8::new(Density::Unknown as u8);
    /// Bytes of objects since the last look.
    static SINCE_LOOK: AtomicUsize = AtomicUsize::new(LOOK_EVERY);

    pub fn live() -> usize {
        LIVE.load(Relaxed)
    }

    /// Records an object that is left in place.
    pub fn add(start: usize, length: usize) {
        LIVE.fetch_add(length, Relaxed);
        for (start, length) in parts(start, length) {
            if length >= MIN_LENGTH {
                let sample = &SAMPLES[NEXT.fetch_add(1, Relaxed) % COUNT];
                sample.start.store(0, Relaxed);
                sample.length.store(length, Relaxed);
                sample.touched.store(usize::MAX, Relaxed);
                sample.start.store(start, Relaxed);
            }
        }
    }

    /// The parts of an object that show how much of it is touched: if it is advised, only the parts before its first
    /// superpage and after its last.
    fn parts(start: usize, length: usize) -> [(usize, usize); 2] {
        if length < BACKED_FROM.load(Relaxed) {
            return [(start, length), (0, 0)];
        }
        let superpage = sizes::superpage();
        let (first, end) = (start.next_multiple_of(superpage), start + length);
        let last = end / superpage * superpage;
        [(start, first - start), (last, end - last)]
    }

    /// Removes an object that is about to be freed, or was moved.
    pub fn remove(start: usize, length: usize) {
        let subtract = |live: usize| Some(live.saturating_sub(length));
        let _ = LIVE.fetch_update(Relaxed, Relaxed, subtract);
        for (start, _) in parts(start, length) {
            for sample in &SAMPLES {
                let _ = sample.start.compare_exchange(start, 0, Relaxed, Relaxed);
            }
        }
    }

    /// (a) Short ends of packed objects: address, and length in bytes.
    static ENDS: [[AtomicUsize; 2]; 4] = [const { [const { AtomicUsize::new(0) }; 2] }; 4];
    /// Number of ends so far. Each adds a VMA, and a process may have 65,530 VMAs.
    static NEXT_END: AtomicUsize = AtomicUsize::new(0);
    const MAX_ENDS: usize = 8 << 10;
    /// Value of [`PACKED`] from which untouched ends raise an alarm again. The distance doubles after each alarm.
    static ALARM_AFTER: AtomicUsize = AtomicUsize::new(0);
    static ALARM_BACKOFF: AtomicUsize = AtomicUsize::new(4 << 20);

    /// Whether `[from, to)`, the end of an object, is short enough to stay on base pages as a sample; if so it
    /// is recorded.
    pub fn has_short_end(from: usize, to: usize) -> bool {
        let (pages, most) = ((to - from) / raw::base_page(), sizes::superpage() / 16);
        let number = NEXT_END.load(Relaxed);
        if pages < 2 || to - from > most || number >= MAX_ENDS {
            return false;
        }
        NEXT_END.store(number + 1, Relaxed);
        let [start, length] = &ENDS[number % ENDS.len()];
        start.store(0, Relaxed);
        length.store(to - from, Relaxed);
        start.store(from, Relaxed);
        true
    }

    /// Whether most pages of the two newest ends are untouched.
    fn are_ends_empty() -> bool {
        let number = NEXT_END.load(Relaxed);
        let (mut pages, mut touched) = (0, 0);
        for age in 0..2.min(number) {
            let [start, length] = &ENDS[(number - 1 - age) % ENDS.len()];
            // The last page may be malloc's rounding.
            let count = length.load(Relaxed) / raw::base_page() - 1;
            if let Some(there) = pagemap::resident(start.load(Relaxed), count) {
                pages += count;
                touched += there;
            }
        }
        touched * 2 < pages
    }

    /// Density of earlier objects, at the request of a new one of `length` bytes.
    pub fn density(length: usize) -> Density {
        if live() < LEFT_FIRST && PACKED.load(Relaxed) == 0 {
            return Density::Unknown;
        }
        let since = SINCE_LOOK.fetch_add(length, Relaxed) + length;
        if since >= LOOK_EVERY {
            SINCE_LOOK.store(0, Relaxed);
            let packed = PACKED.load(Relaxed);
            let was_dense = DENSITY.load(Relaxed) == Density::Dense as u8;
            let is_alarm = was_dense && packed >= ALARM_AFTER.load(Relaxed) && are_ends_empty();
            if is_alarm {
                // The next objects are left in place, and show whether the alarm was right.
                forget();
                ALARM_AFTER.store(
                    packed + ALARM_BACKOFF.fetch_add(ALARM_BACKOFF.load(Relaxed), Relaxed),
                    Relaxed,
                );
            }
            let found = if is_alarm { Density::Sparse } else { measure_density() };
            DENSITY.store(found as u8, Relaxed);
        }
        match DENSITY.load(Relaxed) {
            it if it == Density::Dense as u8 => Density::Dense,
            it if it == Density::Sparse as u8 => Density::Sparse,
            _ => Density::Unknown,
        }
    }

    /// Whether an object of `length` bytes is the next sample.
    pub fn choose(length: usize) -> bool {
        let chosen = CHOSEN.load(Relaxed) + length;
        let is_chosen = chosen <= PACKED.load(Relaxed) / SAMPLE_SHARE;
        if is_chosen {
            CHOSEN.store(chosen, Relaxed);
        }
        is_chosen
    }

    /// Drops all samples.
    fn forget() {
        SAMPLES.iter().for_each(|sample| sample.start.store(0, Relaxed));
    }

    /// Density of the newest samples.
    fn measure_density() -> Density {
        let base = raw::base_page();
        let newest = NEXT.load(Relaxed).wrapping_sub(1);
        let (mut pages, mut touched) = (0, 0);
        for age in 0..COUNT {
            let sample = &SAMPLES[newest.wrapping_sub(age) % COUNT];
            let (start, length) = (sample.start.load(Relaxed), sample.length.load(Relaxed));
            if start == 0 {
                continue;
            }
            let Some(there) = pagemap::resident(start, length / base) else { continue };
            let is_filled = there * 10 >= length / base * 9;
            if sample.touched.swap(there, Relaxed) != there && !is_filled {
                continue; // perhaps still being filled
            }
            pages += length / base;
            touched += there;
            if pages * base >= SAMPLED {
                break;
            }
        }
        match pages * base {
            ..MIN_SAMPLED => Density::Unknown,
            _ if touched * 10 >= pages * 9 => Density::Dense,
            _ => Density::Sparse,
        }
    }
}
