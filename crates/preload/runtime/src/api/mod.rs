//! The library's functions for programs that request superpages themselves: `include/superpage.h`.
//!
//! There are two groups of functions. `names` has the functions of libhugetlbfs under this library's prefix, with their
//! old semantics, messages and `HUGETLB_*` environment; the compatible libhugetlbfs.so.0 forwards to them. `calls` has
//! what libhugetlbfs lacked: a choice of fallback and node, the reason why superpages were refused, and how much of a
//! range lies on superpages. The functions of `calls` neither print nor read the environment, except for the default
//! page size.
//!
//! The superpages of a successful call are reserved, so that no fault of this process can fail. Where a reservation
//! does not suffice (`obtain` lists when), they are populated. Writes of a forked child have no such guarantee
//! (superpage(7)).
//!
//! # Safety
//! This library may also be the process's malloc, and its functions may be called before main: nothing in here
//! allocates from Rust's allocator, waits for a lock, unwinds, or changes errno on success. Memory is mapped and
//! unmapped by direct system calls, which bypass the functions that this library interposes. Files are read through
//! libc's `open`, `opendir` and `read`, because programs interpose them and expect the calls. Only the thread that
//! removed an address from `regions` unmaps it.

mod calls;
mod coverage;
mod environment;
mod fd;
mod files;
mod kernel;
mod mounts;
mod names;
mod obtain;
mod reason;
mod regions;
mod report;
mod sizes;
mod sysv;

pub use fd::unlinked_in_mount;
pub use mounts::mount_of_size as hugetlbfs_mount;
pub use names::shmget_on_superpages;
pub use sysv::fill_if_needed;
