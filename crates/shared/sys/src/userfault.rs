//! userfaultfd: ending the registration of memory that its own process registered.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::SysError;

/// `_IOR(0xAA, 0x01, struct uffdio_range)` of `include/uapi/linux/userfaultfd.h`.
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;

/// `int ioctl(int uffd, UFFDIO_UNREGISTER, struct uffdio_range *)`: from now on faults of `start..end` in the memory of
/// the process that made the descriptor are the kernel's again, and who waits for one goes on. Linux 4.3. `EINVAL`: it is
/// registered with another descriptor, or nothing is mapped there; `ENOMEM`: the process has too many mappings to divide one;
/// `ESRCH`: it has ended. `ioctl_userfaultfd(2)`.
pub fn unregister(descriptor: &OwnedFd, start: u64, end: u64) -> Result<(), SysError> {
    let mut range = [start, end - start];
    // SAFETY: the kernel reads two words, which live until after the call. The contents of no memory change.
    let done =
        unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_UNREGISTER, range.as_mut_ptr()) };
    match done {
        0 => Ok(()),
        _ => Err(SysError::last("ioctl(UFFDIO_UNREGISTER)", format!("{start:#x}"))),
    }
}
