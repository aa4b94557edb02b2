//! The library inside real processes, in one executable: most tests start it again with the library preloaded, or
//! build and start a C program of `tests/programs`.
//!
//! Executables of their own: `lock` (the library's locks, built into it at the root), `contiguity` (fragments the
//! machine's memory while it runs, which others would see), `harmless` (the long comparison, started by itself).

#[path = "../api_calls/mod.rs"]
mod api_calls;
#[path = "../common/mod.rs"]
mod common;
#[path = "../programs/mod.rs"]
mod programs;
// The table of packed objects, with its own tests: cargo runs none of the library's.
#[allow(dead_code, reason = "the tests use what they need")]
#[path = "../../src/heap/slots.rs"]
mod slots;

mod advice;
mod api;
mod api_environment;
mod files;
mod fork;
mod header;
mod heap;
mod heap_pages;
mod hugetlb;
mod instrumented;
mod layers;
mod packed;
mod policy_log;
mod pool_short;
mod preload;
mod prepare;
mod segments;
mod stack;
