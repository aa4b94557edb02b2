//! PROCMAP_QUERY: the VMA at one address, without reading all of `/proc/PID/maps`.

use std::fs::File;
use std::os::fd::AsRawFd;

use units::Pid;

use crate::SysError;

/// `_IOWR('f', 17, struct procmap_query)`, Linux 6.11 (`include/uapi/linux/fs.h`); none of our crates has it yet.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
/// PROCMAP_QUERY_COVERING_OR_NEXT_VMA of the same file.
const OR_NEXT: u64 = 0x10;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
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

/// A VMA, with the fields of a line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// First address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// Whether the VMA is readable, writable, executable or shared.
    pub readable: bool,
    /// See `readable`.
    pub writable: bool,
    /// See `readable`.
    pub executable: bool,
    /// See `readable`.
    pub shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device, and the file's inode number; all 0 without a
    /// file.
    pub device: (u32, u32),
    /// See `device`.
    pub inode: u64,
    /// Bytes of its pages: the base page size, or the page size of a hugetlb pool.
    pub page_size: u64,
    /// The file's path, or the name that the kernel or the program gave the VMA.
    pub name: String,
}

/// An open `/proc/PID/maps`.
#[derive(Debug)]
pub struct Procmap {
    file: File,
}

impl Procmap {
    /// Opens `/proc/PID/maps`. Needs PTRACE_MODE_READ (`EACCES`); `ENOENT`: no such process.
    pub fn open(pid: Pid) -> Result<Self, SysError> {
        let path = format!("/proc/{pid}/maps");
        let file = File::open(&path).map_err(|error| SysError::new("open", path, error))?;
        Ok(Self { file })
    }

    /// `int ioctl(int maps_fd, PROCMAP_QUERY, struct procmap_query *)`: returns the VMA that contains `address`. Linux
    /// 6.11 (`ENOTTY` before). `ENOENT`: no VMA contains `address`. `ESRCH`: the process exited or called exec.
    pub fn at(&self, address: u64) -> Result<Found, SysError> {
        self.query(address, 0)
    }

    /// The VMA that contains `address`, else the first one above; `None` if there is none. Linux 6.11 (`ENOTTY` before).
    /// The kernel's gate VMA (`[vsyscall]`) is not found. `ESRCH`: the process exited or called exec.
    pub fn at_or_above(&self, address: u64) -> Result<Option<Found>, SysError> {
        match self.query(address, OR_NEXT) {
            Err(error) if error.errno() == libc::ENOENT => Ok(None),
            found => found.map(Some),
        }
    }

    fn query(&self, address: u64, flags: u64) -> Result<Found, SysError> {
        let mut name = [0u8; libc::PATH_MAX as usize];
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: flags,
            query_addr: address,
            vma_name_size: name.len() as u32,
            vma_name_addr: name.as_mut_ptr() as u64,
            ..Query::default()
        };
        // SAFETY: the argument is a live local of the size it states, and so is the name buffer.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY, &mut query) };
        if done != 0 {
            return Err(SysError::last("ioctl(PROCMAP_QUERY)", format!("{address:#x}")));
        }
        let is = |flag| query.vma_flags & flag != 0;
        // The length includes the terminating null byte.
        let name = &name[..(query.vma_name_size as usize).saturating_sub(1)];
        Ok(Found {
            start: query.vma_start,
            end: query.vma_end,
            readable: is(READABLE),
            writable: is(WRITABLE),
            executable: is(EXECUTABLE),
            shared: is(SHARED),
            offset: query.vma_offset,
            device: (query.dev_major, query.dev_minor),
            inode: query.inode,
            page_size: query.vma_page_size,
            name: String::from_utf8_lossy(name).into_owned(),
        })
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
                assert!(found.writable && !found.shared, "{found:?}");
                assert_eq!((found.inode, found.name.as_str()), (0, ""));
                assert!(found.start <= memory.address());
                assert!(found.end >= memory.address() + (8 << 20));
                assert_eq!(found.page_size, crate::param::page_size().bytes());
                assert_eq!(maps.at_or_above(at).unwrap(), Some(found.clone()));
                // Nothing is mapped at address 0 (vm.mmap_min_addr).
                let lowest = maps.at_or_above(0).unwrap().unwrap();
                assert!(lowest.start > 0 && lowest.start <= found.start);
                assert_eq!(maps.at_or_above(u64::MAX - 0xfff).unwrap(), None);
                let open: fn(Pid) -> Result<Procmap, SysError> = Procmap::open;
                let code = maps.at(open as usize as u64).unwrap();
                let own = std::env::current_exe().unwrap();
                assert!(code.executable && !code.writable && code.inode != 0, "{code:?}");
                assert_eq!(code.name, own.to_str().unwrap());
                let text = std::fs::read_to_string("/proc/self/maps").unwrap();
                for name in ["[heap]", "[stack]"] {
                    let line = text.lines().find(|line| line.ends_with(name)).unwrap();
                    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
                    assert_eq!(maps.at(start).unwrap().name, name, "{line}");
                }
                assert_eq!(maps.at(0x1000).unwrap_err().errno(), libc::ENOENT);
            }
        }
    }
}
