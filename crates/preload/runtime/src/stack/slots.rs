//! The stacks of threads, and whose they are.
//!
//! Life of a stack: mapped -> given to a thread -> released, when the thread has been joined or is
//! detached -> idle, when the kernel knows the thread no more -> given to another thread, or
//! unmapped if many are idle. "Released" is not enough: a detached thread runs on its stack to
//! its last instruction, and says nothing afterwards. Joining is, for libc, whose record of the
//! thread lies on the stack and is needed until then.
//!
//! Where a seccomp filter may be in place nothing is asked of the kernel that malloc does not ask: a stack that was released
//! stays as it is, and new threads have libc's own (`threads`).
//!
//! # Safety
//! The records lie in mappings of their own that are never unmapped, so a pointer to one stays good.
//! They are changed under the lock, but for `tid`, which the thread itself writes. A fork does not
//! wait for the lock: whatever step a child finds undone, a record never claims memory that is not
//! there. What it finds taken by nobody is lost to it, and mapped.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::counters::{self, Column, Kind};
use crate::lock::{Lock, Rank};
use crate::source::{self, Backing};
use crate::table::{self, Range};
use crate::{filter, raw, settings, sizes};

/// What a thread is to run: `void *(*start_routine)(void *)`. It may end by unwinding
/// (`pthread_exit`, cancellation).
pub type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No memory.
    Empty,
    /// Memory, and nobody on it.
    Idle,
    /// Somebody's, who can still be joined.
    Taken,
    /// Somebody's, who is done with it as soon as the kernel knows the thread no more.
    Released,
}

/// A stack. Its record lies on one page.
#[repr(align(128))]
pub struct Slot {
    /// (s)
    state: State,
    /// (s) Its lowest address; below it lies a guard of `guard` bytes.
    pub start: usize,
    /// (s) The address after its highest.
    pub end: usize,
    /// (s)
    guard: usize,
    /// (s) The guard that was asked for.
    guard_asked: usize,
    /// (s) Whether it got what was asked for.
    is_backed: bool,
    /// (a) Of the thread that runs on it; 0 until it does.
    pub tid: AtomicI32,
    /// What it runs: written by its maker before it begins.
    pub work: Option<(Routine, *mut c_void)>,
    /// (s) All of them.
    next: *mut Slot,
}

struct Slots {
    /// (s)
    first: *mut Slot,
    /// (s) Where to look next for threads that have ended.
    cursor: *mut Slot,
    /// (s) Records not used yet, and how many.
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

/// So many stacks with nobody on them are kept for the next threads.
/// See docs/decisions/stacks.md#2.
const MAX_IDLE: usize = 16;

/// A stack of `size` bytes above a guard, whose thread will be joined or is `detached`. `None`: there
/// is no memory, or it is not to be had on superpages and the caller wants an error then.
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

/// The guard asked for below the stack at `address`, if it is one of these.
pub fn guard_asked(address: usize) -> Option<usize> {
    let find = |slots: &mut Slots| {
        let is_here = |slot: &&mut Slot| (slot.start..slot.end).contains(&address);
        slots.iter().find(is_here).map(|slot| slot.guard_asked)
    };
    SLOTS.with_or(find, || None)
}

/// The thread was not made after all.
pub fn give_back(slot: *mut Slot) {
    // SAFETY: a record, under the lock. Without it the stack stays taken: it is lost.
    SLOTS.with(|_| unsafe { (*slot).state = State::Idle });
}

/// The thread whose record lies at `address`, which libc's name for it is, was joined or detached.
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
        // What had to fall back gets another chance of superpages when it is mapped anew.
        let surplus = idle.enumerate().filter(|(at, slot)| *at >= MAX_IDLE || !slot.is_backed);
        surplus.for_each(|(_, slot)| slot.unmap());
    });
}

/// In a forked child: of all threads only this one is left.
pub fn after_fork() {
    SLOTS.after_fork(|slots, was_held| {
        let here = 0u8;
        let here = &raw const here as usize;
        // SAFETY: takes nothing. Its record is libc's, on the stack: the handler of a fork may run
        // on another.
        let this = unsafe { libc::pthread_self() } as usize;
        if was_held {
            // The next record may be written already, and not be entered.
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

/// The kernel's number of this thread; 0, which no thread has, where a filter may forbid the question: then its stack stays.
pub fn this_thread() -> c_int {
    if filter::may_be_in_place() {
        return 0;
    }
    // SAFETY: takes nothing.
    unsafe { raw::call!(SYS_gettid) as c_int }
}

/// What is added at the top of a stack on pool pages (see the module above).
const TOP: usize = 128 << 10;

/// The bytes between guard and end of a stack of which `size` are superpages.
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

    /// Finds stacks whose threads have ended. Of thousands that live only some are asked about at a
    /// time, so that making a thread does not cost a system call for each of the others.
    fn reap(&mut self) {
        const ASKED: usize = 64;
        if filter::may_be_in_place() {
            return;
        }
        let ours = raw::pid();
        let mut asked = 0;
        let mut slot = self.cursor;
        let mut wrapped = false;
        while asked < ASKED {
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
                if here.is_over(ours) {
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
        // SAFETY: one of `left` records that nobody uses.
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
    /// Whether the kernel knows its thread no more.
    fn is_over(&self, ours: c_int) -> bool {
        let tid = self.tid.load(Ordering::Acquire);
        // SAFETY: asks whether there is such a thread.
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
        // First: a child that is forked meanwhile must not take it for a stack.
        self.state = State::Empty;
        // SAFETY: nobody is on it.
        let _ = unsafe { raw::munmap(self.start - self.guard, self.guard + self.end - self.start) };
        table::remove(self.start, self.end);
        counters::count(Kind::Stack, Column::Returned, self.end - self.start);
    }
}
