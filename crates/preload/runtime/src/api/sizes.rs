//! Page sizes: the kernel's default, the other pools, and the choice of `HUGETLB_DEFAULT_PAGE_SIZE`.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::environment::{page_size_as_written, settings};
use super::files;
use super::mounts::{self, Found};
use super::report::{Level, report};
use crate::raw::{self, Errno};
use crate::text::{self, Text};

/// With the slash: programs that interpose `opendir` compare the whole path.
const POOLS: &CStr = c"/sys/kernel/mm/hugepages/";

/// The kernel's default in bytes; 0 until it was read.
static DEFAULT: AtomicUsize = AtomicUsize::new(0);

/// The size that `MAP_HUGETLB` and `SHM_HUGETLB` mean. `None`: /proc/meminfo does not name one (a kernel without
/// hugetlb), or there is no /proc.
pub fn kernel_default() -> Option<usize> {
    let known = DEFAULT.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let kib = files::keyed_number(c"/proc/meminfo", b"Hugepagesize:")?;
    let size = usize::try_from(kib.checked_mul(1024)?).ok()?;
    let size = Some(size).filter(|size| size.is_power_of_two())?;
    DEFAULT.store(size, Ordering::Relaxed);
    Some(size)
}

/// Makes the next call read the default again: for programs that change what /proc says.
pub fn forget_default() {
    DEFAULT.store(0, Ordering::Relaxed);
}

/// Default page size of this program: the environment's choice, or the kernel's default. Decided once.
///
/// If the size is invalid, or has neither a mount nor a free page in its pool, a warning is printed and the kernel's
/// default used, as libhugetlbfs did for sizes without a mount.
pub fn chosen() -> Option<usize> {
    let default = kernel_default()?;
    let wanted = settings().page_size.bytes();
    if wanted.is_empty() {
        return Some(default);
    }
    let named = text::page_size(wanted);
    if named == Some(default) {
        return named;
    }
    /// 0 until decided.
    static CHOSEN: AtomicUsize = AtomicUsize::new(0);
    let known = CHOSEN.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let is_to_be_had = |size: &usize| {
        matches!(mounts::find(*size), Found::Path(_)) || available(*size).is_some_and(|n| n > 0)
    };
    let size = named.filter(is_to_be_had).unwrap_or(default);
    let is_first = CHOSEN.compare_exchange(0, size, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first && Some(size) != named {
        let why = if named.is_some_and(has_pool) {
            "that pool is empty and has no mount"
        } else {
            "no such superpage size here"
        };
        let (wanted, kib) = (page_size_as_written(), default / 1024);
        report(
            Level::Warning,
            format_args!("HUGETLB_DEFAULT_PAGE_SIZE={wanted}: {why}; using {kib} kB"),
        );
    }
    Some(CHOSEN.load(Ordering::Relaxed))
}

/// Whether the machine has a pool of this page size, even an empty one.
pub fn has_pool(size: usize) -> bool {
    let path =
        Text::<96>::from_args(format_args!("/sys/kernel/mm/hugepages/hugepages-{}kB", size / 1024));
    // SAFETY: a text that ends with a zero byte.
    raw::keeping_errno(|| unsafe { libc::access(path.as_c(), libc::F_OK) == 0 })
}

/// Number of superpages of a pool that can still be reserved. `None` if that cannot be read.
pub fn available(size: usize) -> Option<u64> {
    let counter = |name: &str| {
        let kib = size / 1024;
        let path = format_args!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/{name}");
        files::number(Text::<128>::from_args(path).as_c())
    };
    let free = counter("free_hugepages")?.saturating_sub(counter("resv_hugepages")?);
    let more = counter("nr_overcommit_hugepages")?.saturating_sub(counter("surplus_hugepages")?);
    Some(free + more)
}

/// Calls `see` with the kernel's default, then with the sizes of the other pools in directory order. `Err`: the
/// directory could not be read; a missing directory is not an error.
pub fn for_each(mut see: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Errno> {
    let Some(default) = kernel_default() else { return Ok(()) };
    if see(default).is_break() {
        return Ok(());
    }
    let before = raw::errno();
    // SAFETY: the pointer is to a C string.
    let directory = unsafe { libc::opendir(POOLS.as_ptr()) };
    if directory.is_null() {
        let errno = raw::errno();
        raw::set_errno(before);
        return if errno == libc::ENOENT { Ok(()) } else { Err(errno) };
    }
    loop {
        // SAFETY: the open directory is ours until the call of closedir below.
        let entry = unsafe { libc::readdir(directory) };
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry's name is a C string, valid until the next readdir.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes();
        let Some(size) = name.strip_prefix(b"hugepages-").and_then(size_in_name) else { continue };
        if size != default && see(size).is_break() {
            break;
        }
    }
    // SAFETY: ours, and not used after this.
    unsafe { libc::closedir(directory) };
    raw::set_errno(before);
    Ok(())
}

/// Parses `2048kB`, as in the kernel's names of pools.
fn size_in_name(name: &[u8]) -> Option<usize> {
    let (kib, rest) = text::number(name)?;
    let size = usize::try_from(kib.checked_mul(1024)?).ok()?;
    (rest == b"kB" && size > 0).then_some(size)
}
