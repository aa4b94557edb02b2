//! Reading another process's memory.

use units::Pid;

use crate::SysError;

/// `ssize_t process_vm_readv(pid_t, ...)`: copies memory of `pid` at `address` into `buffer` and
/// returns how many bytes were readable before the first unmapped page (`EFAULT` when none).
///
/// Linux 3.2. Needs PTRACE_MODE_ATTACH on the process (`EPERM`); `ESRCH` when it is gone.
/// Pages never touched are faulted in as the zero page, so only read what PAGEMAP_SCAN says is
/// present.
pub fn read(pid: Pid, address: u64, buffer: &mut [u8]) -> Result<usize, SysError> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` describes `buffer`, which is borrowed exclusively; the remote range is only
    // read, in the other process, and the kernel checks it.
    let count = unsafe { libc::process_vm_readv(pid.0, &local, 1, &remote, 1, 0) };
    usize::try_from(count)
        .map_err(|_| SysError::last("process_vm_readv", format!("{pid:?} at {address:#x}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Backing, Mapping};

    #[test]
    fn reads_own_memory_and_stops_at_its_end() {
        let mut mapping = Mapping::anonymous(1 << 16, Backing::Pages).unwrap();
        mapping.bytes_mut().fill(5);
        let mut buffer = [0; 64];
        let own = crate::param::own_pid();
        assert_eq!(read(own, mapping.address(), &mut buffer).unwrap(), 64);
        assert_eq!(buffer, [5; 64]);
        assert_eq!(read(own, 0, &mut buffer).unwrap_err().errno(), libc::EFAULT);
        assert_eq!(read(Pid(i32::MAX), 4096, &mut buffer).unwrap_err().errno(), libc::ESRCH);
    }
}
