//! Reading another process's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use units::Pid;

use crate::SysError;

/// The memory of a process (`/proc/PID/mem`, proc(5)). After an exec the open file still refers to the old address
/// space.
///
/// `process_vm_readv(2)` is not used: it pins the pages that it reads, and so copies every page that the process still
/// shares after a fork (`gup_must_unshare`, mm/gup.c). If the hugetlb pool is empty, the kernel takes the page for the
/// copy from the child, which is killed at its next access. Reading this file pins nothing.
#[derive(Debug)]
pub struct Memory {
    file: File,
    pid: Pid,
}

impl Memory {
    /// Opens `/proc/PID/mem`. Needs PTRACE_MODE_ATTACH on the process (`EACCES`); `ENOENT`: no such process.
    pub fn open(pid: Pid) -> Result<Self, SysError> {
        let path = format!("/proc/{}/mem", pid.0);
        let file = File::open(&path).map_err(|error| SysError::new("open", path, error))?;
        Ok(Self { file, pid })
    }

    /// Copies memory at `address` into `buffer`; returns the number of bytes read, up to the first unmapped page (`EIO`
    /// if 0), or 0 if the process has exited.
    ///
    /// A read of an untouched page faults in the zero page, so read only pages that PAGEMAP_SCAN reports as present.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<usize, SysError> {
        self.file.read_at(buffer, address).map_err(|error| {
            SysError::new("pread", format!("memory of process {} at {address:#x}", self.pid), error)
        })
    }
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
        let own = Memory::open(crate::param::own_pid()).unwrap();
        assert_eq!(own.read(mapping.address(), &mut buffer).unwrap(), 64);
        assert_eq!(buffer, [5; 64]);
        assert_eq!(own.read(0, &mut buffer).unwrap_err().errno(), libc::EIO);
        assert_eq!(Memory::open(Pid(i32::MAX)).unwrap_err().errno(), libc::ENOENT);
    }

    /// Reading must not unshare pages, because a copy takes memory or a page from a hugetlb pool.
    #[test]
    fn what_a_fork_shares_stays_shared() {
        let mut mapping = Mapping::anonymous(1 << 16, Backing::Pages).unwrap();
        mapping.bytes_mut().fill(5);
        let page = crate::param::page_size().bytes();
        let is_exclusive = || {
            // Bit 56 of a pagemap entry: exclusively mapped (Documentation/admin-guide/mm/pagemap.rst).
            let mut entry = [0; 8];
            let file = File::open("/proc/self/pagemap").unwrap();
            file.read_exact_at(&mut entry, mapping.address() / page * 8).unwrap();
            u64::from_ne_bytes(entry) >> 56 & 1 == 1
        };
        assert!(is_exclusive());
        // SAFETY: the child makes no other call before it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: the call takes no arguments.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0);
        let before = is_exclusive();
        let mut buffer = [0; 64];
        let read =
            Memory::open(crate::param::own_pid()).unwrap().read(mapping.address(), &mut buffer);
        let after = is_exclusive();
        // SAFETY: the pid is that of this test's child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!((before, read.unwrap(), buffer, after), (false, 64, [5; 64], false));
    }
}
