//! The heap's address space, and which superpages of it are in use.
//!
//! mimalloc hands out slices of 64 KiB and says of each when it is needed and when not. Here that
//! becomes superpages: a *granule* is one superpage (or several, where they are smaller than 2 MiB).
//! It comes into being with the first of its slices that is needed, and goes back to the kernel, or
//! to the pool, with the last. A superpage is never split to give back a part.
//!
//!     absent --needed--> live --no slice needed--> idle (THP: still mapped, empty) or absent (hugetlb)
//!
//! The first granules of a process stay on base pages, the *nursery*: a small program would pay for
//! clearing superpages it hardly touches. When the heap outgrows it, the nursery follows.
//!
//! # Safety
//! Everything in an `Arena` is reached under `LOCK`. Its address space is reserved once and never
//! given back; mimalloc is the only other user, and uses a slice only between its commit and its
//! decommit.

use std::ffi::{c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libmimalloc_sys as mi;

use crate::ledger::{self, Column, Kind, Reason};
use crate::lock::Lock;
use crate::mapping::demote;
use crate::source::{self, Backing};
use crate::{message, prepare, raw, settings};

/// What mimalloc hands out (`MI_ARENA_SLICE_SIZE`).
const SLICE: usize = 64 << 10;
/// Address space per arena. mimalloc's tables about it lie at its beginning and must fit into
/// 32 MiB: those for 16 GiB do not.
const LARGEST: usize = 8 << 30;
/// The least it takes (`MI_ARENA_MIN_SIZE`).
const SMALLEST: usize = 32 << 20;
const SLICES: usize = LARGEST / SLICE;
const GRANULES: usize = LARGEST / SMALLEST_GRANULE;
const SMALLEST_GRANULE: usize = 2 << 20;

/// How much must be needed before new granules are superpages.
const NURSERY: usize = 4 << 20;
/// The size of the heap at which the nursery follows it onto superpages.
const GROWN_UP: usize = 32 << 20;
/// Objects of this size and more get mappings of their own, which go back when they are freed.
const LARGE_OBJECT: usize = 64 << 20;

/// One arena: in a mapping of its own, all zero at first.
struct Arena {
    start: usize,
    end: usize,
    /// Bytes of slices that are needed.
    needed: usize,
    /// The one before it.
    next: *mut Arena,
    states: [State; GRANULES],
    /// One bit a slice: needed.
    live: [u32; SLICES / 32],
    /// One bit a slice: may hold something else than zeroes.
    dirty: [u32; SLICES / 32],
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// Address space only.
    Absent = 0,
    /// Ordinary memory that was emptied: readable, writable, zero.
    Idle,
    /// On base pages, as part of the nursery.
    Nursery,
    /// On ordinary memory.
    Ordinary,
    /// On pages of the pool.
    Hugetlb,
}

struct Arenas {
    newest: *mut Arena,
    /// Bytes of slices that are needed, in all arenas.
    needed: usize,
    grown_up: bool,
    /// Whether an arena is being added.
    growing: bool,
}
// SAFETY: the pointers are to mappings that belong to this module.
unsafe impl Send for Arenas {}

static LOCK: Lock<Arenas> =
    Lock::new(Arenas { newest: ptr::null_mut(), needed: 0, grown_up: false, growing: false });

/// The span of all arenas, for questions that need no lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether an address may be the heap's.
pub fn may_hold(address: usize) -> bool {
    (LOWEST.load(Ordering::Relaxed)..HIGHEST.load(Ordering::Relaxed)).contains(&address)
}

/// Turns the superpage of the pool that holds `address`, if there is one, into ordinary memory; for
/// memory that libc itself writes in the midst of a fork. `false` if that failed.
pub fn leave_the_pool(address: usize) -> bool {
    if !may_hold(address) {
        return true;
    }
    LOCK.with(|arenas| {
        let mut next = arenas.newest;
        // SAFETY: arenas are never unmapped, and this is under the lock.
        while let Some(arena) = unsafe { next.as_mut() } {
            if (arena.start..arena.end).contains(&address) {
                let at = (address - arena.start) / granule();
                if arena.states[at] != State::Hugetlb {
                    return true;
                }
                let moved = demote::to_ordinary(arena.start + at * granule(), granule());
                if moved {
                    arena.states[at] = State::Ordinary;
                    ledger::because(Reason::Forked);
                    ledger::count(Kind::Heap, Column::FellBack, granule());
                }
                return moved;
            }
            next = arena.next;
        }
        true
    })
}

/// For `gate`.
pub fn lock() {
    LOCK.take();
}

/// For `gate`.
pub fn unlock() {
    LOCK.release();
}

type CommitFunction =
    unsafe extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool;

unsafe extern "C" {
    /// mimalloc 3: takes a range as an arena whose slices `commit` makes usable and unusable.
    fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: i32,
        exclusive: bool,
        commit: CommitFunction,
        argument: *mut c_void,
        id: *mut *mut c_void,
    ) -> bool;
}

