//! The library inside real processes, in one executable: most tests start it again with the library preloaded, or
//! build and start a C program of `tests/programs`.
//!
//! Executables of their own: `units` (unit tests of the library's parts, built into it at the root), `lock` (its locks, the
//! same), `contiguity` (fragments the machine's memory while it runs, which others would see), `harmless` (the long
//! comparison, started by itself).

#[path = "../api_calls/mod.rs"]
mod api_calls;
#[path = "../common/mod.rs"]
mod common;
#[path = "../programs/mod.rs"]
mod programs;

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
mod looks;
mod packed;
mod policy_log;
mod pool_short;
mod preload;
mod prepare;
mod segments;
mod stack;
