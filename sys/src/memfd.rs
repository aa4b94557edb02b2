//! Memory files.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use units::PageSize;

use crate::SysError;

/// `int memfd_create(const char *name, unsigned int flags)` with close-on-exec. Linux 3.17;
/// hugetlb 4.14 (`ENODEV`/`EINVAL` where the size has no pool; pages are reserved at `mmap`).
pub fn create(name: &str, hugetlb: Option<PageSize>) -> Result<OwnedFd, SysError> {
    let size = match hugetlb {
        None => MemfdFlags::empty(),
        // `MFD_HUGE_*`: log2 of the size in bits 26..31, as for mmap.
        Some(size) => {
            MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(size.bytes().trailing_zeros() << 26)
        }
    };
    memfd_create(name, MemfdFlags::CLOEXEC | size)
        .map_err(|errno| SysError::new("memfd_create", name, errno))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_memory_file_holds_what_is_written() {
        let mut file = std::fs::File::from(create("test", None).unwrap());
        file.write_all(b"superpage").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "superpage");
    }

    #[test]
    fn a_size_without_a_pool_is_an_error() {
        let error = create("test", Some(PageSize::new(1 << 40).unwrap())).unwrap_err();
        assert!(error.errno() != 0, "{error}");
    }
}
