//! What is done before a fork, and after it in both processes: each part's share, in one order.
//!
//! # No circle
//! Nothing of ours that others wait for is held across a fork: no lock, no lock of libc's, no writer.
//! glibc takes, after our handler, the locks of its name services, then of stdio's list of files, then
//! malloc's; whoever holds one of those may be in a function of this library, and comes out of it,
//! because what holds a lock of ours, or a range of `mapping::exclusive`, waits for the kernel only
//! (`lock`). So the child may find any lock taken and any value half changed: each part sets right
//! what it needs, from what the kernel says.
//!
//! # Safety
//! The child's handler runs alone in its process, in the state a forked child of many threads is in:
//! it makes system calls and nothing else.

mod calls;
pub mod copy;

use std::sync::OnceLock;

use crate::fork_lock;
use crate::lock::Rank;

/// What a part of the library does about a fork.
pub struct Part {
    /// The rank of its lock.
    pub rank: Option<Rank>,
    /// Before the fork.
    pub prepare: fn(),
    /// After it, in the parent.
    pub parent: fn(),
    /// After it, in the child.
    pub child: fn(),
}

impl Part {
    /// A part that only has its state to set right in the child.
    pub const fn in_child(rank: Option<Rank>, child: fn()) -> Self {
        const fn nothing() {}
        Self { rank, prepare: nothing, parent: nothing, child }
    }
}

/// In the order of `order`; set when the handlers are registered.
static PARTS: OnceLock<&[Part]> = OnceLock::new();

/// Registers the handlers. Ours are the first: the child's run before anybody else's, and before a
/// fork they run last.
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
    // Only now may other threads take pages: those that were free are the child's to lean on.
    fork_lock::release();
}

extern "C" fn in_child() {
    parts().for_each(|part| (part.child)());
}
