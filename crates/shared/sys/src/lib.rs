//! Typed syscalls: all syscalls of this project, and no policy.
//!
//! Each function is one syscall with typed arguments, documented with its C signature, the errors that matter, the
//! kernel version it needs and the required privilege. Calls go through rustix or libc; a constant that both lack is
//! defined here once, with its source.
//!
//! # Safety
//! Three kinds of unsafe live here. Memory: a `Mapping` owns its address range exclusively (it is neither `Clone` nor
//! `Copy`, and hands out only ranges inside itself), so advice that discards pages can only change bytes that its owner
//! may change anyway. Plain kernel calls: the pointers passed are to live locals or slices of the stated length, and
//! the kernel writes only inside them. The heap: see [`heap`].

pub mod affinity;
pub mod code;
mod error;
pub mod exits;
pub mod guard;
pub mod heap;
pub mod input;
pub mod mem;
pub mod memfd;
pub mod mount;
pub mod numa;
pub mod pagemap;
pub mod param;
pub mod peek;
pub mod perf;
pub mod pidfd;
pub mod pin;
pub mod prctl;
pub mod procmap;
pub mod scratch;
pub mod secure;
pub mod shared;
pub mod signal;
pub mod spawn;
pub mod trust;
pub mod user;
pub mod userfault;
pub mod wait;

pub use error::SysError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
