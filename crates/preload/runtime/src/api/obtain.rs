//! Maps memory on superpages, or returns the reason for a failure.
//!
//! A private hugetlb mapping reserves all its pages at mmap, and then no fault of this process can fail. There are four
//! exceptions, for which the pages are populated before the call returns: the program wants no reservation
//! (`HUGETLB_NO_RESERVE`), the memory is bound to a node, the thread's policy or cpuset excludes nodes, or a cgroup
//! limits what it may touch (`limits`). `MADV_POPULATE_WRITE` populates them, and reports EFAULT where a touch would
//! raise SIGBUS; before Linux 5.14 reads from /dev/zero into the pages do the same.

use advisor::Kind;

use super::reason::{Reason, Refusal};
use super::{kernel, sizes};
use crate::raw::{self, Errno, MPOL_BIND, MPOL_PREFERRED};
pub use crate::settings::Fallback;
use crate::{executor, files, limits, source};

#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub number: u32,
    pub is_strict: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub length: usize,
    /// Size of the superpages.
    pub page: usize,
    pub fallback: Fallback,
    pub node: Option<Node>,
    /// Populate all pages now.
    pub populate: bool,
    pub no_reserve: bool,
    /// Do not give the memory to forked children (MADV_DONTFORK).
    pub keep_from_children: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub start: usize,
    pub length: usize,
    /// Why the memory is not on superpages of the pool; `Reason::None` if it is.
    pub reason: Reason,
}

pub fn obtain(request: &Request) -> Result<Memory, Refusal> {
    if request.length == 0 || !request.page.is_power_of_two() {
        return Err(Refusal::new(libc::EINVAL, Reason::BadArgument));
    }
    superpages(request).or_else(|refusal| {
        match executor::fall_back(request.fallback, request.length) {
            Fallback::Error => Err(refusal),
            Fallback::Base | Fallback::Thp => ordinary(request, refusal.reason),
        }
    })
}

fn superpages(request: &Request) -> Result<Memory, Refusal> {
    let length = rounded(request.length, request.page)?;
    let reserve = if request.no_reserve { libc::MAP_NORESERVE } else { 0 };
    let start = raw::map(length, source::hugetlb_flags(request.page) | reserve)
        .map_err(|errno| refused(errno, request, length))?;
    let fill = request.populate
        || request.no_reserve
        || request.node.is_some_and(|node| node.is_strict)
        || limits::may_fail_faults(request.page);
    prepare(request, start, length)
        .and_then(|()| if fill { filled(start, length, request) } else { Ok(()) })?;
    Ok(Memory { start, length, reason: Reason::None })
}

/// Maps anonymous memory of base pages, advised for THP if the fallback says so.
fn ordinary(request: &Request, reason: Reason) -> Result<Memory, Refusal> {
    let length = rounded(request.length, raw::base_page())?;
    let no_memory = |errno| Refusal::new(errno, Reason::NoMemory);
    let (start, reason) = if request.fallback == Fallback::Thp {
        let start = aligned(length, request.page).map_err(no_memory)?;
        let off =
            !executor::advise(Kind::Region, request.fallback, start, length) || files::is_thp_off();
        (start, if off { Reason::ThpOff } else { reason })
    } else {
        (raw::map(length, 0).map_err(no_memory)?, reason)
    };
    prepare(request, start, length)?;
    if request.populate {
        // SAFETY: fresh memory of ours. A failure to populate is ignored: unlike a hugetlb fault, the fault of a base
        // page waits for memory.
        let _ = unsafe { raw::populate(start, length) };
    }
    Ok(Memory { start, length, reason })
}

