//! Stacks of threads, and their owners.
//!
//! Life of a stack: mapped -> given to a thread -> released, when the thread was joined or detached -> idle, when the
//! thread has ended in the kernel -> given to another thread, or unmapped if many are idle. A released stack must not
//! be reused yet: a detached thread runs on its stack to its last instruction, and reports nothing afterwards.
//!
//! If the process may have a seccomp filter, only system calls that malloc makes are used: a released stack stays as it
//! is, and new threads get libc's stacks (`threads`).
//!
//! # Safety
//! The records lie in mappings of their own that are never unmapped, so a pointer to one stays valid. They are changed
//! under the lock, except for `tid`, which the thread itself writes. A fork does not wait for the lock, so a child may
//! find a change half done. After every step, records claim only memory that is mapped; a stack that the child finds
//! taken, but without a thread, leaks.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::counters::{self, Column, Kind};
use crate::lock::{Lock, Rank};
use crate::source::{self, Backing};
use crate::table::{self, Range};
use crate::{filter, raw, settings, sizes};

/// Start routine of a thread: `void *(*start_routine)(void *)`. It may end by unwinding (`pthread_exit`, cancellation).
pub type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No memory.
    Empty,
    /// Memory, and no thread on it.
    Idle,
    /// In use by a thread that can still be joined.
    Taken,
    /// In use until its thread has ended in the kernel.
    Released,
}

/// A stack. The record lies on one page. (s): guarded by the lock `SLOTS`.
#[repr(align(128))]
pub struct Slot {
    /// (s)
    state: State,
    /// (s) Lowest address; below it lies a guard of `guard` bytes.
    pub start: usize,
    /// (s) Address after the highest.
    pub end: usize,
    /// (s)
    guard: usize,
    /// (s) The guard that the program requested.
    guard_asked: usize,
    /// (s) Whether it got the requested pages.
    is_backed: bool,
    /// (a) Id of the thread that runs on it; 0 until the thread runs.
    pub tid: AtomicI32,
    /// What the thread runs: written by its creator before it starts.
    pub work: Option<(Routine, *mut c_void)>,
    /// (s) The next record in the list of all.
    next: *mut Slot,
}

struct Slots {
    /// (s)
    first: *mut Slot,
    /// (s) Where the next search for ended threads begins.
    cursor: *mut Slot,
    /// (s) Unused records, and their number.
    fresh: *mut Slot,
    left: usize,
}
// SAFETY: the pointers are to records that belong to this list alone.
unsafe impl Send for Slots {}

static SLOTS: Lock<Slots> = Lock::new(
    Rank::Stacks,
    Slots {
        first: std::ptr::null_mut(),
        cursor: std::ptr::null_mut(),
        fresh: std::ptr::null_mut(),
        left: 0,
    },
);

/// Maximum number of idle stacks kept for new threads.
/// See docs/decisions/stacks.md#2.
const MAX_IDLE: usize = 16;

/// Takes a stack of `size` bytes above a guard, for a thread that will be joined or is `detached`. `None`: there is no
/// memory, or there are no superpages and the fallback is `error`.
pub fn take(size: usize, guard: usize, detached: bool) -> Option<*mut Slot> {
    let take = |slots: &mut Slots| {
        slots.reap();
        let fits = |slot: &Slot| {
            slot.state == State::Idle
                && slot.end - slot.start == total(size)
                && slot.guard >= guard
                && slot.is_backed
        };
        let found = slots.iter().find(|slot| fits(slot)).map(|slot| slot as *mut Slot);
        let slot = match found {
            // SAFETY: a record, under the lock.
            Some(slot) => unsafe { &mut *slot },
            None => {
                let slot = slots.empty()?;
                if !slot.map(size, guard) {
                    return None;
                }
                slot
            }
        };
        slot.state = if detached { State::Released } else { State::Taken };
        slot.tid.store(0, Ordering::Relaxed);
        slot.guard_asked = guard;
        Some(slot as *mut Slot)
    };
    SLOTS.with_or(take, || None)
}

/// The guard that the program requested for the stack at `address`; `None`: it is in none of these stacks.
pub fn guard_asked(address: usize) -> Option<usize> {
    let find = |slots: &mut Slots| {
        let is_here = |slot: &&mut Slot| (slot.start..slot.end).contains(&address);
        slots.iter().find(is_here).map(|slot| slot.guard_asked)
    };
    SLOTS.with_or(find, || None)
}

/// Marks a stack as idle after its thread could not be created.
pub fn give_back(slot: *mut Slot) {
    // SAFETY: a record, under the lock. If the lock cannot be taken, the stack stays taken and leaks.
    SLOTS.with(|_| unsafe { (*slot).state = State::Idle });
}

/// Call when the thread whose libc record lies at `address` (its pthread_t) was joined or detached.
pub fn release(address: usize) {
    SLOTS.with(|slots| {
        if slots.first.is_null() {
            return;
        }
        for slot in slots.iter() {
            if slot.state == State::Taken && (slot.start..slot.end).contains(&address) {
                slot.state = State::Released;
            }
        }
        slots.reap();
        let idle = slots.iter().filter(|slot| slot.state == State::Idle);
        // A stack that fell back is unmapped, so that the next one may get superpages.
        let surplus = idle.enumerate().filter(|(at, slot)| *at >= MAX_IDLE || !slot.is_backed);
        surplus.for_each(|(_, slot)| slot.unmap());
    });
}

