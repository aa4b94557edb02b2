//! The library's functions for programs that ask for superpages themselves: `include/superpage.h`.
//!
//! Two groups. `names` has the functions of libhugetlbfs under this library's prefix, with their
//! old semantics, messages and `HUGETLB_*` environment; the compatible libhugetlbfs.so.0 forwards to
//! them. `calls` has what that library lacked: a choice of fallback and node, the reason why
//! superpages were refused, and what a range is really made of. Those neither print nor read the
//! environment, but for the default page size.
//!
//! One promise holds for all of them: a call that succeeds with superpages has them. Either they
//! are reserved, so that no fault of this process can fail, or, where a reservation does not hold
//! (`obtain` lists when), they are already there. What a child of fork writes is its own affair
//! (superpage(7)).
//!
//! # Safety
//! This library may also be the process's malloc, and its functions may be called before main:
//! nothing in here allocates from Rust's allocator, waits for a lock, unwinds, or changes errno
//! on success. Memory comes and goes by direct system calls, so it passes none of the functions
//! this library puts in front of libc's. Files are read through libc's `open`, `opendir` and
//! `read`, because programs put their own in front of those and expect them to be used. Addresses
//! are unmapped only after they were found in `regions`, by whoever took them out of it.

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
