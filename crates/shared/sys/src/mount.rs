//! hugetlbfs mounts, a detached tmpfs mount with huge=always, and device numbers.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::fstat;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen,
};

use crate::SysError;

/// `mount("none", target, "hugetlbfs", MS_NOSUID | MS_NODEV, options)`: mounts a file system backed by the pages of a
/// hugetlb pool. Needs CAP_SYS_ADMIN (`EPERM`). `ENOENT`: no such directory. `ENODEV`: the kernel lacks hugetlbfs.
/// `EINVAL`: invalid options. `mount(2)`.
pub fn mount_hugetlbfs(target: &Path, options: &str) -> Result<(), SysError> {
    let on = || format!("{} ({options})", target.display());
    let text = CString::new(options)
        .map_err(|_| SysError::new("mount", on(), std::io::ErrorKind::InvalidInput))?;
    // hugetlbfs needs neither set-user-id programs nor devices.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("none", target, "hugetlbfs", flags, text.as_c_str())
        .map_err(|errno| SysError::new("mount", on(), errno))
}

/// `umount2(target, UMOUNT_NOFOLLOW)`: unmounts `target`. `EBUSY`: a file of the file system is open or mapped.
/// `umount(2)`.
pub fn unmount(target: &Path) -> Result<(), SysError> {
    rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)
        .map_err(|errno| SysError::new("umount", target.display().to_string(), errno))
}

/// Creates a detached tmpfs mount with `huge=always`: its files use superpages if any are free, whatever the system
/// setting for shared memory. The mount has no size limit and no path. It ends with its last descriptor and last
/// mapping. Any user with the descriptor may create files in it. Linux 5.2 (`ENOSYS` before). Needs CAP_SYS_ADMIN
/// (`EPERM`). `EINVAL`: the kernel lacks THP. `fsopen(2)`, `fsconfig(2)`, `fsmount(2)`.
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

/// The tmpfs of [`superpage_files`].
#[derive(Debug)]
pub struct SuperpageFiles {
    /// Descriptor of the root directory.
    pub directory: OwnedFd,
    /// Device number of the root directory, from fstat(2).
    pub device: u64,
    /// Inode number of the root directory.
    pub inode: u64,
}

/// Splits a device number of stat(2) into its major and minor number: `major(3)`, `minor(3)`.
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}
