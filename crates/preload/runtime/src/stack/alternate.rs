//! Switches to another stack while the pages of the current one are replaced.
//!
//! Pages of a stack in use are replaced in a forked child, which copies private pool pages; in its parent, if the pool
//! is short; and before a call on part of a superpage (a JVM's guard zones).
//!
//! # Safety
//! `work` runs on a stack mapped for it, which only this thread uses, by `makecontext(3)` as documented. In a forked
//! child that stack is a copy, at the same address.
//! See docs/decisions/fork.md#5.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use libc::ucontext_t;

use crate::raw;
use crate::table::{self, Range};

/// Runs `work` on an alternate stack if the current one is on private pool pages of `[from, to)`, else on the current
/// one.
pub fn on_alternate_if_within<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> R {
    let here = 0u8;
    let here = &raw const here as usize;
    let is_on_pool = |range: Range| !range.shared && range.start <= here && here < range.end;
    if (from..to).contains(&here) && table::first(here, here + 1).is_some_and(is_on_pool) {
        on_alternate(work, |work| work())
    } else {
        work()
    }
}

/// Runs `work` on an alternate stack, or `otherwise` on the current one if there is no memory for another.
pub fn on_alternate<F: FnOnce() -> R, R>(work: F, otherwise: impl FnOnce(F) -> R) -> R {
    const SIZE: usize = 512 << 10;
    let Ok(stack) = raw::map(SIZE, 0) else { return otherwise(work) };
    let mut work = Some(work);
    let mut result = None;
    let mut step = || result = work.take().map(|work| work());
    let mut step: &mut dyn FnMut() = &mut step;
    let argument = (&raw mut step) as usize;
    // SAFETY: the contexts lie at the bottom of the fresh memory, the stack above them; `uc_link` leads back here, and
    // then the memory is no longer in use. `enter` takes the two numbers that it is given.
    unsafe {
        let contexts = stack as *mut ucontext_t;
        let (back, there) = (contexts, contexts.add(1));
        let used = (2 * size_of::<ucontext_t>()).next_multiple_of(64);
        libc::getcontext(there);
        (*there).uc_stack.ss_sp = (stack + used) as *mut c_void;
        (*there).uc_stack.ss_size = SIZE - used;
        (*there).uc_link = back;
        let enter = transmute::<extern "C" fn(u32, u32), extern "C" fn()>(enter);
        libc::makecontext(there, enter, 2, (argument >> 32) as c_int, argument as c_int);
        libc::swapcontext(back, there);
        let _ = raw::munmap(stack, SIZE);
    }
    // `swapcontext` fails only if there is no memory for the stack, which is mapped.
    match (result, work) {
        (Some(result), _) => result,
        (None, Some(work)) => otherwise(work),
        // SAFETY: ends this process; not reached, because `work` does not unwind and always leaves a result.
        (None, None) => unsafe { libc::abort() },
    }
}

/// `makecontext` passes 32-bit numbers.
extern "C" fn enter(high: u32, low: u32) {
    let argument = (high as usize) << 32 | low as usize;
    // SAFETY: the address of a local of `on_alternate`, which waits.
    let work = unsafe { &mut *(argument as *mut &mut dyn FnMut()) };
    work();
}