/// In a forked child: marks the stacks of all other threads as idle.
pub fn after_fork() {
    SLOTS.after_fork(|slots, was_held| {
        let here = 0u8;
        let here = &raw const here as usize;
        // SAFETY: no arguments. libc's record lies on the thread's stack; a fork handler may run on another one.
        let this = unsafe { libc::pthread_self() } as usize;
        if was_held {
            // The interrupted thread may have written the next unused record without linking it.
            (slots.cursor, slots.left) = (std::ptr::null_mut(), 0);
        }
        for slot in slots.iter() {
            let range = slot.start..slot.end;
            if range.contains(&here) || range.contains(&this) {
                slot.tid.store(this_thread(), Ordering::Relaxed);
            } else if matches!(slot.state, State::Taken | State::Released) {
                slot.state = State::Idle;
            }
            // Pages of the pool were replaced by a copy.
            slot.is_backed &= !settings::get().is_hugetlb();
        }
    });
}

/// Kernel id of this thread; 0, which no thread has, if a filter may forbid the call: then the thread's stack is never
/// reused.
pub fn this_thread() -> c_int {
    if filter::may_be_in_place() {
        return 0;
    }
    // SAFETY: the call takes no arguments.
    unsafe { raw::call!(SYS_gettid) as c_int }
}

/// Bytes added at the top of a stack on pool pages (see `stack`).
const TOP: usize = 128 << 10;

/// Bytes between guard and end of a stack with `size` bytes of superpages.
fn total(size: usize) -> usize {
    if settings::get().is_hugetlb() { size + TOP } else { size }
}

impl Slots {
    fn iter(&mut self) -> impl Iterator<Item = &mut Slot> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            // SAFETY: null, or a record of this list, which is ours.
            let slot = unsafe { next.as_mut() }?;
            next = slot.next;
            Some(slot)
        })
    }

    /// Finds stacks whose threads have ended. Checks only some of thousands of threads at a time, so that creating a
    /// thread does not cost a system call for each of the others.
    fn reap(&mut self) {
        const MAX_CHECKED: usize = 64;
        if filter::may_be_in_place() {
            return;
        }
        let ours = raw::pid();
        let mut asked = 0;
        let mut slot = self.cursor;
        let mut wrapped = false;
        while asked < MAX_CHECKED {
            // SAFETY: null, or a record of this list, which is ours.
            let Some(here) = (unsafe { slot.as_mut() }) else {
                if wrapped {
                    break;
                }
                wrapped = true;
                slot = self.first;
                continue;
            };
            if here.state == State::Released {
                asked += 1;
                if here.has_ended(ours) {
                    here.state = State::Idle;
                }
            }
            slot = here.next;
        }
        self.cursor = slot;
    }

    /// A record without memory.
    fn empty(&mut self) -> Option<&mut Slot> {
        let used = self.iter().find(|slot| slot.state == State::Empty).map(|it| it as *mut Slot);
        if let Some(slot) = used {
            // SAFETY: a record of this list, which is ours.
            return unsafe { slot.as_mut() };
        }
        if self.left == 0 {
            let bytes = raw::base_page();
            self.fresh = raw::map(bytes, 0).ok()? as *mut Slot;
            self.left = bytes / size_of::<Slot>();
        }
        // SAFETY: one of the `left` unused records.
        unsafe {
            let slot = self.fresh;
            slot.write(Slot {
                state: State::Empty,
                start: 0,
                end: 0,
                guard: 0,
                guard_asked: 0,
                is_backed: false,
                tid: AtomicI32::new(0),
                work: None,
                next: self.first,
            });
            self.fresh = slot.add(1);
            self.left -= 1;
            self.first = slot;
            slot.as_mut()
        }
    }
}

impl Slot {
    /// Whether its thread has ended in the kernel.
    fn has_ended(&self, ours: c_int) -> bool {
        let tid = self.tid.load(Ordering::Acquire);
        // SAFETY: signal 0 only tests whether the thread exists.
        let asked = || unsafe { raw::call!(SYS_tgkill, ours, tid, 0) == -1 };
        tid != 0 && raw::keeping_errno(|| asked() && raw::errno() == libc::ESRCH)
    }

    fn map(&mut self, size: usize, guard: usize) -> bool {
        let page = sizes::superpage();
        let guard = guard.max(1).next_multiple_of(page);
        let total = total(size);
        let Ok(low) = source::reserve(guard + total, page) else { return false };
        let start = low + guard;
        // SAFETY: address space of our own.
        let mapped = unsafe {
            match source::place(Kind::Stack, start, size, raw::READ_WRITE) {
                Err(_) => false,
                Ok(backing) => {
                    let wanted = settings::get().is_hugetlb();
                    self.is_backed = !wanted || backing == Backing::Hugetlb;
                    let range = Range { start, end: start + size, page, shared: false };
                    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_FIXED;
                    let (top, rest) = (start + size, total - size);
                    (backing != Backing::Hugetlb || table::add(range))
                        && (rest == 0
                            || raw::mmap(top, rest, raw::READ_WRITE, flags, -1, 0).is_ok())
                }
            }
        };
        (self.start, self.end, self.guard) = (start, start + total, guard);
        if !mapped {
            self.unmap();
        }
        mapped
    }

    fn unmap(&mut self) {
        // Set this first: a child forked meanwhile must not take the range for a stack.
        self.state = State::Empty;
        // SAFETY: no thread is on it.
        let _ = unsafe { raw::munmap(self.start - self.guard, self.guard + self.end - self.start) };
        table::remove(self.start, self.end);
        counters::count(Kind::Stack, Column::Returned, self.end - self.start);
    }
}
