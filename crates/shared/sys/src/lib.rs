//! All system calls of this project, with typed arguments and without policy.
//!
//! Each function is one system call, documented with its C signature, the errors that matter, the kernel version and
//! the privilege that it needs. Calls go through rustix or libc. Constants that both lack are defined here once, with
//! their source.
//!
//! # Safety
//! Three kinds of unsafe live here. Memory: a `Mapping` owns its address range exclusively (it is neither `Clone` nor
//! `Copy`, and hands out only ranges inside itself). So advice that discards pages changes only bytes that the owner
//! may change anyway. System calls: pointers are to live locals or slices of the stated length, and the kernel writes
//! only inside them. The heap: see [`heap`].

pub mod affinity;
pub mod code;
mod error;
pub mod exits;
#[cfg(target_arch = "x86_64")]
pub mod expendable;
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
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
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
