//! How much of a range lies on superpages, according to the kernel's page tables.

use std::ffi::c_int;

use super::files::File;
use crate::pagemap::{self, PAGE_IS_HUGE, PAGE_IS_PRESENT, Region};
use crate::raw::{self, Errno};
use crate::text;

/// Bytes scanned by one call, which holds the mmap lock: 64 MiB of base pages take about 0.3 ms.
const STRIDE: u64 = 64 << 20;

/// Bytes of `start..start+length` on superpages now. Untouched memory does not count.
pub fn superpage_bytes(start: usize, length: usize) -> Result<usize, Errno> {
    let end = start.checked_add(length).ok_or(libc::EINVAL)?;
    match scan(start as u64, end as u64) {
        // Linux before 6.7.
        Err(libc::ENOTTY) => from_smaps(start as u64, end as u64),
        other => other,
    }
    .map(|bytes| bytes as usize)
}

fn scan(start: u64, end: u64) -> Result<u64, Errno> {
    // SAFETY: the pointer is to a C string.
    let path = c"/proc/self/pagemap".as_ptr();
    // SAFETY: the pointer is to a C string.
    let fd = unsafe { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(raw::errno());
    }
    let bytes = scan_with(fd, start, end);
    // SAFETY: the descriptor is ours.
    raw::keeping_errno(|| unsafe { libc::close(fd) });
    bytes
}

fn scan_with(fd: c_int, start: u64, end: u64) -> Result<u64, Errno> {
    let page = raw::base_page() as u64;
    let mut regions = [Region::default(); 128];
    let mut from = start & !(page - 1);
    let mut bytes = 0;
    while from < end {
        let to = end.next_multiple_of(page).min(from + STRIDE);
        let wanted = PAGE_IS_HUGE | PAGE_IS_PRESENT;
        let (found, walked_to) = pagemap::scan(fd, from, to, wanted, &mut regions)?;
        bytes +=
            regions[..found].iter().map(|one| overlap(one.start, one.end, start, end)).sum::<u64>();
        if walked_to <= from {
            break;
        }
        from = walked_to;
    }
    Ok(bytes)
}

/// Adds up the superpages of each VMA in smaps. Fails with `ENOTSUP` if a VMA with superpages extends beyond the range.
fn from_smaps(start: u64, end: u64) -> Result<u64, Errno> {
    let mut file = File::open(c"/proc/self/smaps").ok_or_else(raw::errno)?;
    let mut line = [0; 128];
    let (mut bytes, mut here, mut whole) = (0, 0, false);
    while let Some(line) = file.line(&mut line) {
        if let Some((first, last)) = addresses(line) {
            here = overlap(first, last, start, end);
            whole = here == last - first;
        } else if here > 0
            && let Some(on_superpages) = superpage_line(line)
        {
            match on_superpages {
                0 => {}
                some if whole => bytes += some,
                _ => return Err(libc::ENOTSUP),
            }
        }
    }
    if file.is_broken { Err(libc::EIO) } else { Ok(bytes) }
}

/// Parses `start-end` from the first line of a VMA.
fn addresses(line: &[u8]) -> Option<(u64, u64)> {
    let (first, rest) = text::hexadecimal(line)?;
    let (last, rest) = text::hexadecimal(rest.strip_prefix(b"-")?)?;
    rest.starts_with(b" ").then_some((first, last))
}

fn superpage_line(line: &[u8]) -> Option<u64> {
    let keys: [&[u8]; 5] = [
        b"AnonHugePages:",
        b"ShmemPmdMapped:",
        b"FilePmdMapped:",
        b"Shared_Hugetlb:",
        b"Private_Hugetlb:",
    ];
    let value = keys.into_iter().find_map(|key| line.strip_prefix(key))?;
    text::number(value.trim_ascii_start()).map(|(kib, _)| kib.saturating_mul(1024))
}

fn overlap(start: u64, end: u64, from: u64, to: u64) -> u64 {
    end.min(to).saturating_sub(start.max(from))
}
