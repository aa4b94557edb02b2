//! The benchmark kernels: eight memory-bound programs, each one library call.
//!
//! Simulated machines replay the kernels' access sequences. So each kernel has three separate parts: the **sequence**
//! (a pure, seeded list of accesses), the **live loop** (the same sequence on real memory, timed), and the
//! **verification** (which compares the memory with a result computed in another way).
//!
//! All memory comes from the global allocator, fresh and zeroed, so that preloaded allocators, glibc tunables and THP
//! policies affect it; see [`memory`].
//!
//! This crate does not print, read the environment, or abort on a failed large allocation. Unsafe code is only in
//! `memory` (the allocation, and populating it), `usage` (two libc calls), `latency` and `jumps` (the chains of
//! pointers and of jumps behind `superpage tlb`) and `zero` (stores of zeros, behind `superpage bench zero`).

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

/// Returns the number of bytes of an address range that are on superpages, if known. Called outside of timed regions.
/// The caller provides this function, because this crate does not make the necessary system calls.
pub type Look<'a> = &'a dyn Fn(std::ops::Range<u64>) -> Option<u64>;
