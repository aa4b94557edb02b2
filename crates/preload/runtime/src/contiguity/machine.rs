//! State of the machine: free blocks, reclaimable memory, counters of stalls and fallbacks, and whether first touches
//! compact.
//!
//! # Safety
//! System calls on own descriptors and buffers. Buffers are small: this may run on a signal stack.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::blocks::{Blocks, Free, Lines};
use crate::once::OnceBool;
use crate::settings::{self, Advice, Pages};
use crate::text::{Text, first_number};
use crate::{files, filter, raw, sizes};

/// Passes each line of a file to `each`; `None`: the file cannot be read to its end.
fn each_line(path: &CStr, mut each: impl FnMut(&[u8])) -> Option<()> {
    raw::keeping_errno(|| {
        let fd = raw::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
        let mut lines = Lines::new();
        let mut piece = [0u8; 512];
        let complete = loop {
            // SAFETY: a descriptor and a buffer of our own.
            match unsafe { raw::call!(SYS_read, fd, piece.as_mut_ptr(), piece.len()) } {
                0 => break true,
                -1 if raw::errno() == libc::EINTR => {}
                -1 => break false,
                got => lines.feed(&piece[..got as usize], &mut each),
            }
        };
        raw::close(fd);
        complete.then_some(())
    })
}

/// Free memory available to this thread; `None`: /proc/buddyinfo cannot be read.
pub fn free(superpage: usize) -> Option<Free> {
    let mut blocks = Blocks::new(raw::base_page(), superpage);
    each_line(c"/proc/buddyinfo", |line| blocks.line(line))?;
    match blocks.nodes() {
        0 => None,
        1 => Some(blocks.usable(0, |_| true)),
        _ => {
            let allowed = allowed_nodes();
            let may_use = |node: usize| {
                allowed.get(node / 64).is_none_or(|word| word >> (node % 64) & 1 != 0)
            };
            Some(blocks.usable(local_node(), may_use))
        }
    }
}

/// Node of the CPU that this thread runs on.
fn local_node() -> usize {
    let (mut cpu, mut node) = (0u32, 0u32);
    let null = std::ptr::null_mut::<u8>();
    // SAFETY: the kernel writes two numbers.
    raw::keeping_errno(|| unsafe { raw::call!(SYS_getcpu, &raw mut cpu, &raw mut node, null) });
    node as usize
}

/// Nodes that this thread's cpuset and binding memory policy allow.
fn allowed_nodes() -> [u64; 16] {
    const MPOL_F_MEMS_ALLOWED: usize = 1 << 2;
    let ask = |flags: usize| {
        let (mut mode, mut mask) = (0i32, [0u64; 16]);
        // SAFETY: the kernel writes a number, and as many bits as the mask has.
        let asked = raw::keeping_errno(|| unsafe {
            raw::call!(SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), 1024, 0, flags)
        });
        (asked == 0).then_some((mode & 0xff, mask))
    };
    let mut nodes = ask(MPOL_F_MEMS_ALLOWED).map_or([u64::MAX; 16], |(_, mask)| mask);
    if let Some((raw::MPOL_BIND, bound)) = ask(0) {
        nodes.iter_mut().zip(bound).for_each(|(node, bound)| *node &= bound);
    }
    nodes
}

/// MemAvailable less MemFree, in bytes.
pub fn reclaimable() -> Option<usize> {
    let (mut free, mut available) = (None, None);
    each_line(c"/proc/meminfo", |line| {
        let value = |name: &[u8]| first_number(line.strip_prefix(name)?)?.checked_mul(1024);
        free = free.or(value(b"MemFree:"));
        available = available.or(value(b"MemAvailable:"));
    })?;
    Some(available?.saturating_sub(free?))
}

