//! Memory files (memfd).

use std::os::fd::OwnedFd;

use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fstat, major, memfd_create, minor,
};
use rustix::io::{Errno, pwrite};
use units::PageSize;

use crate::SysError;

/// `int memfd_create(const char *name, unsigned int flags)` with close-on-exec. Linux 3.17; with `hugetlb` 4.14
/// (`ENODEV`/`EINVAL` if there is no pool of that size; `mmap` reserves the pages).
pub fn create(name: &str, hugetlb: Option<PageSize>) -> Result<OwnedFd, SysError> {
    let size = match hugetlb {
        None => MemfdFlags::empty(),
        // `MFD_HUGE_*`: log2 of the size in bits 26..31, as in mmap.
        Some(size) => {
            MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(size.bytes().trailing_zeros() << 26)
        }
    };
    memfd_create(name, MemfdFlags::CLOEXEC | size)
        .map_err(|errno| SysError::new("memfd_create", name, errno))
}

/// Creates a memfd with these contents and a fixed size, close-on-exec, accessible only to its owner. The contents stay
/// writable: `F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL` (Linux 3.17).
pub fn sealed(name: &str, contents: &[u8]) -> Result<OwnedFd, SysError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Since Linux 6.3 vm.memfd_noexec may refuse executable memfds; older kernels reject the flag.
    let file = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|errno| match errno {
        Errno::INVAL => memfd_create(name, flags),
        other => Err(other),
    });
    let file = file.map_err(|errno| SysError::new("memfd_create", name, errno))?;
    fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(|errno| SysError::new("fchmod", name, errno))?;
    // A write of a few hundred bytes to a memfd is complete or fails.
    pwrite(&file, contents, 0).map_err(|errno| SysError::new("pwrite", name, errno))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)
        .map_err(|errno| SysError::new("fcntl(F_ADD_SEALS)", name, errno))?;
    Ok(file)
}

/// Major and minor number of the kernel's internal hugetlbfs mount for pages of `size`, which backs memfds, anonymous
/// mappings and SysV segments.
pub fn hugetlb_device(size: PageSize) -> Result<(u32, u32), SysError> {
    let file = create("superpage", Some(size))?;
    let stat = fstat(&file).map_err(|errno| SysError::new("fstat", "a memory file", errno))?;
    Ok((major(stat.st_dev), minor(stat.st_dev)))
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
