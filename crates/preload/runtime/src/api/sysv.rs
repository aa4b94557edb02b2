//! `HUGETLB_SHM=yes`: System V segments on superpages.
//!
//! The kernel reserves a segment's superpages at shmget, so attaching and touching it cannot fail; where a reservation
//! does not suffice (`limits`), the segment is populated before its id is returned. If the pool is too small, the
//! segment gets base pages and a warning is printed, as in libhugetlbfs.

use std::ffi::c_int;

use libc::{key_t, size_t};

use super::report::{ErrnoText, Level, report};
use super::{environment, kernel, sizes};
use crate::limits;
use crate::raw::{self, Errno};

/// shmget on superpages, if `HUGETLB_SHM` asks for it.
pub fn shmget(key: key_t, size: size_t, flags: c_int) -> Option<c_int> {
    if !environment::settings().shm || flags & libc::SHM_HUGETLB != 0 {
        return None;
    }
    // SHM_HUGETLB without a size means the kernel's default.
    let page = sizes::kernel_default();
    let Some((page, rounded)) = page.and_then(|page| Some((page, kernel::round_up(size, page)?)))
    else {
        report(Level::Warning, format_args!("HUGETLB_SHM: this kernel has no superpages"));
        return None;
    };
    let made = make(key, rounded, flags | libc::SHM_HUGETLB)
        .and_then(|id| fill_if_needed(id, rounded, page).map(|()| id));
    let errno = match made {
        Ok(id) => return Some(id),
        // Errors of the key, not of the pages.
        Err(libc::EEXIST | libc::ENOENT | libc::EACCES) => return None,
        Err(errno) => ErrnoText(errno),
    };
    report(
        Level::Warning,
        format_args!("HUGETLB_SHM: no superpages for a segment of {rounded} bytes: {errno}"),
    );
    match make(key, size, flags) {
        Ok(id) => {
            report(Level::Warning, format_args!("HUGETLB_SHM: small pages instead"));
            Some(id)
        }
        Err(errno) => {
            raw::set_errno(errno);
            Some(-1)
        }
    }
}

/// `shmget(2)`; errno is left alone.
fn make(key: key_t, size: size_t, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: all arguments are numbers.
    raw::keeping_errno(|| match unsafe { raw::call!(SYS_shmget, key, size, flags) } {
        -1 => Err(raw::errno()),
        id => Ok(id as c_int),
    })
}

/// Populates a new segment if faults on reserved pages may fail; removes the segment if that fails.
pub fn fill_if_needed(id: c_int, size: usize, page: usize) -> Result<(), Errno> {
    if !limits::may_fail_faults(page) || !is_new(id) {
        return Ok(());
    }
    raw::keeping_errno(|| {
        // SAFETY: the kernel chooses a free address. By system call, because this library interposes shmat.
        let start = unsafe { raw::call!(SYS_shmat, id, 0usize, 0) };
        if start == -1 {
            return Ok(()); // the caller's own shmat will report the error
        }
        // SAFETY: a new segment that only this process has attached; populating leaves it zero.
        let filled = unsafe { raw::populate(start as usize, size) };
        // SAFETY: attached above, and used by no other code.
        unsafe { raw::call!(SYS_shmdt, start) };
        match filled {
            // Linux before 5.14 cannot populate the segment this way.
            Ok(()) | Err(libc::EINVAL) => Ok(()),
            Err(_) => {
                // SAFETY: new, ours, and no other process knows its id yet.
                unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
                Err(libc::ENOMEM)
            }
        }
    })
}

/// Whether this process has just created the segment, which shmget does not report.
fn is_new(id: c_int) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    raw::keeping_errno(|| {
        // SAFETY: a live structure to fill in; all integers, so valid when zero.
        let status = unsafe {
            if libc::shmctl(id, libc::IPC_STAT, status.as_mut_ptr()) != 0 {
                return false;
            }
            status.assume_init()
        };
        status.shm_cpid == raw::pid() && status.shm_nattch == 0 && status.shm_lpid == 0
    })
}
