//! Locks that may be taken anywhere: in a signal handler, in malloc, and while another thread forks.
//!
//! A lock is held for a few system calls. Whoever finds it held spins for less than a microsecond and
//! then sleeps in `futex(2)`, with the operations that glibc's own locks use: a thread of a higher
//! priority sleeps until the holder is done, and a filter that lets malloc live lets this live.
//! No signal is blocked meanwhile. A handler that comes here while its thread holds this lock, or one
//! that is taken after it, would wait for itself or close a circle; it is told so ([`Lock::with`]
//! gives `None`) and its caller does without.
//!
//! No lock is held across a fork. A child is born with locks whose holders do not exist in it and
//! with values that they had not finished; each part calls [`Lock::after_fork`] there (`order`).
//!
//! # Order
//! [`Rank`] is the order, and `order` has the parts in it. A thread that holds a lock takes only those
//! that come later. What it holds is seen in the locks' words, so nothing is kept for that: a handler
//! is told, and a debug build ends a process that does not keep to the order.
//!
//! # Legend
//! Fields and statics that threads share carry a letter that says what guards them.
//!
//! | letter | guarded by | waited for |
//! |---|---|---|
//! | (s) | `stack::slots::SLOTS`, [`Rank::Stacks`] | yes |
//! | (d) | `mapping::exclusive::WORKERS`, [`Rank::Demotion`] | yes |
//! | (m) | `mapping::small::EXTENT`, [`Rank::Small`] | no: [`Lock::try_with`], its callers may hold an allocator's lock |
//! | (t) | `table::TABLE`, [`Rank::Table`] | yes |
//! | (p) | `heap::packed::REGION`, [`Rank::Packed`] | yes |
//! | (c) | whoever has claimed the entry by compare-and-swap | no: another entry is taken, or none |
//! | (a) | nothing: one atomic word, or a hint of several | no |
//!
//! A range that a thread has entered in `WORKERS` is waited for as well, with no lock held
//! (`mapping::exclusive`). The stock (`prepare`) moves mappings without entering them there: on the pool
//! that could take a range from under a thread that is making it ordinary, so there is no stock on the
//! pool ([`crate::prepare::is_on`]).
//!
//! # Safety
//! `word` is the address of the holder's errno, which no two threads share, and so says in one step
//! that the lock is held and by whom. It lies on one page with the beginning of the value: in a
//! forked child both are of one moment.
//! See docs/decisions/fork.md#4.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::{message, raw};

/// Every lock there is, in the order in which one thread may take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Rank {
    /// `stack::slots`: the stacks of threads. Maps memory.
    Stacks,
    /// `mapping::exclusive`: which superpages are being made ordinary. Not held meanwhile.
    Demotion,
    /// `mapping::small`: the extent that small mappings are cut from.
    Small,
    /// `table`: which ranges lie on the pool. Taken under those before.
    Table,
    /// `heap::packed`: the region of packed objects. Maps memory.
    Packed,
}

/// How many there are.
pub const RANKS: usize = Rank::Packed as usize + 1;

/// Somebody sleeps until the lock is free. Errno is aligned to its size, so the bit is free.
const AWAITED: usize = 1;
/// What a holder needs for a look-up takes less.
const SPINS: usize = 200;

/// A value behind a lock.
#[repr(C, align(64))]
pub struct Lock<T> {
    /// 0: free; else the holder, and whether it is awaited.
    word: AtomicUsize,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by whoever put itself into `word`.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The word of each rank's lock, once it was taken: to see what this thread holds.
static WORDS: [AtomicPtr<AtomicUsize>; RANKS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; RANKS];

impl<T> Lock<T> {
    /// A free lock; the only one of its rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { word: AtomicUsize::new(0), rank, value: UnsafeCell::new(value) }
    }

    /// Runs `work` with the value. `None`: this is a signal handler, and what it interrupted holds
    /// this lock or one of a later rank.
    pub fn with<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = raw::errno_address();
        if self.is_out_of_order(me) {
            return None;
        }
        // A thread that is cancelled where it stands would never release it.
        raw::not_cancelled(|| {
            self.take(me).then(|| {
                // SAFETY: taken, until `release`.
                let result = work(unsafe { &mut *self.value.get() });
                self.release();
                result
            })
        })
    }

    /// The same; `reentered` says what is done instead.
    pub fn with_or<R>(
        &'static self,
        work: impl FnOnce(&mut T) -> R,
        reentered: impl FnOnce() -> R,
    ) -> R {
        self.with(work).unwrap_or_else(reentered)
    }

    /// Whether this is a handler that interrupted the holder.
    pub fn is_held_here(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !AWAITED == raw::errno_address()
    }

    /// Runs `work` with the value unless anybody holds the lock. It never waits, so it may be used
    /// where this thread may hold anything: libc's locks, or the program's.
    pub fn try_with<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = raw::errno_address();
        raw::not_cancelled(|| {
            self.word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
            self.enter();
            // SAFETY: taken, until `release`.
            let result = work(unsafe { &mut *self.value.get() });
            self.release();
            Some(result)
        })
    }

    /// In a forked child: nobody else holds it any more. `renew` gets the value and whether its
    /// holder was in the midst of something. Left alone where this thread is: a handler that
    /// interrupted it has forked, and what was interrupted goes on in both processes.
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

    /// Takes the lock; `false`: this thread has it.
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
                    // Others may sleep as well: whoever was woken wakes the next.
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

    /// The half of the word that has the bit.
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
            // SAFETY: null, or the word of a lock that is static.
            let word = unsafe { word.load(Ordering::Acquire).as_ref() };
            word.is_some_and(|word| word.load(Ordering::Relaxed) & !AWAITED == me)
        });
        if cfg!(debug_assertions) && is_held && !raw::blocks_signals() {
            // Not a handler, whose own signal is blocked, but a mistake of ours.
            message::line(&[b"locks were taken out of order"]);
            // SAFETY: ends this process.
            unsafe { libc::abort() };
        }
        is_held
    }
}
