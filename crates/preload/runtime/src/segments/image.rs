//! Addresses of the segments of the program and its libraries: as intended, from the program headers, and as mapped,
//! from /proc/self/maps.
//!
//! # Safety
//! `dl_iterate_phdr` passes the loader's own headers, which live as long as the images; images loaded at start-up are
//! never unloaded.

use std::ffi::{CStr, c_int, c_void};

use super::Fit;
use crate::{files, loaded, maps, raw, sizes, text};

/// Request for superpages, set by `hugeedit` (libhugetlbfs, elflink.c).
const PF_LINUX_HUGETLB: u32 = 0x10_0000;
const PF_W: u32 = 2;
const PF_X: u32 = 1;

/// A loaded segment.
#[derive(Clone, Copy)]
pub struct Segment {
    /// First address, rounded down to the base page.
    pub start: usize,
    /// Address after the last, rounded up likewise.
    pub end: usize,
    /// Whether it is data, rather than text or constants.
    pub is_written: bool,
    /// Whether its header requests superpages.
    pub is_marked: bool,
    /// The protection in its header.
    pub protection: c_int,
}

impl Segment {
    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.end - self.start
    }

    /// Whether the segment may fill at least half of a superpage.
    pub fn may_fill(&self, page: usize) -> bool {
        self.length() >= page / 2
    }
}

/// Up to `N` values; further ones are dropped: segments beyond the limit stay on base pages.
pub struct List<T, const N: usize> {
    list: [Option<T>; N],
    used: usize,
}

/// Segments to put on superpages.
pub type Segments = List<Segment, 32>;
type Extents = List<Extent, 64>;

impl<T: Copy, const N: usize> List<T, N> {
    /// An empty list.
    pub fn new() -> Self {
        Self { list: [None; N], used: 0 }
    }

    /// Adds a value, if the list is not full.
    pub fn push(&mut self, value: T) {
        if let Some(place) = self.list.get_mut(self.used) {
            *place = Some(value);
            self.used += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().flatten()
    }

    fn last(&mut self) -> Option<&mut T> {
        self.list[..self.used].last_mut()?.as_mut()
    }
}

/// Calls `tell` with each segment except this library's, and whether it is the program's own.
pub fn each_segment(mut tell: impl FnMut(Segment, bool)) {
    struct Walk<'a> {
        tell: &'a mut dyn FnMut(Segment, bool),
        is_program: bool,
    }
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader's structure, and the walk that is passed below.
        let (info, walk) = unsafe { (&*info, &mut *data.cast::<Walk>()) };
        let is_program = std::mem::take(&mut walk.is_program);
        // SAFETY: the loader's headers, as it counts them.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let base = raw::base_page();
        let here = visit as *const () as usize;
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let segments = loaded.map(|header| {
            let from = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let to = from.saturating_add(header.p_memsz as usize);
            let bit = |flag: u32, bit| if header.p_flags & flag != 0 { bit } else { 0 };
            Segment {
                start: from - from % base,
                end: to.next_multiple_of(base),
                is_written: header.p_flags & PF_W != 0,
                is_marked: header.p_flags & PF_LINUX_HUGETLB != 0,
                protection: bit(4, libc::PROT_READ)
                    | bit(PF_W, libc::PROT_WRITE)
                    | bit(PF_X, libc::PROT_EXEC),
            }
        });
        if segments.clone().all(|segment| !(segment.start..segment.end).contains(&here)) {
            segments.for_each(|segment| (walk.tell)(segment, is_program));
        }
        0
    }
    let mut walk = Walk { tell: &mut tell, is_program: true };
    // SAFETY: the callback gets the walk, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
}

/// Whether V8 is in the program or its libraries. Searches for an exported function of V8's interface (Node.js and
/// Electron), and in case that is hidden, for the name of an option in the program's file.
pub fn has_v8() -> bool {
    loaded::objects().any(|object| object.exports(b"_ZN2v82V810GetVersionEv"))
        || has_text(c"/proc/self/exe", b"interpreted_frames_native_stack")
}

/// Whether a file contains `part`, or cannot be read.
fn has_text(path: &CStr, part: &[u8]) -> bool {
    const CHUNK: usize = 64 << 10;
    let Some(fd) = raw::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) else { return true };
    let mut buffer = [0u8; CHUNK];
    let mut offset = 0;
    let found = loop {
        // SAFETY: a buffer and its length.
        let got = unsafe { raw::call!(SYS_pread64, fd, buffer.as_mut_ptr(), CHUNK, offset) };
        let Ok(got) = usize::try_from(got) else { break true };
        // Searches for the first byte: comparing at each byte of a large program would take long.
        let text = &buffer[..got];
        let mut starts = text.iter().enumerate().filter(|(_, byte)| **byte == part[0]);
        if starts.any(|(at, _)| text[at..].starts_with(part)) {
            break true;
        }
        if got < CHUNK {
            break false;
        }
        offset += CHUNK - part.len();
    };
    raw::close(fd);
    found
}

