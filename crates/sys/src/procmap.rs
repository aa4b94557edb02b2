//! PROCMAP_QUERY: the mapping at an address, without reading all of them.

use std::fs::File;
use std::os::fd::AsRawFd;

use units::Pid;

use crate::SysError;

/// `_IOWR('f', 17, struct procmap_query)`, Linux 6.11 (`include/uapi/linux/fs.h`); in no crate that we use yet.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const WRITABLE: u64 = 2;
const SHARED: u64 = 8;

/// `struct procmap_query` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// What is known of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// It is private, of no file, and has no name as the heap and stacks have.
    pub is_plain: bool,
}

/// An open `/proc/PID/maps`.
#[derive(Debug)]
pub struct Procmap {
    file: File,
}

impl Procmap {
    /// Opens `/proc/PID/maps`. Needs PTRACE_MODE_READ (`EACCES`); `ENOENT` when it is gone.
    pub fn open(pid: Pid) -> Result<Self, SysError> {
        let path = format!("/proc/{pid}/maps");
        let file = File::open(&path).map_err(|error| SysError::new("open", path, error))?;
        Ok(Self { file })
    }

    /// `int ioctl(int maps_fd, PROCMAP_QUERY, struct procmap_query *)`: the mapping that holds an address. Linux 6.11
    /// (`ENOTTY` before). `ENOENT`: none does. `ENAMETOOLONG`: it has a long name. `ESRCH`: the process ended, or
    /// executed another program.
    pub fn at(&self, address: u64) -> Result<Found, SysError> {
        let mut name = [0u8; 16];
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_addr: address,
            vma_name_size: name.len() as u32,
            vma_name_addr: name.as_mut_ptr() as u64,
            ..Query::default()
        };
        // SAFETY: the argument is a live local of the size it states, and so is the name.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY, &mut query) };
        if done != 0 {
            return Err(SysError::last("ioctl(PROCMAP_QUERY)", format!("{address:#x}")));
        }
        let is_plain =
            query.inode == 0 && query.vma_flags & SHARED == 0 && query.vma_name_size == 0;
        let writable = query.vma_flags & WRITABLE != 0;
        Ok(Found { start: query.vma_start, end: query.vma_end, writable, is_plain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Backing, Mapping};

    #[test]
    fn the_mapping_at_an_address_is_found() {
        let memory = Mapping::anonymous(8 << 20, Backing::Pages).unwrap();
        let maps = Procmap::open(crate::param::own_pid()).unwrap();
        let at = memory.address() + (3 << 20);
        match maps.at(at) {
            Err(error) if error.errno() == libc::ENOTTY => {
                testkit::skipped!("this kernel has no PROCMAP_QUERY");
            }
            found => {
                let found = found.unwrap();
                assert!(found.is_plain && found.writable, "{found:?}");
                assert!(found.start <= memory.address());
                assert!(found.end >= memory.address() + (8 << 20));
                let local = 0u8;
                let stack = maps.at(&raw const local as u64);
                assert!(stack.is_ok(), "{stack:?}");
                let open: fn(Pid) -> Result<Procmap, SysError> = Procmap::open;
                let code = maps.at(open as usize as u64).map(|it| it.is_plain);
                assert_ne!(code.ok(), Some(true), "a file's");
                assert_eq!(maps.at(0x1000).unwrap_err().errno(), libc::ENOENT);
            }
        }
    }
}
