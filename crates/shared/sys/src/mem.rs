//! Owned memory mappings and advice about them.

use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use units::PageSize;

use crate::SysError;

/// Advice for `madvise(2)` and `process_madvise(2)`.
///
/// libc lacks `MADV_COLLAPSE` and rustix's enum cannot express it, so all advice uses this type.
/// Values: `include/uapi/asm-generic/mman-common.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the variants are the man page's names")]
pub enum Advice {
    WillNeed = 3,
    DontNeed = 4,
    Free = 8,
    DontFork = 10,
    DoFork = 11,
    HugePage = 14,
    NoHugePage = 15,
    Cold = 20,
    PageOut = 21,
    PopulateRead = 22,
    /// Linux 5.14. Faults pages in for writing; `EFAULT` if the fault would raise SIGBUS, so this
    /// can probe a hugetlb range safely.
    PopulateWrite = 23,
    /// Linux 6.1. Synchronously copies the present pages into one superpage. `EINVAL` if no page is present or THP are
    /// disabled by prctl; `EAGAIN`/`ENOMEM` if no superpage is free.
    Collapse = 25,
}

impl Advice {
    const fn call(self) -> &'static str {
        match self {
            Self::WillNeed => "madvise(MADV_WILLNEED)",
            Self::DontNeed => "madvise(MADV_DONTNEED)",
            Self::Free => "madvise(MADV_FREE)",
            Self::DontFork => "madvise(MADV_DONTFORK)",
            Self::DoFork => "madvise(MADV_DOFORK)",
            Self::HugePage => "madvise(MADV_HUGEPAGE)",
            Self::NoHugePage => "madvise(MADV_NOHUGEPAGE)",
            Self::Cold => "madvise(MADV_COLD)",
            Self::PageOut => "madvise(MADV_PAGEOUT)",
            Self::PopulateRead => "madvise(MADV_POPULATE_READ)",
            Self::PopulateWrite => "madvise(MADV_POPULATE_WRITE)",
            Self::Collapse => "madvise(MADV_COLLAPSE)",
        }
    }
}

/// The backing of an anonymous mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Base pages, or THP if the system setting or advice says so.
    #[default]
    Pages,
    /// Pages of the hugetlb pool of this size; `mmap` fails with `ENOMEM` if the pool cannot reserve all of them. After
    /// that no page fault of this process can fail.
    Hugetlb(PageSize),
}

