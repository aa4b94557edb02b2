//! The main thread's stack.
//!
//! The kernel places the stack at any address, and lets it grow down by faults. On THP the stack is grown to its fixed
//! size at once and advised. On hugetlb it is grown to the next superpage boundary. Reserved pages of the pool are
//! mapped below, where the stack would have grown to, and frames continue there. Below them lies reserved address space
//! as a guard, so an overflow ends as usual.
//!
//! # Safety
//! Only memory below the stack pointer is touched, by system calls, which fail where a fault would
//! be fatal.
//! See docs/decisions/stacks.md#3.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::counters::{self, Column, Kind, Reason};
use crate::settings::{self, Fallback, Pages};
use crate::table::{self, Range};
use crate::{executor, maps, raw, sizes, source};

/// Lowest address of the main stack, if libc would report another one; else 0.
static LOWEST: AtomicUsize = AtomicUsize::new(0);
/// The main thread's pthread_t.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Whether code may run on stacks; `true` if unknown.
static IS_EXECUTABLE: AtomicBool = AtomicBool::new(false);

/// Whether stacks are left alone. If the program or a library is linked for executable stacks (`PT_GNU_STACK`, for
/// nested functions in C), libc makes thread stacks executable, too; those of this library are not.
pub fn is_executable() -> bool {
    IS_EXECUTABLE.load(Ordering::Relaxed)
}

/// Gives the stack `size` bytes, on superpages as far as they fit.
pub fn provide(size: usize) {
    let settings = settings::get();
    let page = sizes::superpage();
    let size = size.next_multiple_of(page);
    let found = Stack::find();
    let Some(stack) = found.filter(|stack| !stack.is_executable) else {
        IS_EXECUTABLE.store(true, Ordering::Relaxed);
        if settings.is_hugetlb() && executor::fall_back(settings.fallback, size) == Fallback::Error
        {
            source::refuse(Kind::Stack);
        }
        counters::count_reason(Reason::ExecutableStack);
        counters::count(Kind::Stack, Column::FellBack, size);
        return;
    };
    let result = match settings.pages {
        Pages::Hugetlb(_) => match stack.put_pool_below(size, page) {
            Ok(()) => Ok(()),
            Err(why) => match executor::fall_back(settings.fallback, size) {
                Fallback::Thp => {
                    counters::count_reason(why);
                    stack.advise(size, Column::FellBack)
                }
                Fallback::Error => source::refuse(Kind::Stack),
                Fallback::Base => Err(why),
            },
        },
        _ => stack.advise(size, Column::Advised),
    };
    if let Err(why) = result {
        counters::count_reason(why);
        counters::count(Kind::Stack, Column::FellBack, size);
    }
}

/// The kernel's mapping of the main stack.
struct Stack {
    start: usize,
    end: usize,
    is_executable: bool,
}

impl Stack {
    fn find() -> Option<Self> {
        let here = 0u8;
        let here = &raw const here as usize;
        maps::at(here).map(|vma| {
            let is_executable = vma.protection() & libc::PROT_EXEC != 0;
            Self { start: vma.start, end: vma.end, is_executable }
        })
    }

    /// Makes the kernel grow the stack down to `low`.
    fn grow(&self, low: usize) -> Result<(), Reason> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes the structure, and then eight bytes below the stack pointer.
        unsafe {
            libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit);
            if (self.end - low) as u64 > limit.rlim_cur {
                return Err(Reason::Place);
            }
            let nothing = std::ptr::null::<u64>();
            let into = low as *mut u64;
            let grown = raw::keeping_errno(|| {
                raw::call!(SYS_rt_sigprocmask, libc::SIG_BLOCK, nothing, into, 8)
            });
            if grown == 0 { Ok(()) } else { Err(Reason::Place) }
        }
    }

    fn advise(&self, size: usize, column: Column) -> Result<(), Reason> {
        let page = sizes::superpage();
        let low = (self.end - size) / page * page;
        let high = self.end - self.end % page;
        // Growing touches a base page, which must not lie in the lowest superpage.
        let start = low - raw::base_page();
        if start < self.start {
            self.grow(start)?;
        }
        let fallback = settings::get().fallback;
        if !executor::advise(advisor::Kind::Stack, fallback, start, self.end - start) {
            return Err(Reason::ThpOff);
        }
        counters::count(Kind::Stack, column, high - low);
        counters::count(Kind::Stack, Column::Small, self.end - high);
        Ok(())
    }

    fn put_pool_below(&self, size: usize, page: usize) -> Result<(), Reason> {
        // The gap that the kernel leaves between a growing stack and its neighbour (stack_guard_gap).
        const GUARD: usize = 1 << 20;
        let high = self.start - self.start % page;
        let ordinary = self.end - high;
        let length = size.saturating_sub(ordinary).next_multiple_of(page).max(page);
        let low = high - length;
        if high < self.start {
            self.grow(high)?;
        }
        let total = length + GUARD;
        raw::map_at(low - GUARD, total, libc::PROT_NONE, libc::MAP_NORESERVE)
            .ok_or(Reason::Place)?;
        // SAFETY: the range is ours.
        unsafe {
            let range = Range { start: low, end: high, page, shared: false };
            let entered = source::place_hugetlb(low, length, raw::READ_WRITE, libc::MAP_PRIVATE)
                .and_then(|()| table::add(range).then_some(()).ok_or(Reason::Kernel));
            if entered.is_err() {
                // The stack must be able to grow there.
                let _ = raw::munmap(low - GUARD, total);
            }
            entered?;
        }
        counters::count(Kind::Stack, Column::Hugetlb, length);
        counters::count(Kind::Stack, Column::Small, ordinary);
        LOWEST.store(low, Ordering::Relaxed);
        // SAFETY: the call takes no arguments.
        OWNER.store(unsafe { libc::pthread_self() } as usize, Ordering::Relaxed);
        Ok(())
    }
}

/// Lowest address of the main thread's stack, if `thread` is the main thread and libc would report another.
pub fn lowest(thread: usize) -> Option<usize> {
    let lowest = LOWEST.load(Ordering::Relaxed);
    (lowest != 0 && thread == OWNER.load(Ordering::Relaxed)).then_some(lowest)
}
