//! Fragments free memory on this machine: translates a level to a goal, and compacts memory before and afterwards.

use experiment::fragment::{Extent, Free, Goal, Kind};
use host::pool::Headroom;
use host::{FreeContiguity, Root, Thp};
use units::PageSize;

use crate::{Failure, pool_guard};

/// Returns the goal of a fragmentation level with this machine's current free memory.
///
/// # Errors
/// The kernel does not report free memory by size.
pub fn goal(kind: Kind, level: u8, extent: Extent) -> Result<Goal, Failure> {
    goal_of(kind, level, extent, &free(superpage()?)?)
}

/// Returns the goal of a fragmentation level with the given free memory.
///
/// # Errors
/// The kernel does not report free memory by size.
pub fn goal_of(
    kind: Kind,
    level: u8,
    extent: Extent,
    free: &FreeContiguity,
) -> Result<Goal, Failure> {
    let unknown = |what: &str| Failure::cannot(format!("{what}; nothing was done"));
    let superpages = free.superpages.ok_or_else(|| {
        unknown("/proc/buddyinfo does not say how many superpages of this size are free")
    })?;
    let headroom = Headroom::read(&Root::real(), None).map_err(Failure::cannot)?;
    let Headroom { available, margin, .. } = headroom
        .ok_or_else(|| unknown("/proc/meminfo does not say how much memory is available"))?;
    let allowed = host::cgroup::memory_available(&Root::real());
    let available = allowed.map_or(available, |allowed| allowed.min(available));
    let free = Free { superpage: free.superpage, superpages, available, margin };
    Ok(Goal::new(kind, level, extent, free)?)
}

/// Returns the superpage size in which memory is fragmented.
///
/// # Errors
/// This kernel has no transparent superpages.
pub fn superpage() -> Result<PageSize, Failure> {
    Thp::pmd_size_of(&Root::real()).map_err(|_| {
        Failure::cannot("this kernel has no transparent superpages, by which memory is fragmented")
    })
}

/// Compacts free memory as far as possible. Returns whether this was permitted.
pub fn gather(superpage: PageSize) -> bool {
    experiment::contiguous::gather_all(&Root::real(), &pool_guard::journal_dir(), superpage).is_ok()
}

/// Reads how much memory is free now.
///
/// # Errors
/// The kernel does not report it.
pub fn free(superpage: PageSize) -> Result<FreeContiguity, Failure> {
    FreeContiguity::read(&Root::real(), superpage).map_err(Failure::cannot)
}