// mi_option_t of mimalloc 3.3.2; the crate's own constants are those of version 2.
const PURGE_DELAY: i32 = 15;
const PAGE_COMMIT_ON_DEMAND: i32 = 40;
const ALLOW_THP: i32 = 43;
const ARENA_RESERVE: i32 = 23;
const MINIMAL_PURGE_SIZE: i32 = 44;
const ARENA_MAX_OBJECT_SIZE: i32 = 45;

/// Before the first allocation.
pub fn set_up() {
    // SAFETY: options are set before anything reads them. Sizes are in KiB.
    unsafe {
        let set = |option, value: usize| mi::mi_option_set(option, value as c_long);
        // All arenas are ours.
        set(ARENA_RESERVE, 0);
        // It would go past `commit`, and memory in use could be taken for unused.
        set(PAGE_COMMIT_ON_DEMAND, 0);
        if settings::get().shrinks_at_once {
            set(PURGE_DELAY, 0);
        }
        // 0 would turn THP off for the whole process.
        set(ALLOW_THP, 1);
        set(MINIMAL_PURGE_SIZE, granule() / 1024);
        set(ARENA_MAX_OBJECT_SIZE, LARGE_OBJECT / 1024);
    }
    if !add() {
        message::line(&[
            b"no address space for a heap on superpages (ulimit -v?): it is on base pages",
        ]);
    }
}

/// The unit in which the heap takes memory.
fn granule() -> usize {
    source::superpage().max(SMALLEST_GRANULE)
}

/// Adds an arena: as large as there is address space for.
fn add() -> bool {
    let size_of_table = size_of::<Arena>().next_multiple_of(raw::base_page());
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh memory, all zero, which is an empty arena.
    let Ok(table) = (unsafe { raw::mmap(0, size_of_table, raw::READ_WRITE, flags, -1, 0) }) else {
        return false;
    };
    let arena = table as *mut Arena;
    let mut size = LARGEST;
    let range = loop {
        if let Some(start) = prepare::reserve_for_heap(size) {
            break Some((start, size));
        }
        match source::reserve(size, granule()) {
            Ok(start) => break Some((start, size)),
            Err(_) if size / 8 >= SMALLEST.max(granule()) => size /= 8,
            Err(_) => break None,
        }
    };
    let Some((start, size)) = range else {
        // SAFETY: ours, and nobody has seen it.
        let _ = unsafe { raw::munmap(table, size_of_table) };
        return false;
    };
    // SAFETY: the table is ours until it is entered under the lock; the range is fresh.
    unsafe {
        (*arena).start = start;
        (*arena).end = start + size;
        LOCK.with(|arenas| {
            (*arena).next = arenas.newest;
            arenas.newest = arena;
            LOWEST.fetch_min(start, Ordering::Relaxed);
            HIGHEST.fetch_max(start + size, Ordering::Relaxed);
        });
        let argument = arena.cast();
        let mut id = ptr::null_mut();
        let start = start as *mut c_void;
        mi_manage_memory(start, size, false, false, true, -1, false, commit, argument, &raw mut id)
    }
}

