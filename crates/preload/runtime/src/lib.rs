//! `libsuperpage.so`: what happens inside a process that `superpage run` started, or that is linked
//! with it.
//!
//! | module | what it owns |
//! |---|---|
//! | `settings` | what the environment asks for; read once |
//! | `source` | where every kind of memory gets its pages; `limits` says when a reservation is not enough |
//! | `mapping` | mmap and its relatives, for the memory a program maps itself; `small`, `demote` |
//! | `table` | which ranges lie on the pool |
//! | `sizes`, `files` | sizes of superpages; small files of the kernel |
//! | `heap` | malloc and its relatives: glibc's own, on superpages |
//! | `symbols` | which functions this library stands in for |
//! | `filter` | whether a seccomp filter may be in place |
//! | `contiguity` | advice about superpages, where there is memory to follow it |
//! | `in_place` | memory in files of superpages, of which superpages are made without a copy |
//! | `write_protect` | keeping writers waiting while memory is copied; mapping memory page by page |
//! | `instrumentation` | programs that it must not be in: sanitizers, valgrind |
//! | `loaded` | what the loader has loaded, asked without calling anything |
//! | `segments` | the program's text, data and bss |
//! | `prepare` | superpages that are ready before they are touched: kept mappings, and the beginnings of new ones |
//! | `stack` | stacks of a fixed size: the main thread's and those of threads |
//! | `fork` | what is done before and after a fork; `copy`: a child's superpages; `order`: the parts; `fork_lock` |
//! | `glibc` | making glibc's own malloc reliable, where it stays in use |
//! | `pagemap` | what lies under pages, asked of the kernel |
//! | `executor` | what `policy` remembers of this process, asking it, the log of its decisions, and the advice it wants |
//! | `text` | text of a fixed length, and numbers in text |
//! | `once` | what is found out once |
//! | `environment` | what programs that this one executes learn of all this |
//! | `counters` | what was asked for and got |
//! | `looks` | what this process holds on which pages, read before it gives memory back and when it ends |
//! | `api` | the functions for programs that ask themselves: `superpage.h`, libhugetlbfs' names |
//!
//! No two of them use each other, also not by way of others (`tests/integration/layers.rs`). `start` is on top, and below
//! it `order`, which has the parts that a fork concerns.
//!
//! Inert unless `SUPERPAGE_PAGES` asks for superpages, or the program calls `api`. This is the one library of the project that
//! reads the environment: a preloaded library has no other way to be told anything.
//!
//! # Safety
//! The exported functions have the C signatures of the functions they stand in for. They call the
//! kernel directly (`raw`), never a libc function that may itself be replaced, so they cannot
//! recurse; and nothing here uses Rust's allocator, which would be the program's.

mod api;
mod contiguity;
mod copies;
mod counters;
mod environment;
mod executor;
mod files;
mod filter;
mod fork;
mod fork_lock;
mod glibc;
mod heap;
mod in_place;
mod instrumentation;
mod limits;
mod loaded;
mod lock;
mod looks;
mod mapping;
mod maps;
mod message;
mod once;
mod order;
mod pagemap;
mod prepare;
mod raw;
mod segments;
mod settings;
mod sizes;
mod source;
mod stack;
mod start;
mod symbols;
mod table;
mod text;
mod write_protect;

// mmap's offset would be 32 bits, and the system call another one (mmap2).
#[cfg(not(target_pointer_width = "64"))]
compile_error!("libsuperpage.so is for systems with 64-bit pointers");
