//! Locks that may be taken in a signal handler, in malloc, and while another thread forks.
//!
//! A lock is held for a few system calls. A waiter spins for less than a microsecond and then sleeps in `futex(2)`,
//! with the operations that glibc's own locks use. A waiter of higher priority therefore does not starve the holder,
//! and a seccomp filter that permits malloc permits these calls. Signals are not blocked. A signal handler that asks
//! for a lock while its thread holds that lock, or one of a later rank, would deadlock: [`Lock::with`] returns `None`,
//! and the caller falls back.
//!
//! No lock is held across a fork. A child inherits half-written values, and locks whose holders do not exist in the
//! child. Each part calls [`Lock::after_fork`] in the child (`order`).
//!
//! # Order [`Rank`] is the order, and `order` lists the parts by rank. A thread that holds a lock takes only locks of
//! later ranks. The lock words show which locks a thread holds. From them [`Lock::with`] knows when to refuse a
//! handler, and a debug build when to abort a process that violates the order.
//!
//! # Legend
//! Fields and statics that threads share carry a letter for what guards them.
//!
//! | letter | guarded by | waited for |
//! |---|---|---|
//! | (s) | `stack::slots::SLOTS`, [`Rank::Stacks`] | yes |
//! | (d) | `mapping::exclusive::WORKERS`, [`Rank::Demotion`] | yes |
//! | (m) | `mapping::small::EXTENT`, [`Rank::Small`] | no: [`Lock::try_with`], callers may hold an allocator's lock |
//! | (t) | `table::TABLE`, [`Rank::Table`] | yes |
//! | (p) | `heap::packed::REGION`, [`Rank::Packed`] | yes |
//! | (c) | the thread that claimed the entry by compare-and-swap | no: the caller takes another entry, or none |
//! | (a) | nothing: one atomic word, or several that are only hints | no |
//!
//! A thread that holds no lock may also wait for a range that another thread entered in `WORKERS`
//! (`mapping::exclusive`). The stock (`prepare`) enters none of the mappings it moves, so there is no stock on the pool
//! ([`crate::prepare::is_on`]).
//!
//! # Safety `word` is the address of the holder's errno, which is unique to a thread: one atomic store says that the
//! lock is held and by whom. The word and the beginning of the value lie on one page, so a forked child sees a
//! consistent snapshot of both.
//! See docs/decisions/fork.md#4.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::{message, raw};

/// All locks, in the order in which a thread may take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Rank {
    /// `stack::slots`: thread stacks. The holder maps memory.
    Stacks,
    /// `mapping::exclusive`: superpages that are being demoted. Not held during a demotion.
    Demotion,
    /// `mapping::small`: the extent that small mappings are cut from.
    Small,
    /// `table`: ranges that lie on the pool. Taken while holding locks of earlier ranks.
    Table,
    /// `heap::packed`: the region of packed objects. The holder maps memory.
    Packed,
}

/// Number of ranks.
pub const RANKS: usize = Rank::Packed as usize + 1;

/// Set in the word while a thread sleeps on the lock. Errno is aligned to its size, so its address leaves this bit
/// free.
const AWAITED: usize = 1;
/// Spins before sleeping. A table look-up by the holder takes less time.
const SPINS: usize = 200;

/// A value behind a lock.
#[repr(C, align(64))]
pub struct Lock<T> {
    /// 0: free; else the holder's errno address, and [`AWAITED`].
    word: AtomicUsize,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that stored itself in `word` accesses the value.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Pointers to the lock words by rank, null until the lock is first taken. They show which locks a thread holds.
static WORDS: [AtomicPtr<AtomicUsize>; RANKS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; RANKS];

impl<T> Lock<T> {
    /// Makes a free lock. Each rank has one lock.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { word: AtomicUsize::new(0), rank, value: UnsafeCell::new(value) }
    }

