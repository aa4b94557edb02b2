//! [`Error`] and its [`Reason`]: why a request got no superpages.

use std::path::Path;

use sys::SysError;
use units::PageSize;

use crate::kernel;

/// Linux errno values that are the same on all architectures.
mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EFAULT: i32 = 14;
}

/// The reason for an [`Error`] or a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The pool has too few superpages that are free and not reserved.
    #[error("the pool of {page} pages has {free} free, and {needed} are needed")]
    PoolTooSmall {
        /// The pool's page size.
        page: PageSize,
        /// Number of superpages of this size that the request needs, rounded up.
        needed: u64,
        /// Number of superpages that could be reserved, including overcommit.
        free: u64,
    },
    /// The machine has no pool of this size, not even an empty one.
    #[error("this machine has no pool of {0} pages")]
    NoPool(PageSize),
    /// The kernel was built without hugetlb.
    #[error("this kernel has no hugetlb pools")]
    NotSupported,
    /// `EPERM` or `EACCES`: this user has no permission.
    #[error("no permission")]
    NoPermission,
    /// The pool has free superpages, but a hugetlb limit of the cgroup, a cpuset or a memory policy forbids their use.
    #[error("a limit of the cgroup, cpuset or memory policy forbids it")]
    Limit,
    /// The node does not exist, or has no free superpages.
    #[error("the NUMA node does not exist or has no free superpages")]
    Node,
    /// No memory or address space is left, or a limit on them is reached.
    #[error("no memory or address space")]
    NoMemory,
    /// Another reason: see the error's source.
    #[error("the kernel refused")]
    Other,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("no superpages for {len} bytes: {reason}")]
pub struct Error {
    /// Number of bytes requested.
    pub len: usize,
    /// The reason.
    pub reason: Reason,
    /// The call that failed.
    pub source: SysError,
}

impl Reason {
    /// Returns why a mapping of the pool failed, according to the pool's current counters. If other processes use the
    /// pool at the same time, the result is a guess.
    pub(crate) fn from_mapping(error: &SysError, len: usize, page: PageSize) -> Self {
        if [errno::EPERM, errno::EACCES].contains(&error.errno()) {
            return Self::NoPermission;
        }
        let root = Path::new("/");
        let Some(free) = kernel::available(root, page) else {
            return if kernel::has_pools(root) { Self::NoPool(page) } else { Self::NotSupported };
        };
        let needed = page.count(len as u64);
        match error.errno() {
            errno::ENOMEM if free < needed => Self::PoolTooSmall { page, needed, free },
            errno::ENOMEM => Self::NoMemory,
            _ => Self::Other,
        }
    }

    /// Returns why reserved superpages could not be faulted in.
    pub(crate) fn from_populating(error: &SysError, is_bound: bool) -> Self {
        match error.errno() {
            errno::EFAULT | errno::ENOMEM if is_bound => Self::Node,
            errno::EFAULT | errno::ENOMEM => Self::Limit,
            _ => Self::Other,
        }
    }
}