/// The machine's memory, in bytes.
pub fn total() -> usize {
    static TOTAL: AtomicUsize = AtomicUsize::new(0);
    let known = TOTAL.load(Relaxed);
    if known != 0 {
        return known;
    }
    let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel writes the structure if it returns 0.
    let total = raw::keeping_errno(|| unsafe {
        let asked = raw::call!(SYS_sysinfo, info.as_mut_ptr());
        (asked == 0).then(|| info.assume_init())
    });
    let total =
        total.map_or(0, |info| (info.totalram as usize).saturating_mul(info.mem_unit as usize));
    TOTAL.store(total.max(1), Relaxed);
    total
}

/// The machine's counters since boot.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    /// Direct compactions.
    pub stalls: usize,
    /// First touches that fell back to base pages.
    pub fallbacks: usize,
}

/// Reads the counters: about 30 microseconds, more with many CPUs.
pub fn counters() -> Option<Counters> {
    let mut counters = Counters::default();
    let mut found = 0;
    each_line(c"/proc/vmstat", |line| {
        let value = |name: &[u8]| first_number(line.strip_prefix(name)?.strip_prefix(b" ")?);
        if let Some(stalls) = value(b"compact_stall") {
            counters.stalls = stalls;
            found += 1;
        } else if let Some(fallbacks) = value(b"thp_fault_fallback") {
            counters.fallbacks = fallbacks;
            found += 1;
        }
    })?;
    (found == 2).then_some(counters)
}

/// Whether first touches of advised memory that compact must be avoided; `false` if compaction is left to kcompactd, or
/// all memory is to be advised (docs/decisions/contiguity.md#8).
pub fn compacts_at_touches() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| {
        if settings::get().advice == Advice::All {
            return false;
        }
        let path = c"/sys/kernel/mm/transparent_hugepage/defrag";
        files::file_has(path, &[b"[defer]", b"[never]"]) != Some(true)
    })
}

/// Size of the blocks that first touches of advised memory request.
pub fn superpage() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    let known = SIZE.load(Relaxed);
    if known != 0 {
        return known;
    }
    let size = match settings::get().pages {
        Pages::Thp(_) => sizes::superpage(),
        // No file is opened; a later call may give a better answer.
        _ if filter::may_be_in_place() => return sizes::superpage(),
        _ => sizes::pmd_size().unwrap_or_else(sizes::superpage),
    };
    SIZE.store(size, Relaxed);
    size
}

/// The PMD size, if a smaller size was requested and PMD-sized THP are enabled too.
pub fn larger_thp() -> Option<usize> {
    const NONE: usize = 1;
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    if SIZE.load(Relaxed) == 0 && !filter::may_be_in_place() {
        let larger = match settings::get().pages {
            Pages::Thp(size) if size != 0 => sizes::pmd_size().filter(|pmd| size < *pmd),
            _ => None,
        };
        let is_on = |pmd: &usize| !is_never(*pmd);
        SIZE.store(larger.filter(is_on).unwrap_or(NONE), Relaxed);
    }
    Some(SIZE.load(Relaxed)).filter(|size| *size > NONE)
}

/// The largest size below `superpage` that advised memory gets (mTHP). Reads the setting each time, because `superpage
/// run` enables sizes.
pub fn smaller_thp(superpage: usize) -> Option<usize> {
    let smallest = 4 * raw::base_page();
    let sizes = std::iter::successors(Some(superpage / 2), |size| Some(size / 2));
    let is_on = |size: &usize| is_set(*size, &[b"[madvise]", b"[always]", b"[inherit]"]);
    sizes.take_while(|size| *size >= smallest).find(is_on)
}

/// Whether THP of that size are disabled, while smaller ones may be enabled (Linux 6.8 and later).
fn is_never(size: usize) -> bool {
    is_set(size, &[b"[never]"])
}

/// Whether the setting of one size is one of `values`.
fn is_set(size: usize, values: &[&[u8]]) -> bool {
    let kib = crate::message::Decimal::new(size as u64 >> 10);
    let path: [&[u8]; 3] =
        [b"/sys/kernel/mm/transparent_hugepage/hugepages-", kib.bytes(), b"kB/enabled"];
    Text::<96>::join(&path).and_then(|path| files::file_has(path.c_str(), values)) == Some(true)
}