/// What mimalloc calls: slices become needed (`commit`) or unneeded. Returns whether that worked.
unsafe extern "C" fn commit(
    needed: bool,
    start: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    argument: *mut c_void,
) -> bool {
    let (arena, start) = (argument.cast::<Arena>(), start as usize);
    if !needed {
        // SAFETY: the argument is the arena it was registered with; it is used under the lock.
        LOCK.with(|arenas| unsafe { (*arena).give_back(start, start + size, arenas) });
        return true;
    }
    let mut is_running_out = false;
    // SAFETY: as above.
    let zero = LOCK.with(|arenas| unsafe {
        let zero = (*arena).take(start, start + size, arenas);
        let is_last = ptr::eq(arena, arenas.newest);
        is_running_out = is_last && !arenas.growing && (*arena).is_nearly_full();
        arenas.growing |= is_running_out;
        zero
    });
    if is_running_out {
        add();
        LOCK.with(|arenas| arenas.growing = false);
    }
    if !is_zero.is_null() {
        // SAFETY: mimalloc's own variable.
        unsafe { *is_zero = zero == Some(true) };
    }
    zero.is_some()
}

impl Arena {
    fn is_nearly_full(&self) -> bool {
        self.needed > (self.end - self.start) / 8 * 7
    }

    /// Makes `[from, to)` usable; whether it is all zero, or `None` if there is no memory.
    fn take(&mut self, from: usize, to: usize, arenas: &mut Arenas) -> Option<bool> {
        let granule = granule();
        let first = (from - self.start) / granule;
        let end = (to - self.start).div_ceil(granule);
        let mut at = first;
        while at < end {
            if self.states[at] != State::Absent {
                if self.states[at] == State::Idle {
                    self.states[at] = State::Ordinary;
                    ledger::count(Kind::Heap, Column::Advised, granule);
                }
                at += 1;
                continue;
            }
            let absent = self.states[at..end].iter().take_while(|state| **state == State::Absent);
            let count = absent.count();
            self.make(at, count, arenas)?;
            at += count;
        }
        if from == self.start {
            // The tables: never given back, and no part of the program's heap.
            return Some(true);
        }
        let slices = (from - self.start) / SLICE..(to - self.start).div_ceil(SLICE);
        let mut zero = true;
        for slice in slices {
            let (word, bit) = (slice / 32, 1 << (slice % 32));
            zero &= self.dirty[word] & bit == 0;
            self.dirty[word] |= bit;
            if self.live[word] & bit == 0 {
                self.live[word] |= bit;
                self.needed += SLICE;
                arenas.needed += SLICE;
            }
        }
        if !arenas.grown_up && arenas.needed >= GROWN_UP {
            arenas.grow_up();
        }
        Some(zero)
    }

    /// Brings `count` absent granules into being.
    fn make(&mut self, first: usize, count: usize, arenas: &mut Arenas) -> Option<()> {
        let granule = granule();
        let (start, length) = (self.start + first * granule, count * granule);
        let whole_heap = settings::get().whole_heap;
        // mimalloc's own tables come first, and are sparse; the program's memory begins in the last
        // of their granules.
        let is_tables = first == 0 && count > 1;
        if is_tables && whole_heap {
            self.make_nursery(0, count - 1)?;
            return self.make(count - 1, 1, arenas);
        }
        let is_small = count == 1 && arenas.needed < NURSERY && !arenas.grown_up && !whole_heap;
        let is_prepared = prepare::may_hold(start, start + length);
        // Where the stock has been at work there is a superpage already, and no need to be small.
        if (is_tables || is_small) && (!is_prepared || prepare::occupy(start, length)) {
            return self.make_nursery(first, count);
        }
        if is_prepared {
            let (arena, words) = (self.start, granule / SLICE / 32);
            prepare::take_at(start, length, |address, taken| {
                let at = (address - arena) / granule;
                if taken == prepare::Taken::Dirty {
                    self.dirty[at * words..(at + 1) * words].fill(u32::MAX);
                }
            })?;
            self.states[first..first + count].fill(State::Ordinary);
            return Some(());
        }
        // SAFETY: address space of ours; it holds nothing.
        let placed = unsafe { source::place(Kind::Heap, start, length, raw::READ_WRITE) };
        let state = match placed.ok()? {
            Backing::Hugetlb => State::Hugetlb,
            Backing::Advised | Backing::Base => State::Ordinary,
        };
        self.states[first..first + count].fill(state);
        Some(())
    }

