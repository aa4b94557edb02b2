//! userfaultfd: unregistering memory that another process registered.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::SysError;

/// `_IOR(0xAA, 0x01, struct uffdio_range)` of `include/uapi/linux/userfaultfd.h`.
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;

/// `int ioctl(int uffd, UFFDIO_UNREGISTER, struct uffdio_range *)`: unregisters `start..end` of the process that
/// created the descriptor. The kernel handles page faults there again, and waiting faults continue. Linux 4.3.
/// `EINVAL`: the range is registered with another descriptor, or not mapped; `ENOMEM`: too many VMAs to split one;
/// `ESRCH`: the process has exited. `ioctl_userfaultfd(2)`.
pub fn unregister(descriptor: &OwnedFd, start: u64, end: u64) -> Result<(), SysError> {
    let mut range = [start, end - start];
    // SAFETY: the kernel reads two words, which outlive the call. No memory contents change.
    let done =
        unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_UNREGISTER, range.as_mut_ptr()) };
    match done {
        0 => Ok(()),
        _ => Err(SysError::last("ioctl(UFFDIO_UNREGISTER)", format!("{start:#x}"))),
    }
}
