//! Making and removing mounts. Not settings that a journal could restore: a mount is there or not,
//! and making one that is there already changes nothing.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
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
    make_directories(&plan.point).map_err(failed)?;
    let mounted = sys::mount::mount_hugetlbfs(&plan.point, &plan.options());
    if mounted.is_err() && is_new {
        // Only what this call made, and only if empty.
        let _ = fs::remove_dir(&plan.point);
    }
    mounted?;
    Ok(MountOutcome::New)
}

/// Makes a directory, and those above it that are missing. Whatever the umask, all may enter them: the owner of the mount
/// need not be who makes it.
fn make_directories(point: &Path) -> io::Result<()> {
    const MODE: u32 = 0o755;
    let missing = point.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.is_dir());
    for dir in missing.collect::<Vec<_>>().into_iter().rev() {
        match DirBuilder::new().mode(MODE).create(dir) {
            Ok(()) => fs::set_permissions(dir, Permissions::from_mode(MODE))?,
            // Somebody made it meanwhile: it stays as it is.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[ignore = "started by all_may_enter_what_is_made, with another umask"]
    fn child_that_makes_directories() {
        let place = std::env::var("SUPERPAGE_TEST_PLACE").unwrap();
        make_directories(&Path::new(&place).join("there/new/newer")).unwrap();
    }

    #[test]
    fn all_may_enter_what_is_made() {
        let place = tempfile::tempdir().unwrap();
        let there = place.path().join("there");
        fs::create_dir(&there).unwrap();
        fs::set_permissions(&there, Permissions::from_mode(0o711)).unwrap();
        let name = "pool::mounts::act::tests::child_that_makes_directories";
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
        shell.args(["--ignored", "--exact", name]).env("SUPERPAGE_TEST_PLACE", place.path());
        assert!(shell.output().unwrap().status.success());
        let mode = |dir: &str| there.join(dir).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(""), mode("new"), mode("new/newer")], [0o711, 0o755, 0o755]);
        fs::write(there.join("file"), "").unwrap();
        assert!(make_directories(&there.join("file/below")).is_err());
        assert!(make_directories(&there.join("file")).is_err());
    }
}