    /// Runs `work` with the value. `None`: this is a signal handler, and the code it interrupted holds this lock or one
    /// of a later rank.
    pub fn with<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = raw::errno_address();
        if self.is_out_of_order(me) {
            return None;
        }
        // A thread cancelled here would never release the lock.
        raw::not_cancelled(|| {
            self.take(me).then(|| {
                // SAFETY: this thread holds the lock until `release`.
                let result = work(unsafe { &mut *self.value.get() });
                self.release();
                result
            })
        })
    }

    /// As [`Lock::with`], but calls `reentered` where [`Lock::with`] returns `None`.
    pub fn with_or<R>(
        &'static self,
        work: impl FnOnce(&mut T) -> R,
        reentered: impl FnOnce() -> R,
    ) -> R {
        self.with(work).unwrap_or_else(reentered)
    }

    /// Whether this thread holds the lock: it is in a handler that interrupted the holder.
    pub fn is_held_here(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !AWAITED == raw::errno_address()
    }

    /// Runs `work` with the value if the lock is free. Never waits, so the caller may hold any lock: libc's, or the
    /// program's.
    pub fn try_with<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = raw::errno_address();
        raw::not_cancelled(|| {
            self.word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
            self.enter();
            // SAFETY: this thread holds the lock until `release`.
            let result = work(unsafe { &mut *self.value.get() });
            self.release();
            Some(result)
        })
    }

    /// In a forked child: frees the lock, which no other thread holds any more. `renew` gets the value and whether the
    /// lock was held. If this thread holds the lock, it stays held: a handler that interrupted the holder has forked,
    /// and the holder continues in both processes.
    pub fn after_fork(&'static self, renew: impl FnOnce(&mut T, bool)) {
        let me = raw::errno_address();
        let holder = self.word.load(Ordering::Relaxed) & !AWAITED;
        if holder == me {
            self.word.store(me, Ordering::Relaxed);
            return;
        }
        self.word.store(0, Ordering::Relaxed);
        // SAFETY: this is the process's only thread, and it does not hold the lock.
        renew(unsafe { &mut *self.value.get() }, holder != 0);
    }

    /// Takes the lock; `false`: this thread holds it already.
    fn take(&self, me: usize) -> bool {
        let mut mine = me;
        let mut spins = 0;
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            if seen == 0 {
                let taken =
                    self.word.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    self.enter();
                    return true;
                }
            } else if seen & !AWAITED == me {
                return false;
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                let awaited = seen | AWAITED;
                let marked = seen == awaited
                    || self
                        .word
                        .compare_exchange(seen, awaited, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok();
                if marked {
                    raw::futex_wait(self.futex(), awaited as u32);
                    // Other threads may also sleep: a woken thread wakes the next one.
                    mine = me | AWAITED;
                }
            }
        }
    }

    fn release(&self) {
        if self.word.swap(0, Ordering::Release) & AWAITED != 0 {
            raw::futex_wake(self.futex(), 1);
        }
    }

    /// The half of the word that contains the [`AWAITED`] bit.
    fn futex(&self) -> *const u32 {
        let low = if cfg!(target_endian = "little") { 0 } else { size_of::<usize>() / 4 - 1 };
        (&raw const self.word).cast::<u32>().wrapping_add(low)
    }

    fn enter(&self) {
        let word = &WORDS[self.rank as usize];
        if word.load(Ordering::Relaxed).is_null() {
            word.store((&raw const self.word).cast_mut(), Ordering::Release);
        }
    }

    /// Whether this thread holds a lock of a later rank.
    fn is_out_of_order(&self, me: usize) -> bool {
        let later = &WORDS[self.rank as usize + 1..];
        let is_held = later.iter().any(|word| {
            // SAFETY: null, or the word of a static lock.
            let word = unsafe { word.load(Ordering::Acquire).as_ref() };
            word.is_some_and(|word| word.load(Ordering::Relaxed) & !AWAITED == me)
        });
        if cfg!(debug_assertions) && is_held && !raw::blocks_signals() {
            // The thread blocks no signal, so it runs no handler, and the violation is a bug of this library.
            message::line(&[b"locks were taken out of order"]);
            // SAFETY: ends this process.
            unsafe { libc::abort() };
        }
        is_held
    }
}
