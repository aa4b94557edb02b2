//! Superpages that are ready before a program touches them: a stock of zeroed ones, and what lies ahead
//! of touches in order. The rules are those of the crate `ahead`.
//!
//! | module | what it owns |
//! |---|---|
//! | `area` | address space of the library's own, superpage by superpage: who has it, in what state |
//! | `chunk` | one superpage of it, and its life cycle |
//! | `fork` | what of it a child gets |
//! | `requests` | what mappings and the heap ask of it |
//! | `stock` | what the thread does to it: fill, zero again, give back |
//! | `watch` | sequences of touches in mappings and in the heap |
//! | `thread` | the thread "superpage-pool" and its turns |
//! | `facts` | load, idle CPUs, memory, limits: what the thread looks at |
//! | `fetch` | the first lines of what is handed out, on their way before they are touched |
//! | `zero` | zeroing past the caches |
//!
//! Memory is handed out *by address*: an anonymous mapping or a large object gets a run of superpages
//! where they lie, populated and zero, and the heap's arenas lie in the area themselves. So handing out
//! is a change of state, and no system call. What waits in the stock is `MADV_FREE`: the kernel takes it
//! at any moment, before it reclaims or kills anything, and what is read there is zero either way.
//!
//! # Safety
//! A superpage is written by the thread only in states in which nobody else has it (see `chunk`); all
//! states change under one lock. `MADV_FREE` is given under that lock, only to what nobody has.

use crate::answer::Answer;
use crate::settings::{self, Pages};
use crate::source;

mod area;
mod chunk;
mod facts;
mod fetch;
mod fork;
mod requests;
mod stock;
mod thread;
mod watch;
mod zero;

pub use area::may_hold;
pub use fork::{after_fork, before_fork, lock, unlock};
pub use requests::{Taken, begin, changed, give_back, occupy, reserve_for_heap, take, take_at};

/// Whether anything is to be prepared in this process.
pub fn is_on() -> bool {
    static ANSWER: Answer = Answer::new();
    ANSWER.get(|| {
        let settings = settings::get();
        let is_asked = settings.prezero > 0 || settings.prefault > 0;
        // Sizes below the largest (mTHP) come with page tables that moving and freeing split.
        is_asked && settings.pages == Pages::Thp(0) && FITTING.contains(&source::superpage())
    })
}

/// A superpage is prepared in one step: 2 MiB take 0.1 to 0.4 ms (measured), 32 MiB some 5.
const FITTING: std::ops::RangeInclusive<usize> = 1 << 20..=32 << 20;

/// Bytes of a setting in superpages.
fn superpages(bytes: usize) -> u64 {
    (bytes / source::superpage()) as u64
}
