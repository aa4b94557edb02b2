//! `HUGETLB_SHARE=1`, as in libhugetlbfs: all processes of a user that run a program share one copy of its text and
//! constants on pool pages. The copy is a file in a hugetlbfs mount, and outlives the processes.
//!
//! The file lies in `HUGETLB_SHARE_PATH`, or in `elflink-uid-N` of the mount. It is created without a name, filled, and
//! only then linked, so that no process sees a partial file. Its name identifies the program (device, inode,
//! modification time), so a replaced program gets another file. A mapped file is first compared with the program, and
//! not used if the contents differ.
//!
//! # Safety
//! As in the parent module, the process has one thread. The file is opened read-only, so no process that maps it can
//! write it; only its creator can, who is this user or root.

use super::image::Extent;
use super::relocate;
use crate::api::hugetlbfs_mount;
use crate::text::Text;
use crate::{raw, source};

type Path = Text<4352>;

/// Maps the shared copy of `[first, last)` over it; `false` if there is none, and none can be created.
pub fn place(
    extent: &Extent,
    (first, last): (usize, usize),
    page: usize,
    directory: Option<&'static [u8]>,
) -> bool {
    if crate::limits::may_fail_faults(page) {
        // A touch could fail; a private copy is populated at once.
        return false;
    }
    let Some(path) = path_of(extent, first, last, page, directory) else { return false };
    let length = last - first;
    raw::keeping_errno(|| {
        map(&path, length)
            .or_else(|| {
                make(&path, extent, (first, last), page)?;
                map(&path, length)
            })
            .is_some_and(|fresh| {
                let same = relocate::holds(extent, (first, last), fresh);
                if !same {
                    // SAFETY: mapped just now.
                    let _ = unsafe { raw::munmap(fresh, length) };
                }
                same && source::replace(fresh, length, extent.protection, first).is_ok()
            })
    })
}

/// Returns `DIRECTORY/NAME_DEVICE-INODE-SECONDS.NANOSECONDS_START-LENGTH`.
fn path_of(
    extent: &Extent,
    first: usize,
    last: usize,
    page: usize,
    directory: Option<&'static [u8]>,
) -> Option<Path> {
    let program = raw::stat(c"/proc/self/exe", 0)?;
    let mut link = [0u8; 4096];
    let link = raw::read_link(libc::AT_FDCWD, c"/proc/self/exe", &mut link)?;
    let name = link.rsplit(|byte| *byte == b'/').next()?;
    let mut path = Path::new();
    match directory {
        Some(directory) => path.push(directory),
        None => {
            path.push(hugetlbfs_mount(page)?.to_bytes());
            let user = raw::effective_user();
            path.push(b"/elflink-uid-");
            path.push(crate::message::Decimal::new(user.into()).bytes());
            // SAFETY: `path` is a C string that lives through the call.
            unsafe { raw::call!(SYS_mkdirat, libc::AT_FDCWD, path.as_c(), 0o700) };
        }
    }
    let place = raw::stat(path.c_str(), libc::AT_SYMLINK_NOFOLLOW)?;
    if place.st_mode & libc::S_IFMT != libc::S_IFDIR || directory.is_none() && !is_safe(&place) {
        return None;
    }
    path.push(b"/");
    // A name may have 255 bytes, and the numbers need up to 120 of them.
    path.push(&name[..name.len().min(128)]);
    let (device, inode, seconds) = (program.st_dev, program.st_ino, program.st_mtime);
    let (nanoseconds, start) = (program.st_mtime_nsec, extent.start - first);
    let numbers = Text::<160>::from_args(format_args!(
        "_{device:x}-{inode:x}-{seconds:x}.{nanoseconds:x}_{}-{start:x}-{:x}",
        extent.segment,
        last - first
    ));
    path.push(numbers.bytes());
    (!path.is_full()).then_some(path)
}

/// Whether only this user and root can have created files there.
fn is_safe(file: &libc::stat) -> bool {
    let user = raw::effective_user();
    (file.st_uid == user || file.st_uid == 0) && file.st_mode & 0o022 == 0
}

/// Maps the file read-only; `None` if it is missing or not trusted.
fn map(path: &Path, length: usize) -> Option<usize> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let fd = raw::open(path.c_str(), flags, 0)?;
    let is_it = |file: &libc::stat| {
        let is_file = file.st_mode & libc::S_IFMT == libc::S_IFREG;
        is_file && file.st_size as usize == length && is_safe(file)
    };
    // SAFETY: a descriptor of our own and a fresh mapping.
    let map = || unsafe { raw::mmap(0, length, libc::PROT_READ, libc::MAP_SHARED, fd, 0).ok() };
    let mapped = raw::fstat(fd).filter(is_it).and_then(|_| map());
    raw::close(fd);
    mapped
}

/// Creates the file, unless another process has created it meanwhile.
fn make(path: &Path, extent: &Extent, range: (usize, usize), page: usize) -> Option<()> {
    let length = range.1 - range.0;
    let end = path.bytes().iter().rposition(|byte| *byte == b'/')?;
    let mut directory = Path::new();
    directory.push(&path.bytes()[..end]);
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    let fd = raw::open(directory.c_str(), flags, 0o600)?;
    let named = Text::<64>::from_args(format_args!("/proc/self/fd/{fd}"));
    // SAFETY: a descriptor of our own, and memory that is mapped and given back here.
    let made = unsafe {
        let filled = raw::call!(SYS_ftruncate, fd, length) == 0
            && raw::mmap(0, length, raw::READ_WRITE, libc::MAP_SHARED, fd, 0).is_ok_and(|fresh| {
                relocate::copy(extent, range.0, range.1, page, fresh);
                raw::munmap(fresh, length).is_ok()
            });
        let (from, to) = (named.as_c(), path.as_c());
        let at = libc::AT_FDCWD;
        // If another process has linked its file meanwhile, that file is used.
        filled
            && (raw::call!(SYS_linkat, at, from, at, to, libc::AT_SYMLINK_FOLLOW) == 0
                || raw::errno() == libc::EEXIST)
    };
    raw::close(fd);
    made.then_some(())
}
