//! hugetlbfs mounts, and what a file's device number is made of.

use std::ffi::CString;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::SysError;

/// `mount("none", target, "hugetlbfs", MS_NOSUID | MS_NODEV, options)`: a file system whose files
/// are made of a pool's pages. Needs CAP_SYS_ADMIN (`EPERM`); `ENOENT` without the directory,
/// `ENODEV` on a kernel without hugetlbfs, `EINVAL` for options it does not take. `mount(2)`.
pub fn mount_hugetlbfs(target: &Path, options: &str) -> Result<(), SysError> {
    let on = || format!("{} ({options})", target.display());
    let text = CString::new(options)
        .map_err(|_| SysError::new("mount", on(), std::io::ErrorKind::InvalidInput))?;
    // Nothing in it is ever a program or a device.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("none", target, "hugetlbfs", flags, text.as_c_str())
        .map_err(|errno| SysError::new("mount", on(), errno))
}

/// `umount2(target, UMOUNT_NOFOLLOW)`: `EBUSY` while a file in it is open or mapped. `umount(2)`.
pub fn unmount(target: &Path) -> Result<(), SysError> {
    rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)
        .map_err(|errno| SysError::new("umount", target.display().to_string(), errno))
}

/// Major and minor number of a device as stat(2) gives it: `major(3)`, `minor(3)`.
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}
