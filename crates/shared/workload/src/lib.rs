//! The benchmark kernels: eight memory-bound programs, each one library call.
//!
//! Their access sequences are replayed on simulated machines too. Each kernel therefore keeps three things apart: the **sequence** (pure, seeded: what is accessed, in which order), the
//! **live loop** (the same sequence on real memory, timed) and the **verification** (that the
//! memory holds what the sequence must have left there, computed another way).
//!
//! All memory comes from the global allocator, fresh and zeroed, so that every launch arm
//! (preloaded allocator, glibc tunables, THP policy) reaches it; see [`memory`].
//!
//! Nothing here prints, reads the environment or allocates memory in a way that can abort on a
//! large size. Unsafe code is in `memory` (the allocation, and populating it), `usage` (two libc calls), `latency`
//! and `jumps` (the chains of pointers and of jumps under `superpage tlb`) and `zero` (stores of zeros, under
//! `superpage bench zero`) only.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the kernels index memory with 64-bit numbers; a 64-bit target is needed");

pub mod btree;
pub mod chase;
pub mod csr;
pub mod graph;
pub mod gups;
pub mod hashmap;
pub mod jumps;
pub mod latency;
pub mod lookup;
pub mod memory;
pub mod pagerank;
pub mod priced;
pub mod requests;
pub mod rng;
pub mod stream;
pub mod tail;
pub mod touch;
pub mod zero;

mod error;
mod kind;
mod outcome;
mod settings;
mod team;
mod usage;

pub use error::WorkloadError;
pub use graph::Graph;
pub use kind::{UnknownWorkload, Workload};
pub use outcome::{Better, Details, Figure, Outcome, SCHEMA, StreamKernel, TouchLatency};
pub use settings::{Options, Settings};
pub use usage::page_size;

/// Says how many bytes of a range of addresses are on superpages, if that can be read; asked outside of timed
/// regions. This crate makes no system calls of that kind; its caller may.
pub type Look<'a> = &'a dyn Fn(std::ops::Range<u64>) -> Option<u64>;