/// An anonymous private mapping, readable and writable, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Mapping` is the only owner of its range; nothing in the range is bound to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeroes: `mmap(NULL, len, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS)`.
    ///
    /// Rounds `len` up to whole pages of the backing. `ENOMEM`: out of address space, refused by overcommit, or too few
    /// free pages in the pool.
    pub fn anonymous(len: usize, backing: Backing) -> Result<Self, SysError> {
        let (flags, page) = match backing {
            Backing::Pages => (MapFlags::PRIVATE, crate::param::page_size()),
            Backing::Hugetlb(size) => {
                (MapFlags::PRIVATE | MapFlags::HUGETLB | hugetlb_size_flag(size), size)
            }
        };
        let len = page.ceil(len as u64) as usize;
        Self::map(len, flags, || format!("{len} bytes, {backing:?}"))
    }

    /// Maps `len` bytes at an address that the kernel chooses. `what` describes the mapping in an error.
    fn map(len: usize, flags: MapFlags, what: impl Fn() -> String) -> Result<Self, SysError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null hint the kernel chooses a free range and replaces no mapping.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }
            .map_err(|errno| SysError::new("mmap", what(), errno))?;
        let start = NonNull::new(start.cast()).expect("mmap returns no null range");
        Ok(Self { start, len })
    }

    /// Like [`Self::anonymous`] with base pages, at a multiple of `alignment`. Maps more than needed and unmaps both
    /// ends.
    pub fn aligned(len: usize, alignment: PageSize) -> Result<Self, SysError> {
        let len = crate::param::page_size().ceil(len as u64) as usize;
        let slack = alignment.bytes() as usize;
        let mut whole = Self::anonymous(len.saturating_add(slack), Backing::Pages)?;
        whole.trim(len, alignment);
        Ok(whole)
    }

    /// Maps `len` bytes at a multiple of `alignment`, for callers that touch only a few of the pages. With
    /// `MAP_NORESERVE` the kernel commits no memory (except in overcommit mode 2: `ENOMEM`). The caller must limit the
    /// number of pages it touches, because running out of memory invokes the OOM killer.
    pub fn sparse(len: usize, alignment: PageSize) -> Result<Self, SysError> {
        let slack = alignment.bytes() as usize;
        let whole = len.saturating_add(slack);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mut whole = Self::map(whole, flags, || format!("{whole} bytes, sparse"))?;
        whole.trim(len, alignment);
        Ok(whole)
    }

    /// Maps `len` bytes of zeroes below 2 GiB (`MAP_32BIT`, x86-64), for code whose addresses fit 32 bits.
    #[cfg(target_arch = "x86_64")]
    pub fn low(len: usize) -> Result<Self, SysError> {
        let len = crate::param::page_size().ceil(len as u64) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::from_bits_retain(libc::MAP_32BIT as u32);
        Self::map(len, flags, || format!("{len} bytes, 32-bit"))
    }

    /// `mmap(start, len, ..., MAP_ANONYMOUS|MAP_NORESERVE|MAP_FIXED)`: replaces the mapping by untouched pages at the
    /// same addresses. Drops file mappings and advice inside the range.
    pub fn renew(&mut self) -> Result<(), SysError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the replaced range is this mapping, which is borrowed exclusively.
        let renewed = unsafe {
            rustix::mm::mmap_anonymous(self.start.as_ptr().cast(), self.len, prot, flags)
        };
        renewed.map(|_| ()).map_err(|errno| SysError::new("mmap", format!("{self:?}"), errno))
    }

    /// Keeps the `len` bytes from the first multiple of `alignment` on; unmaps the rest.
    fn trim(&mut self, len: usize, alignment: PageSize) {
        let before = alignment.ceil(self.address()) as usize - self.start.as_ptr() as usize;
        // SAFETY: both ends lie inside the mapping and consist of whole base pages, because the alignment is a multiple
        // of the base page; afterwards `self` owns only the range between them.
        unsafe {
            let start = self.start.add(before);
            for (end, rest) in [(self.start, before), (start.add(len), self.len - before - len)] {
                if rest > 0 {
                    let _ = rustix::mm::munmap(end.as_ptr().cast(), rest);
                }
            }
            (self.start, self.len) = (start, len);
        }
    }

    /// `mmap(start + offset, len, ..., MAP_SHARED|MAP_FIXED, fd, from)`: replaces a range of this mapping by a range of
    /// a file. The same file range may be mapped several times. `EINVAL`: not page-aligned.
    pub fn put_file(
        &mut self,
        offset: usize,
        len: usize,
        file: BorrowedFd<'_>,
        from: u64,
    ) -> Result<(), SysError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {offset} lie outside {self:?}");
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the replaced range lies inside this mapping, which is borrowed exclusively, and is unmapped together
        // with it. If a file range is mapped twice, a write at one address changes the other; both are plain bytes, for
        // which every value is valid.
        let put = unsafe {
            let start = self.start.as_ptr().add(offset).cast();
            rustix::mm::mmap(start, len, prot, flags, file, from)
        };
        put.map(|_| ()).map_err(|errno| SysError::new("mmap", format!("a file in {self:?}"), errno))
    }

    /// `int mprotect(void *addr, size_t len, int prot)` on the whole mapping. While the mapping is not writable, the
    /// caller must not use [`Mapping::bytes_mut`] (SIGSEGV).
    pub(crate) fn protect(&mut self, rights: MprotectFlags) -> Result<(), SysError> {
        // SAFETY: the range is this mapping, borrowed exclusively; it stays readable.
        unsafe { rustix::mm::mprotect(self.start.as_ptr().cast(), self.len, rights) }
            .map_err(|errno| SysError::new("mprotect", format!("{self:?}, {rights:?}"), errno))
    }

    /// The first address.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The length in bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a mapping has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes. A page that was never written reads as zero.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped readable for as long as `self`, and `&self` rules out writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped writable for as long as `self`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// `madvise` on the whole mapping.
    pub fn advise(&mut self, advice: Advice) -> Result<(), SysError> {
        self.advise_range(0..self.len, advice)
    }

    /// `int madvise(void *addr, size_t length, int advice)` on `range`, in bytes from the start of the mapping. The
    /// start of `range` must be page-aligned (`EINVAL`). Takes `&mut self`, because some advice discards bytes.
    pub fn advise_range(&mut self, range: Range<usize>, advice: Advice) -> Result<(), SysError> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} lies outside {self:?}"
        );
        // SAFETY: the range lies inside this mapping, which is borrowed exclusively.
        let code = unsafe {
            let address = self.start.as_ptr().add(range.start).cast::<c_void>();
            libc::madvise(address, range.len(), advice as i32)
        };
        if code == 0 { Ok(()) } else { Err(SysError::last(advice.call(), format!("{self:?}"))) }
    }

    /// `mremap(MREMAP_MAYMOVE)`: changes the length, moving the pages if necessary. Pages of 2 MB stay whole
    /// (`Documentation/mm/transhuge.rst`). A hugetlb mapping cannot grow (`EINVAL`).
    pub fn resized(self, len: usize) -> Result<Self, (Self, SysError)> {
        let len = crate::param::page_size().ceil(len as u64) as usize;
        let start = self.start.as_ptr().cast::<c_void>();
        // SAFETY: `self` owns the old range, and is consumed when the call succeeds.
        match unsafe { rustix::mm::mremap(start, self.len, len, MremapFlags::MAYMOVE) } {
            Ok(start) => {
                std::mem::forget(self);
                Ok(Self { start: NonNull::new(start.cast()).expect("not null"), len })
            }
            Err(errno) => {
                let error = SysError::new("mremap", format!("{self:?} to {len} bytes"), errno);
                Err((self, error))
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `self` owns the range and no borrow of it is left. munmap fails only for ranges that are not mapped,
        // which the type rules out.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Returns `MAP_HUGE_2MB` and similar flags: log2 of the size in bits 26..31 (`mmap(2)`).
fn hugetlb_size_flag(size: PageSize) -> MapFlags {
    MapFlags::from_bits_retain(size.bytes().trailing_zeros() << 26)
}

/// Makes all threads share malloc's main arena (`mallopt(3)`, M_ARENA_MAX), because `malloc_trim` does not shrink the
/// top of other arenas. For processes that mostly wait. Call it before the second thread starts.
pub fn use_one_arena() {
    // SAFETY: sets a malloc parameter; mallopt takes malloc's lock.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns unused memory to the kernel before a long wait: free malloc memory (`malloc_trim(3)`), the main thread's
/// stack below the caller's frame, and clean file pages (`madvise(2)` MADV_DONTNEED). Later accesses fault these pages
/// in again. Only for the main thread.
pub fn give_back_unused() {
    let marker = 0u8;
    let here = (&raw const marker) as usize;
    for range in unused(here) {
        // SAFETY: the range is either stack below every live frame, or pages of read-only file mappings, which the
        // kernel can read from the file again.
        unsafe { libc::madvise(range.start as *mut c_void, range.len(), Advice::DontNeed as i32) };
    }
    // SAFETY: frees only memory that malloc does not use.
    unsafe { libc::malloc_trim(0) };
}

/// Returns ranges that may be dropped. `here` is an address in the caller's stack frame. The calls made here need at
/// most `STACK_MARGIN` bytes of stack below `here`.
fn unused(here: usize) -> Vec<Range<usize>> {
    const STACK_MARGIN: usize = 8 << 10;
    let page = crate::param::page_size().bytes() as usize;
    let mut found = Vec::with_capacity(32);
    let Ok(file) = File::open("/proc/self/smaps") else { return found };
    // A small buffer: a buffer for the whole text could use more memory than this function frees.
    let mut lines = BufReader::with_capacity(4 << 10, file);
    let (mut line, mut mapping) = (String::with_capacity(512), None);
    while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
        if let Some((range, rest)) = parse_mapping(&line) {
            let mut fields = rest.split_whitespace();
            let permissions = fields.next().unwrap_or("");
            let name = fields.nth(3).unwrap_or("");
            let is_file = name.starts_with('/');
            if name == "[stack]" && range.contains(&here) {
                let end = here.saturating_sub(STACK_MARGIN) / page * page;
                found.push(range.start..end.max(range.start));
            }
            let is_clean = is_file && permissions.starts_with("r-") && permissions.ends_with('p');
            mapping = is_clean.then_some(range);
        } else if line.starts_with("Anonymous:") {
            let was_written = line.split_whitespace().nth(1) != Some("0");
            found.extend(mapping.take().filter(|_| !was_written));
        }
        line.clear();
    }
    found
}

/// Splits `7f00-7f10 r-xp 0000 fe:00 1 /path` into the address range and the rest.
fn parse_mapping(line: &str) -> Option<(Range<usize>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    Some((address(start)?..address(end)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superpage_mapping() -> Mapping {
        Mapping::anonymous(8 << 20, Backing::Pages).unwrap()
    }

    #[test]
    fn a_mapping_starts_zero_and_holds_what_is_written() {
        let mut mapping = Mapping::anonymous(1, Backing::Pages).unwrap();
        assert_eq!(mapping.len() as u64, crate::param::page_size().bytes());
        assert!(mapping.bytes().iter().all(|byte| *byte == 0));
        mapping.bytes_mut().fill(7);
        assert!(mapping.bytes().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn an_aligned_mapping_is_aligned_and_whole() {
        for size in [1 << 21, 1 << 25, 1 << 30].map(|size| PageSize::new(size).unwrap()) {
            let mut mapping = Mapping::aligned((1 << 20) + 1, size).unwrap();
            assert_eq!(mapping.address() % size.bytes(), 0);
            assert_eq!(mapping.len() as u64, crate::param::page_size().ceil((1 << 20) + 1));
            mapping.bytes_mut().fill(1);
        }
    }

    #[test]
    fn a_file_shows_at_several_places_of_a_sparse_range() {
        let base = crate::param::page_size().bytes() as usize;
        let file = crate::memfd::create("test", None).unwrap();
        rustix::fs::ftruncate(&file, base as u64).unwrap();
        let mut range = Mapping::sparse(1 << 36, PageSize::new(1 << 30).unwrap()).unwrap();
        assert_eq!((range.address() % (1 << 30), range.len()), (0, 1 << 36));
        let places = [0, 1 << 30, (1 << 36) - base];
        for place in places {
            range.put_file(place, base, std::os::fd::AsFd::as_fd(&file), 0).unwrap();
        }
        range.bytes_mut()[5] = 7;
        assert_eq!(places.map(|place| range.bytes()[place + 5]), [7; 3]);
        assert_eq!(range.bytes()[base + 5], 0);
        let address = range.address();
        range.renew().unwrap();
        assert_eq!((range.address(), range.len()), (address, 1 << 36));
        assert_eq!(places.map(|place| range.bytes()[place + 5]), [0; 3]);
    }

    #[test]
    fn every_local_advice_is_accepted_where_it_makes_sense() {
        let mut mapping = superpage_mapping();
        mapping.bytes_mut().fill(1);
        for advice in [
            Advice::WillNeed,
            Advice::HugePage,
            Advice::NoHugePage,
            Advice::Cold,
            Advice::DontFork,
            Advice::DoFork,
            Advice::PopulateRead,
            Advice::PopulateWrite,
            Advice::Free,
        ] {
            match mapping.advise(advice) {
                Err(error) if error.errno() == libc::EINVAL => {
                    testkit::skipped!("this kernel has no {}", advice.call());
                }
                result => result.unwrap(),
            }
        }
    }

    #[test]
    fn dontneed_brings_zeroes_back() {
        let mut mapping = superpage_mapping();
        mapping.bytes_mut().fill(1);
        mapping.advise_range(0..4 << 20, Advice::DontNeed).unwrap();
        assert_eq!((mapping.bytes()[0], mapping.bytes()[4 << 20]), (0, 1));
    }

    #[test]
    fn resizing_keeps_the_bytes() {
        let mut mapping = Mapping::anonymous(1 << 20, Backing::Pages).unwrap();
        mapping.bytes_mut().fill(9);
        let mapping = mapping.resized(64 << 20).map_err(|(_, error)| error).unwrap();
        assert_eq!(mapping.len(), 64 << 20);
        assert_eq!((mapping.bytes()[(1 << 20) - 1], mapping.bytes()[1 << 20]), (9, 0));
    }

    #[test]
    fn a_failure_names_call_range_and_errno() {
        let absurd = PageSize::new(1 << 60).unwrap();
        let error = Mapping::anonymous(1, Backing::Hugetlb(absurd)).unwrap_err();
        assert!(error.errno() != 0 && error.to_string().starts_with("mmap on "), "{error}");
        let mut mapping = superpage_mapping();
        let error = mapping.advise_range(1..4096, Advice::HugePage).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(error.to_string().contains("MADV_HUGEPAGE"), "{error}");
    }
}
