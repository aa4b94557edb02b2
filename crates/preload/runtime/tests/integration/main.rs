//! The library inside real processes, in one test program: most tests start it again with the library preloaded, or
//! build and start a C program of `tests/programs`.
//!
//! Other test programs: `units` (unit tests of the library's parts, which are compiled into it), `lock` (the library's
//! locks, likewise), `contiguity` (fragments the machine's memory, which would disturb other tests), `harmless` (the
//! long comparison, started separately).

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
