//! Making and removing mounts. Not settings that a journal could restore: a mount is there or not,
//! and making one that is there already changes nothing.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plan::{MOUNTS_DIR, MountPlan};
use super::table::{self, Mount};
use crate::Root;
use crate::pool::PoolError;

/// What making a mount came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountOutcome {
    /// It is new.
    New,
    /// It was there, just so.
    AlreadyThere,
}

impl MountPlan {
    /// What [`make`] would do: an error if something else is mounted there. Nothing is written.
    pub fn check(&self, mounts: &[Mount]) -> Result<MountOutcome, PoolError> {
        // The last one at a place hides those below it.
        let Some(there) = mounts.iter().rev().find(|mount| mount.point == self.point) else {
            return Ok(MountOutcome::New);
        };
        self.differs_from(there).map_or(Ok(MountOutcome::AlreadyThere), |how| {
            let point = self.point.display();
            Err(PoolError::Mount(format!(
                "{point} is mounted already, but {how}; `superpage pool mounts remove {point}` \
                 removes it"
            )))
        })
    }
}

/// Makes the mount, and the directories above it. Needs root. Always on the real machine.
pub fn make(plan: &MountPlan) -> Result<MountOutcome, PoolError> {
    if plan.check(&table::mounts(&Root::real())?)? == MountOutcome::AlreadyThere {
        return Ok(MountOutcome::AlreadyThere);
    }
    let failed = |source| PoolError::action("create a directory", &plan.point, source);
    let is_new = !plan.point.exists();
    DirBuilder::new().recursive(true).mode(0o755).create(&plan.point).map_err(failed)?;
    let mounted = sys::mount::mount_hugetlbfs(&plan.point, &plan.options());
    if mounted.is_err() && is_new {
        // Only what this call made, and only if empty.
        let _ = std::fs::remove_dir(&plan.point);
    }
    mounted?;
    Ok(MountOutcome::New)
}

/// Unmounts `point` and removes its directory, and those above it that [`make`] made and that are
/// now empty. Only hugetlbfs is touched.
pub fn remove(point: &Path) -> Result<(), PoolError> {
    let mounts = table::mounts(&Root::real())?;
    if !mounts.iter().any(|mount| mount.point == point) {
        let list: Vec<String> =
            mounts.iter().map(|mount| mount.point.display().to_string()).collect();
        let list = if list.is_empty() { "none".to_string() } else { list.join(", ") };
        let point = point.display();
        return Err(PoolError::Mount(format!("{point} is not a hugetlbfs mount; mounted: {list}")));
    }
    sys::mount::unmount(point)?;
    let ours = |dir: &&Path| *dir != Path::new(MOUNTS_DIR) && dir.starts_with(MOUNTS_DIR);
    for dir in std::iter::once(point).chain(point.ancestors().skip(1).take_while(ours)) {
        // Not empty, or somebody's working directory: it stays.
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}
