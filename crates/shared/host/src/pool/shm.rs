//! Machine settings related to the pools: who may use hugetlb shared memory, the maximum size of a segment, and the
//! memory that the kernel keeps free.

use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::outcome::PoolError;
use crate::journal::{Journal, Knob, Written};
use crate::{MemInfo, ReadError, Root, ZoneLevels, root};

/// Settings related to the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedSettings {
    /// `hugetlb_shm_group`: its members may `shmget(SHM_HUGETLB)` without CAP_IPC_LOCK. 0: no
    /// group.
    pub shm_group: Option<u32>,
    /// `shmmax`: the largest SysV segment in bytes.
    pub shmmax: Option<u64>,
    /// `min_free_kbytes`.
    pub min_free_kbytes: Option<u64>,
    /// Recommended minimum of `min_free_kbytes`; `None` if zones or the page size are unknown.
    pub recommended_min_free_kbytes: Option<u64>,
}

const SHMMAX: &str = "/proc/sys/kernel/shmmax";

impl RelatedSettings {
    /// Reads the settings.
    pub fn read(root: &Root) -> Self {
        let number = |path: &str| root::number(root, path).ok();
        Self {
            shm_group: number("/proc/sys/vm/hugetlb_shm_group").and_then(|id| id.try_into().ok()),
            shmmax: number(SHMMAX),
            min_free_kbytes: number("/proc/sys/vm/min_free_kbytes"),
            recommended_min_free_kbytes: recommended_min_free(root).ok().flatten(),
        }
    }
}

/// Lets the members of a group use hugetlb shared memory.
pub fn set_shm_group(journal: &mut Journal, gid: u32) -> Result<Written, PoolError> {
    Ok(journal.set(&Knob::hugetlb_shm_group(), &gid.to_string())?)
}

/// Raises the maximum size of a SysV segment. Never lowers it: the kernel's default is unlimited, and a lower limit
/// breaks unrelated programs.
pub fn raise_shmmax(
    root: &Root,
    journal: &mut Journal,
    bytes: ByteSize,
) -> Result<Written, PoolError> {
    raise(root, journal, &Knob::shmmax(), "shmmax", bytes.bytes())
}

/// Raises `min_free_kbytes`; never lowers it.
pub fn raise_min_free(
    root: &Root,
    journal: &mut Journal,
    kbytes: u64,
) -> Result<Written, PoolError> {
    raise(root, journal, &Knob::min_free_kbytes(), "min_free_kbytes", kbytes)
}

fn raise(
    root: &Root,
    journal: &mut Journal,
    knob: &Knob,
    what: &'static str,
    asked: u64,
) -> Result<Written, PoolError> {
    check_raise(root, knob, what, asked)?;
    Ok(journal.set(knob, &asked.to_string())?)
}

/// Refuses to lower a setting. Writes nothing.
pub fn check_raise(
    root: &Root,
    knob: &Knob,
    what: &'static str,
    asked: u64,
) -> Result<(), PoolError> {
    let now = root::number(root, knob.path())?;
    if asked < now { Err(PoolError::WouldLower { what, now, asked }) } else { Ok(()) }
}

/// The value of `min_free_kbytes` (in kB) that avoids mixing pages of different mobility: two free pageblocks in each
/// zone, and three for each fallback between the three migrate types. This is the kernel's rule for THP
/// (mm/khugepaged.c set_recommended_min_free_kbytes()), capped like the kernel's at a twentieth of memory. As in
/// hugeadm, empty zones count too.
pub fn recommended_min_free(root: &Root) -> Result<Option<u64>, ReadError> {
    let memory = MemInfo::read(root)?;
    let zones = ZoneLevels::read(root)?.len() as u64;
    // A pageblock has the THP size even if the default pool has another size
    // (default_hugepagesz=1G).
    let block = crate::Thp::pmd_size_of(root).ok().or(memory.default_hugepage);
    let (Some(block), Some(total)) = (block, memory.total) else {
        return Ok(None);
    };
    let kbytes = (block.bytes() / 1024).saturating_mul(zones).saturating_mul(2 + 3 * 3);
    Ok((zones > 0).then(|| kbytes.min(total.bytes() / 1024 / 20)))
}
