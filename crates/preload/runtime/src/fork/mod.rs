//! Fork handlers of the library's parts, which run in one order.
//!
//! # No deadlock Nothing of ours that other threads wait for is held across a fork: no lock of ours or of libc's, no
//! write protection. After our handler glibc takes the locks of its name services, then of stdio's list of files, then
//! malloc's. The holder of one of these locks may be in a function of this library, but returns from it. A thread that
//! holds a lock of ours, or a range of `mapping::exclusive`, waits only for the kernel (`lock`). The child may
//! therefore find any lock taken and any value half-written. Each part repairs its state from what the kernel reports.
//!
//! # Safety
//! The child's handler runs in the only thread of its process, in the state of a forked child of a multi-threaded
//! process: it only makes system calls.

mod calls;
pub mod copy;

use std::sync::OnceLock;

use crate::fork_lock;
use crate::lock::Rank;

/// Fork handlers of a part of the library.
pub struct Part {
    /// The rank of the part's lock.
    pub rank: Option<Rank>,
    /// Before the fork.
    pub prepare: fn(),
    /// After the fork, in the parent.
    pub parent: fn(),
    /// After the fork, in the child.
    pub child: fn(),
}

impl Part {
    /// A part that only repairs its state in the child.
    pub const fn in_child(rank: Option<Rank>, child: fn()) -> Self {
        const fn nothing() {}
        Self { rank, prepare: nothing, parent: nothing, child }
    }
}

/// The parts in the order of `order`; set when the handlers are registered.
static PARTS: OnceLock<&[Part]> = OnceLock::new();

/// Registers the handlers. They are registered before all others, so they run first in the child, and last before a
/// fork.
pub fn provide(parts: &'static [Part]) {
    if PARTS.set(parts).is_err() {
        return;
    }
    // SAFETY: the three functions live as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

fn parts() -> impl Iterator<Item = &'static Part> {
    PARTS.get().into_iter().copied().flatten()
}

extern "C" fn prepare() {
    fork_lock::take();
    parts().for_each(|part| (part.prepare)());
}

extern "C" fn in_parent() {
    parts().for_each(|part| (part.parent)());
    // Only now may other threads take pool pages: until the child has copied, it depends on the free ones.
    fork_lock::release();
}

extern "C" fn in_child() {
    parts().for_each(|part| (part.child)());
}