/// A part of a segment that is mapped with one protection.
#[derive(Clone, Copy)]
pub struct Extent {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// The mapped protection.
    pub protection: c_int,
    /// End of the file's pages; behind them lies anonymous memory (bss).
    pub file_end: usize,
    /// Whether address and file offset are congruent modulo the superpage size.
    pub is_congruent: bool,
    /// Whether its segment is data.
    pub is_written: bool,
    /// Whether its segment's header requests superpages.
    pub is_marked: bool,
    /// Index of its segment in the list.
    pub segment: usize,
    /// Nothing is mapped from here to `start`.
    free_from: usize,
    /// Nothing is mapped from `end` to here; 0: not known yet.
    free_to: usize,
}

impl Extent {
    /// Whether the extent is executable.
    pub fn is_code(&self) -> bool {
        self.protection & libc::PROT_EXEC != 0
    }

    /// Returns the superpages for the extent, `[first, last)`; `None` if there are none.
    pub fn fitting(&self, page: usize, fit: Fit) -> Option<(usize, usize)> {
        let (low, high) = (self.start - self.start % page, self.end.next_multiple_of(page));
        let (inner_low, inner_high) = (self.start.next_multiple_of(page), high.min(self.end));
        let inner_high = inner_high - inner_high % page;
        let low_is_free = low == self.start || low >= self.free_from;
        let high_is_free = high == self.end || high <= self.free_to;
        // Filled bytes of the superpage at either end.
        let filled_low = (low + page).min(self.end) - self.start;
        let filled_high = self.end - (high - page).max(self.start);
        let (take_low, take_high) = match fit {
            Fit::Inside => (low == self.start, high == self.end),
            Fit::Filled => {
                (low_is_free && filled_low >= page / 2, high_is_free && filled_high >= page / 2)
            }
            Fit::Touched => (low_is_free, high_is_free),
            Fit::Whole if low_is_free && high_is_free => (true, true),
            Fit::Whole => return None,
        };
        let first = if take_low { low } else { inner_low };
        let last = if take_high { high } else { inner_high };
        (first < last && move_break_behind(self.end, last)).then_some((first, last))
    }
}

/// The brk heap may begin between the end of bss and the end of its last superpage. If the heap is empty, moves its
/// start to `last`; `false`: the heap cannot be moved.
fn move_break_behind(end: usize, last: usize) -> bool {
    // SAFETY: a query, and then memory at the start of the heap that no code uses yet.
    raw::keeping_errno(|| unsafe {
        let now = raw::call!(SYS_brk, 0) as usize;
        if !(end..last).contains(&now) {
            return true;
        }
        raw::call!(SYS_brk, last) as usize == last
    })
}

/// Calls `tell` with each extent of the segments, according to the current maps. With `as_meant`, a segment is one
/// extent with the protection of its header, whatever RELRO has changed.
pub fn each_extent(segments: &Segments, as_meant: bool, mut tell: impl FnMut(Extent)) {
    let mut extents = Extents::new();
    let mut below = 0;
    let page = sizes::superpage();
    let read = maps::each(|vma| {
        for extent in extents.list.iter_mut().flatten() {
            if extent.free_to == 0 {
                extent.free_to = vma.start.max(extent.end);
            }
        }
        for (index, segment) in segments.iter().enumerate() {
            let (start, end) = (vma.start.max(segment.start), vma.end.min(segment.end));
            if start >= end || !vma.is_private() {
                continue;
            }
            let protection = if as_meant { segment.protection } else { vma.protection() };
            let is_file = !vma.name.is_empty() && vma.name[0] != b'[';
            let file_end = if is_file { end } else { start };
            let free_to = if vma.end > end { end } else { 0 };
            if let Some(last) = extents.last()
                && last.segment == index
                && last.end == start
                && last.protection == protection
            {
                last.end = end;
                last.free_to = free_to;
                if is_file {
                    last.file_end = end;
                }
                continue;
            }
            let offset = vma.offset.wrapping_add((start - vma.start) as u64) as usize;
            extents.push(Extent {
                start,
                end,
                protection,
                file_end,
                is_congruent: is_file && (offset.wrapping_sub(start)).is_multiple_of(page),
                is_written: segment.is_written,
                is_marked: segment.is_marked,
                segment: index,
                free_from: if vma.start < start { start } else { below },
                free_to,
            });
        }
        below = vma.end;
    });
    if read.is_some() {
        // Unreadable memory cannot be copied.
        let all = extents.list.iter().flatten();
        all.filter(|it| it.protection & libc::PROT_READ != 0).for_each(|it| tell(*it));
    }
}

/// Whether a debugger or another tracer is attached to this process.
pub fn is_traced() -> bool {
    let mut buffer = [0; 4096];
    let Some(status) = files::read_file(c"/proc/self/status", &mut buffer) else { return false };
    text::after(status, b"TracerPid:").and_then(text::first_number).is_some_and(|pid| pid != 0)
}