    fn make_nursery(&mut self, first: usize, count: usize) -> Option<()> {
        let (start, length) = (self.start + first * granule(), count * granule());
        // SAFETY: address space of ours; it holds nothing.
        unsafe { raw::mprotect(start, length, raw::READ_WRITE) }.ok()?;
        // SAFETY: as above. Where THP are always on, this keeps them out of the nursery.
        let _ = unsafe { raw::madvise(start, length, libc::MADV_NOHUGEPAGE) };
        self.states[first..first + count].fill(State::Nursery);
        ledger::count(Kind::Heap, Column::Small, length);
        Some(())
    }

    /// `[from, to)` is not needed any more; granules of which nothing is needed go back.
    fn give_back(&mut self, from: usize, to: usize, arenas: &mut Arenas) {
        for slice in (from - self.start) / SLICE..(to - self.start).div_ceil(SLICE) {
            let (word, bit) = (slice / 32, 1 << (slice % 32));
            if self.live[word] & bit != 0 {
                self.live[word] &= !bit;
                self.needed -= SLICE;
                arenas.needed -= SLICE;
            }
        }
        let granule = granule();
        let words = granule / SLICE / 32;
        for at in (from - self.start) / granule..(to - self.start).div_ceil(granule) {
            let slices = at * words..(at + 1) * words;
            if self.live[slices.clone()].iter().any(|word| *word != 0) {
                continue;
            }
            if self.release(at) {
                self.dirty[slices].fill(0);
            }
        }
    }

    fn release(&mut self, at: usize) -> bool {
        let granule = granule();
        let start = self.start + at * granule;
        let released = match self.states[at] {
            State::Absent | State::Idle => return false,
            State::Hugetlb => {
                let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
                // SAFETY: nothing in it is needed; its page and its reservation go back.
                unsafe { raw::mmap(start, granule, libc::PROT_NONE, flags, -1, 0) }.is_ok()
            }
            State::Nursery | State::Ordinary if prepare::may_hold(start, start + granule) => {
                // SAFETY: nothing in it is needed.
                unsafe { prepare::give_back(start, start + granule) }.is_ok()
            }
            State::Nursery | State::Ordinary => {
                // SAFETY: nothing in it is needed.
                unsafe { raw::madvise(start, granule, libc::MADV_DONTNEED) }.is_ok()
            }
        };
        if !released {
            return false;
        }
        ledger::count(Kind::Heap, Column::Returned, granule);
        self.states[at] = match self.states[at] {
            State::Hugetlb => State::Absent,
            // What it falls back to is asked anew, once the pool may have pages again.
            State::Ordinary if settings::get().is_hugetlb() => State::Absent,
            State::Nursery => State::Absent,
            State::Ordinary if prepare::may_hold(start, start + granule) => State::Absent,
            _ => State::Idle,
        };
        true
    }
}

impl Arenas {
    /// The heap is large: what is left of the nursery moves to superpages where the kernel can do
    /// that in place, and new granules no longer go to it.
    fn grow_up(&mut self) {
        self.grown_up = true;
        if settings::get().is_hugetlb() {
            return;
        }
        let granule = granule();
        let mut arena = self.newest;
        while !arena.is_null() {
            // SAFETY: arenas are never unmapped, and this is under the lock.
            let arena_ref = unsafe { &mut *arena };
            for at in 0..(arena_ref.end - arena_ref.start) / granule {
                if arena_ref.states[at] == State::Nursery {
                    let start = arena_ref.start + at * granule;
                    // SAFETY: contents stay. Where the kernel does not collapse at once, its daemon
                    // may later, now that it is advised.
                    unsafe {
                        let _ = raw::madvise(start, granule, libc::MADV_HUGEPAGE);
                        let _ = raw::madvise(start, granule, libc::MADV_COLLAPSE);
                    }
                    arena_ref.states[at] = State::Ordinary;
                }
            }
            arena = arena_ref.next;
        }
    }
}
