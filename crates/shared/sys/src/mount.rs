//! hugetlbfs mounts, a tmpfs of superpages that is mounted nowhere, and what a file's device number is made of.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::fstat;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen,
};

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

/// A tmpfs whose files are made of superpages where they are free (`huge=always`), whatever the machine's setting for shared
/// memory is, and without a limit of its own. It is mounted nowhere, so that nobody finds it by a path, and ends with
/// the last descriptor and the last mapping of it. Every user who has the descriptor may make files in it. Linux 5.2
/// (`ENOSYS` before); needs CAP_SYS_ADMIN (`EPERM`); `EINVAL` on a kernel without transparent superpages. `fsopen(2)`,
/// `fsconfig(2)`, `fsmount(2)`.
pub fn superpage_files() -> Result<SuperpageFiles, SysError> {
    let named = |call: &'static str| move |errno| SysError::new(call, "tmpfs", errno);
    let system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(named("fsopen"))?;
    for (key, value) in [
        ("source", "superpage"),
        ("huge", "always"),
        ("size", "0"),
        ("nr_inodes", "0"),
        ("mode", "1777"),
    ] {
        fsconfig_set_string(&system, key, value).map_err(named("fsconfig"))?;
    }
    fsconfig_create(&system).map_err(named("fsconfig"))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let directory =
        fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(named("fsmount"))?;
    let stat = fstat(&directory).map_err(named("fstat"))?;
    Ok(SuperpageFiles { directory, device: stat.st_dev, inode: stat.st_ino })
}

/// The directory of [`superpage_files`].
#[derive(Debug)]
pub struct SuperpageFiles {
    /// The directory.
    pub directory: OwnedFd,
    /// Its device and inode, as fstat(2) gives them.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
}

/// Major and minor number of a device as stat(2) gives it: `major(3)`, `minor(3)`.
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}