/// Sets the node and fork behaviour before the first touch. Unmaps the memory on failure.
fn prepare(request: &Request, start: usize, length: usize) -> Result<(), Refusal> {
    if let Some(node) = request.node {
        let policy = if node.is_strict { MPOL_BIND } else { MPOL_PREFERRED };
        let bound = raw::node_mask(node.number).ok_or(libc::EINVAL).and_then(|nodes| {
            // SAFETY: our own new mapping, which nothing uses yet.
            unsafe { raw::mbind(start, length, policy, &nodes) }
        });
        match bound {
            Ok(()) => {}
            // A kernel without NUMA has all memory on node 0.
            Err(libc::ENOSYS) if node.number == 0 => {}
            Err(errno) => return Err(give_back(start, length, errno, Reason::Node)),
        }
    }
    if request.keep_from_children {
        // SAFETY: our own new mapping, which nothing uses yet.
        if let Err(errno) = unsafe { raw::madvise(start, length, libc::MADV_DONTFORK) } {
            return Err(give_back(start, length, errno, Reason::Unknown));
        }
    }
    Ok(())
}

/// Populates every superpage now, or unmaps all of them.
fn filled(start: usize, length: usize, request: &Request) -> Result<(), Refusal> {
    // SAFETY: fresh memory of ours, which stays zero.
    let filled = match unsafe { raw::populate(start, length) } {
        Err(libc::EINVAL) => touched(start, length, request.page),
        other => other,
    };
    filled.map_err(|_| {
        let reason = if limits::is_in_limited_cgroup(request.page) {
            Reason::CgroupLimit
        } else if request.node.is_some()
            && sizes::available(request.page).is_some_and(|free| free > 0)
        {
            Reason::Node
        } else {
            Reason::PoolShort
        };
        give_back(start, length, libc::ENOMEM, reason)
    })
}

/// Lets the kernel write one zero byte into each page. The read fails if the pool has no page.
fn touched(start: usize, length: usize, page: usize) -> Result<(), Errno> {
    // SAFETY: the pointer is to a C string.
    let zero = unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if zero < 0 {
        return Err(raw::errno());
    }
    let outcome = (start..start + length).step_by(page).try_for_each(|address| {
        // SAFETY: one byte of memory of ours.
        match unsafe { libc::read(zero, address as *mut libc::c_void, 1) } {
            1 => Ok(()),
            _ => Err(raw::errno()),
        }
    });
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(zero) };
    outcome
}

fn give_back(start: usize, length: usize, errno: Errno, reason: Reason) -> Refusal {
    // SAFETY: the caller has just mapped it; no other code has the address.
    let _ = unsafe { raw::munmap(start, length) };
    Refusal::new(errno, reason)
}

/// Finds out why mmap failed. Reads the counters afterwards, so under contention the reason is a guess.
fn refused(errno: Errno, request: &Request, length: usize) -> Refusal {
    let needed = (length / request.page) as u64;
    let reason = match errno {
        libc::EPERM | libc::EACCES => Reason::NoPermission,
        _ if sizes::kernel_default().is_none() => Reason::NotSupported,
        _ if !sizes::has_pool(request.page) => Reason::NoPool,
        libc::ENOMEM if sizes::available(request.page).is_some_and(|pages| pages < needed) => {
            Reason::PoolShort
        }
        libc::ENOMEM if limits::is_in_limited_cgroup(request.page) => Reason::CgroupLimit,
        libc::ENOMEM => Reason::NoMemory,
        libc::ENODEV | libc::ENOSYS => Reason::NotSupported,
        _ => Reason::Unknown,
    };
    Refusal::new(errno, reason)
}

fn rounded(length: usize, page: usize) -> Result<usize, Refusal> {
    kernel::round_up(length, page).ok_or(Refusal::new(libc::ENOMEM, Reason::NoMemory))
}

/// Maps ordinary memory, aligned to `alignment`.
fn aligned(length: usize, alignment: usize) -> Result<usize, Errno> {
    let start = source::reserve(length, alignment)?;
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: address space reserved just now.
    unsafe { raw::mmap(start, length, raw::READ_WRITE, flags, -1, 0) }.inspect_err(|_| {
        // SAFETY: as above; no other code has the address.
        let _ = unsafe { raw::munmap(start, length) };
    })
}
