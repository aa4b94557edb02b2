//! Why a request got no superpages.

use host::{HugetlbPools, Root};
use sys::SysError;
use units::PageSize;

/// Errnos of Linux, the same on all its architectures.
mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EFAULT: i32 = 14;
}

/// The reason for an error or a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// Too few superpages that nobody has or reserved.
    #[error("the pool of {page} pages has {free} free, and {needed} are needed")]
    PoolShort {
        /// The pool's page size.
        page: PageSize,
        /// Superpages the request needs.
        needed: u64,
        /// Superpages that could have been reserved.
        free: u64,
    },
    /// The machine has no pool of this size, not even an empty one.
    #[error("this machine has no pool of {0} pages")]
    NoPool(PageSize),
    /// The kernel was built without hugetlb.
    #[error("this kernel has no hugetlb pools")]
    NotSupported,
    /// This user may not.
    #[error("no permission")]
    NoPermission,
    /// Reserved, yet not to be had: a hugetlb limit of the cgroup, a cpuset or a memory policy.
    #[error(
        "a limit of the cgroup, cpuset or memory policy stands between the pool and this process"
    )]
    Limit,
    /// The node does not exist, or has no free superpages.
    #[error("the NUMA node does not exist or has no free superpages")]
    Node,
    /// No memory, address space, or a limit on them.
    #[error("no memory or address space")]
    NoMemory,
    /// Anything else: the error's source says what.
    #[error("the kernel refused")]
    Other,
}

/// A request that got nothing.
#[derive(Debug, thiserror::Error)]
#[error("no superpages for {len} bytes: {why}")]
pub struct Refused {
    /// Bytes that were asked for.
    pub len: usize,
    /// The reason.
    pub why: Why,
    /// The call that failed.
    pub source: SysError,
}

/// Why a mapping of the pool failed, as the pool's counters say now: under contention a guess.
pub(crate) fn of_mapping(error: &SysError, len: usize, page: PageSize) -> Why {
    if [errno::EPERM, errno::EACCES].contains(&error.errno()) {
        return Why::NoPermission;
    }
    let pools = HugetlbPools::read_sizes(&Root::real());
    let Some(pool) = pools.get(&page) else {
        return if pools.is_empty() { Why::NotSupported } else { Why::NoPool(page) };
    };
    let more = pool.overcommit.zip(pool.surplus).map_or(0, |(most, now)| most.saturating_sub(now));
    let free = pool.unreserved().unwrap_or(0) + more;
    let needed = page.count(page.ceil(len as u64));
    match error.errno() {
        errno::ENOMEM if free < needed => Why::PoolShort { page, needed, free },
        errno::ENOMEM => Why::NoMemory,
        _ => Why::Other,
    }
}

/// Why reserved superpages could not be taken.
pub(crate) fn of_populating(error: &SysError, is_bound: bool) -> Why {
    match error.errno() {
        errno::EFAULT | errno::ENOMEM if is_bound => Why::Node,
        errno::EFAULT | errno::ENOMEM => Why::Limit,
        _ => Why::Other,
    }
}
