//! `libsuperpage.so`: the library inside a process that `superpage run` started, or that is linked with it.
//!
//! | module | what it owns |
//! |---|---|
//! | `settings` | configuration from the environment; read once |
//! | `source` | superpages for every kind of memory; `limits`: where a reservation does not suffice |
//! | `mapping` | mmap and its relatives, for the program's own mappings; `small`, `demote` |
//! | `table` | the ranges on hugetlb pages |
//! | `sizes`, `files` | sizes of superpages; small kernel files |
//! | `heap` | malloc and its relatives: glibc's arenas on superpages |
//! | `symbols` | the next definition of an interposed function |
//! | `filter` | whether the process may have a seccomp filter |
//! | `contiguity` | madvise for superpages, where contiguous memory is free |
//! | `in_place` | memory in tmpfs files, promoted to superpages without a copy |
//! | `write_protect` | blocking writers while memory is copied; mapping by base page (userfaultfd) |
//! | `instrumentation` | programs that must run without the library: sanitizers, valgrind |
//! | `loaded` | the loader's list of objects, read without calling libc |
//! | `segments` | the program's text, data and bss |
//! | `prepare` | superpages ready before the first touch: kept mappings, and the beginnings of new ones |
//! | `stack` | stacks of a fixed size: the main thread's and those of threads |
//! | `fork` | work before and after a fork; `copy`: a child's superpages; `order`: the parts; `fork_lock` |
//! | `glibc` | making glibc's own malloc reliable, where it stays in use |
//! | `pagemap` | state of pages, from the kernel |
//! | `executor` | the state of `advisor` for this process, its decisions, their log, and the advice they need |
//! | `text` | text of a fixed capacity, and numbers in text |
//! | `once` | booleans computed once |
//! | `environment` | removal of this library from the environment of executed programs |
//! | `counters` | what was requested and got |
//! | `looks` | the pages this process holds, read before it frees memory and at exit |
//! | `api` | functions for programs that request superpages themselves: `superpage.h`, libhugetlbfs' names |
//!
//! No two modules depend on each other, directly or indirectly (`tests/integration/layers.rs`). `start` is on top, and
//! below it `order`, which lists the parts that act on a fork.
//!
//! The library is inert unless `SUPERPAGE_PAGES` asks for superpages, or the program calls `api`. It is the only
//! library of the project that reads the environment: a preloaded library cannot be configured otherwise.
//!
//! # Safety The exported functions have the C signatures of the functions they interpose. They call the kernel directly
//! (`raw`), never a libc function that may itself be interposed, so they cannot recurse. Nothing here uses Rust's
//! allocator, which would be the program's.

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

// With 32-bit pointers mmap's offset would be 32 bits, and the system call mmap2.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("libsuperpage.so is for systems with 64-bit pointers");
