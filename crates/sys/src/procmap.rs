//! PROCMAP_QUERY: the mapping at an address, without reading all of them.

use std::fs::File;
use std::os::fd::AsRawFd;

use units::Pid;

use crate::SysError;

/// `_IOWR('f', 17, struct procmap_query)`, Linux 6.11 (`include/uapi/linux/fs.h`); in no crate that we use yet.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const WRITABLE: u64 = 2;
const SHARED: u64 = 8;
/// `[anon:` and a name of 80 bytes at most (`ANON_VMA_NAME_MAX_LEN` of mm/madvise.c), and what ends it.
const MAX_NAME: usize = 96;

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
    /// Whether it is shared.
    pub shared: bool,
    /// What it is made of.
    pub kind: Kind,
}

/// What a mapping is made of, as far as its inode and name say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No file: from mmap, also with a name that the program gave it.
    Anonymous,
    /// The brk heap.
    Heap,
    /// No file, and the kernel's name for it: a stack, the vdso.
    Special,
    /// A file.
    File,
}

impl Found {
    /// Whether it is private memory without a file.
    pub fn is_anonymous(&self) -> bool {
        !self.shared && matches!(self.kind, Kind::Anonymous | Kind::Heap)
    }
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
    /// (`ENOTTY` before). `ENOENT`: none does. `ESRCH`: the process ended, or executed another program.
    pub fn at(&self, address: u64) -> Result<Found, SysError> {
        // A file's name may be of any length.
        let found = self.query(address, &mut [])?;
        let mut name = [0u8; MAX_NAME];
        let is_shared = found.vma_flags & SHARED != 0;
        let (query, kind) = match self.query(address, &mut name) {
            _ if is_shared && found.inode != 0 => (found, Kind::File),
            // A file with a longer name.
            Err(_) if found.inode != 0 => (found, Kind::File),
            query => {
                let query = query?;
                let length = (query.vma_name_size as usize).min(MAX_NAME);
                let kind = match &name[..length.saturating_sub(1)] {
                    // A private mapping of it is memory without a file.
                    b"/dev/zero" => Kind::Anonymous,
                    _ if query.inode != 0 => Kind::File,
                    b"" => Kind::Anonymous,
                    b"[heap]" => Kind::Heap,
                    name if name.starts_with(b"[anon:") => Kind::Anonymous,
                    _ => Kind::Special,
                };
                (query, kind)
            }
        };
        Ok(Found {
            start: query.vma_start,
            end: query.vma_end,
            writable: query.vma_flags & WRITABLE != 0,
            shared: query.vma_flags & SHARED != 0,
            kind,
        })
    }

    fn query(&self, address: u64, name: &mut [u8]) -> Result<Query, SysError> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_addr: address,
            vma_name_size: name.len() as u32,
            vma_name_addr: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
            ..Query::default()
        };
        // SAFETY: the argument is a live local of the size it states, and so is the name.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY, &mut query) };
        match done {
            0 => Ok(query),
            _ => Err(SysError::last("ioctl(PROCMAP_QUERY)", format!("{address:#x}"))),
        }
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
                assert!(found.is_anonymous() && found.writable, "{found:?}");
                assert!(found.start <= memory.address());
                assert!(found.end >= memory.address() + (8 << 20));
                let open: fn(Pid) -> Result<Procmap, SysError> = Procmap::open;
                let code = maps.at(open as usize as u64).unwrap();
                assert_eq!((code.kind, code.is_anonymous()), (Kind::File, false));
                let text = std::fs::read_to_string("/proc/self/maps").unwrap();
                for (name, kind) in [("[heap]", Kind::Heap), ("[stack]", Kind::Special)] {
                    let line = text.lines().find(|line| line.ends_with(name)).unwrap();
                    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
                    assert_eq!(maps.at(start).unwrap().kind, kind, "{line}");
                }
                assert_eq!(maps.at(0x1000).unwrap_err().errno(), libc::ENOENT);
            }
        }
    }
}
