//! mmap and its relatives: memory that a program, or a library in it, maps itself. Decisions about the pool:
//! docs/decisions/pool.md.
//!
//! On THP, memory stays ordinary anonymous memory: large mappings are advised, small ones placed side by side
//! (`small`), and the kernel handles all later calls.
//!
//! On hugetlb, a large mapping becomes a body of reserved superpages and a tail of base pages. Its length is then the
//! requested one, and calls about the whole mapping work unchanged. Before a call that works differently on hugetlb
//! than on ordinary memory, the superpages concerned are demoted (`demote`). `parts`, `remap` and `others` determine
//! the superpages that each call concerns.
//!
//! Some mappings are left alone on hugetlb: executable ones, locked ones, stacks, mappings with an address hint,
//! mappings that choose their pages themselves, and mappings smaller than a superpage. So are `MAP_NORESERVE` mappings:
//! the program says that it will not use most of the memory. So is private memory if other threads' system calls could
//! not be blocked during a demotion, unless SUPERPAGE_POOL=always.
//!
//! The library sees calls of libc's functions, `syscall` among them. A program that makes system calls in its own code
//! gets the kernel's behaviour for hugetlb.
//!
//! # Safety
//! The exported functions are the system calls of the same names, with the same contracts.
//! See docs/decisions/pool.md#2.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{off64_t, size_t};

pub mod demote;
#[cfg(target_arch = "x86_64")]
mod direct;
mod exclusive;
mod file;
mod object;
mod others;
mod parts;
mod pinned;
mod plan;
mod remap;
mod rlimit;
mod shared;
pub mod small;

pub use plan::is_hugetlb;

use crate::contiguity;
use crate::copies;
use crate::counters::{self, Column, Kind, Reason};
use crate::executor;
use crate::filter;
use crate::fork_lock;
use crate::in_place;
use crate::limits;
use crate::once::OnceBool;
use crate::prepare;
use crate::raw::{self, Errno, PRIVATE_ANONYMOUS, READ_WRITE};
use crate::settings::{self, Fallback, Pages, Settings};
use crate::sizes;
use crate::source::{self, Backing};
use crate::table;
use crate::write_protect;
use demote::Scope;
use table::Range;

/// Arguments of `mmap(2)`.
#[derive(Clone, Copy)]
struct Request {
    address: usize,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
}

/// `void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)`.
///
/// # Safety
/// As the system call: `MAP_FIXED` replaces existing mappings.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    let request = Request { address: address as usize, length, protection, flags, fd, offset };
    // SAFETY: the caller keeps this function's contract.
    raw::not_cancelled(|| raw::answer_address(unsafe { request.serve() }))
}

/// The same as [`mmap`] under its large-file name: `off_t` is 64 bits here.
///
/// # Safety
/// As [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: the called function has the same contract.
    unsafe { mmap(address, length, protection, flags, fd, offset) }
}

/// Whether memory of the program may lie on the pool. To demote parts of it later, system calls of other threads must
/// be blocked, which a seccomp filter may prevent.
fn may_use_pool(settings: &Settings) -> bool {
    let can_be_moved = || !filter::may_be_in_place() && write_protect::can_block_system_calls();
    (settings.always_pool || can_be_moved()) && !IS_MERGED.load(Ordering::Relaxed)
}

/// Runs `work`, which unmaps or changes superpages of the table at `[from, to)`, while no thread demotes them: a fork
/// copies memory that other threads may be unmapping or protecting. `work` only makes system calls.
pub fn without_demotion<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> R {
    match table::first(from, to) {
        Some(_) => exclusive::within(from, to, work),
        None => work(),
    }
}

/// Call after superpages of the table were mapped at `[from, to)`: a fork in progress did not see them, but its child
/// may use them.
pub fn demote_if_forking(from: usize, to: usize) {
    if in_place::is_asked() && fork_lock::is_held() {
        // If there is no memory for copies, the child does not get the superpages.
        let _ = demote::make_ordinary(from, to, Scope::Covered);
    }
}

/// In a forked child: resets memory locks, which a child does not inherit (mlock(2)). `table` resets its own.
pub fn after_fork() {
    exclusive::after_fork();
    demote::lock_copies(false);
    limits::lock_future(false);
}

/// Whether the kernel merges equal pages of this process (`PR_SET_MEMORY_MERGE`). It merges only ordinary memory.
static IS_MERGED: AtomicBool = AtomicBool::new(false);

/// Call when the program turns merging on or off.
pub fn merge(is_asked: bool) {
    IS_MERGED.store(is_asked, Ordering::Relaxed);
    if is_asked {
        // Memory that cannot be demoted is not merged.
        let _ = demote::make_ordinary(0, usize::MAX, Scope::Covered);
    }
}

impl Request {
    unsafe fn serve(self) -> Result<usize, Errno> {
        let settings = settings::get();
        let is_fixed = self.flags & libc::MAP_FIXED != 0;
        if is_fixed {
            // Superpages that the mapping replaces in part become ordinary memory.
            parts::first_make_ordinary(self.address, self.end(), Scope::Removed)?;
        }
        // The kernel checks the offset even without a file.
        let is_valid = self.offset.unsigned_abs().is_multiple_of(raw::base_page() as u64);
        if settings.pages == Pages::None || !is_valid {
            // SAFETY: the caller keeps this function's contract.
            return unsafe { self.plain() };
        }
        // SAFETY: the caller keeps this function's contract throughout.
        unsafe {
            if let Some(file) = file::File::of(&self, &settings.memory) {
                return file.map(self);
            }
            if self.is_shared() {
                return if settings.memory.shared { shared::map(self) } else { self.plain() };
            }
            if !settings.memory.mmap || !self.is_wanted() {
                return self.plain();
            }
            match settings.pages {
                Pages::Thp(_) => self.on_thp(),
                Pages::Hugetlb(_) => self.on_hugetlb(settings),
                Pages::None => self.plain(),
            }
        }
    }

    /// Passes the request to the kernel unchanged.
    unsafe fn plain(self) -> Result<usize, Errno> {
        let Self { address, length, protection, flags, fd, offset } = self;
        // SAFETY: the caller keeps this function's contract.
        let map = || unsafe { raw::mmap(address, length, protection, flags, fd, offset) };
        if address != 0 {
            prepare::changed(address, self.end());
            prepare::release_range(address, self.end());
        }
        if flags & libc::MAP_FIXED == 0 {
            let result = match map() {
                Err(libc::ENOMEM) if prepare::release_all() => map(),
                result => result,
            };
            // Memory that was mapped at this address before may have been unmapped without this
            // library.
            return result.inspect(|at| {
                let end = parts::round_up(*at, length);
                copies::forget(*at, end);
                if table::may_overlap(*at, end) {
                    table::remove(*at, end);
                }
            });
        }
        // The old mapping is lost only if the call succeeds.
        parts::replacing(address, self.end(), map)
    }

    /// As [`Self::plain`], for a mapping that may replace part of a superpage.
    #[cfg(target_arch = "x86_64")]
    unsafe fn replace_as_it_is(self) -> Result<usize, Errno> {
        if self.flags & libc::MAP_FIXED != 0 {
            parts::first_make_ordinary(self.address, self.end(), Scope::Removed)?;
        }
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.plain() }
    }

    /// End of the mapping, if it begins at `address`.
    fn end(&self) -> usize {
        let base = raw::base_page();
        self.address.saturating_add(self.length).saturating_add(base - 1) & !(base - 1)
    }

    fn is_shared(&self) -> bool {
        matches!(self.flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
    }

    /// Whether the request is for private anonymous memory, but not for a stack, most of which stays untouched, and
    /// does not choose its pages itself.
    fn is_wanted(&self) -> bool {
        let excluded = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
        self.flags & PRIVATE_ANONYMOUS == PRIVATE_ANONYMOUS && self.flags & excluded == 0
    }

    /// Maps memory and advises it, whatever its protection. Advice on reserved address space (`PROT_NONE`) costs no
    /// memory, because the program does not touch it. The advice cannot be given later: parts that an allocator makes
    /// writable by mprotect, or that `MAP_FIXED` does not replace, keep the advice of the reservation.
    unsafe fn on_thp(mut self) -> Result<usize, Errno> {
        if self.length < sizes::superpage() {
            // SAFETY: the caller keeps this function's contract.
            return unsafe { self.map_packed() };
        }
        if self.is_plain() && small::is_left_alone(self.length) {
            counters::count(Kind::Mmap, Column::Small, self.length);
            // SAFETY: the caller keeps this function's contract.
            return unsafe { self.plain() };
        }
        // MAP_POPULATE would map base pages before the advice.
        let populated = self.is_populated_later();
        if self.is_prepared()
            && (populated || !self.is_populated())
            && let Some(start) = prepare::take(self.length)
        {
            if populated {
                // SAFETY: just mapped; a failure is ignored, as with MAP_POPULATE.
                let _ = unsafe { raw::populate(start, self.length) };
            }
            return Ok(start);
        }
        if populated {
            self.flags &= !libc::MAP_POPULATE;
        }
        // SAFETY: the caller keeps this function's contract; then advice about memory that was just mapped. The kernel
        // may refuse the advice (no THP) or to populate (no memory), which is ignored, as with MAP_POPULATE.
        unsafe {
            let start = self.plain()?;
            let advised =
                if self.protection == libc::PROT_NONE || self.flags & libc::MAP_NORESERVE != 0 {
                    contiguity::advise_reserved(Kind::Mmap, start, self.length)
                } else {
                    contiguity::advise(Kind::Mmap, start, self.length)
                };
            if populated {
                let _ = raw::populate(start, self.length);
            } else if advised == self.length && self.is_prepared() {
                prepare::populate(start, self.length);
            }
            if self.protection != libc::PROT_NONE {
                counters::count(Kind::Mmap, Column::Advised, advised);
                counters::count(Kind::Mmap, Column::FellBack, self.length - advised);
            }
            Ok(start)
        }
    }

    fn is_plain(&self) -> bool {
        self.address == 0 && self.protection == READ_WRITE && self.flags == PRIVATE_ANONYMOUS
    }

    /// Maps a range smaller than a superpage, which shares a THP with others.
    unsafe fn map_packed(self) -> Result<usize, Errno> {
        let block = if self.is_plain() { small::take(self.length) } else { None };
        let column = match block {
            Some((_, true)) => Column::Advised,
            Some((_, false)) => Column::FellBack,
            None => Column::Small,
        };
        counters::count(Kind::Mmap, column, self.length);
        // SAFETY: the caller keeps this function's contract.
        block.map_or_else(|| unsafe { self.small() }, |(it, _)| Ok(it as usize))
    }

    /// Maps a small range. One that is placed inside a larger mapping is advised like that mapping: both must stay one
    /// VMA, or mremap would fail.
    unsafe fn small(mut self) -> Result<usize, Errno> {
        let is_joined = self.address != 0 && executor::advises();
        // If populated before the advice, the mapping would never merge with adjacent VMAs.
        let populated = is_joined && self.is_populated_later();
        if populated {
            self.flags &= !libc::MAP_POPULATE;
        }
        // SAFETY: the caller keeps this function's contract; then advice about memory that was just mapped.
        unsafe {
            let start = self.plain()?;
            if is_joined {
                let fallback = settings::get().fallback;
                executor::advise(advisor::Kind::Joined, fallback, start, self.length);
            }
            if populated {
                let _ = raw::populate(start, self.length);
            }
            Ok(start)
        }
    }

    /// Whether prepared memory can serve the request. jemalloc maps all its memory with MAP_NORESERVE, in extents far
    /// smaller than the ranges that other programs reserve with this flag.
    fn is_prepared(&self) -> bool {
        const MAX_UNRESERVED: usize = 1 << 30;
        let flags = self.flags & !(libc::MAP_POPULATE | libc::MAP_NONBLOCK);
        let is_sparse = flags & libc::MAP_NORESERVE != 0;
        self.address == 0
            && self.protection == READ_WRITE
            && flags & !libc::MAP_NORESERVE == PRIVATE_ANONYMOUS
            && (!is_sparse || self.length <= MAX_UNRESERVED)
    }

    /// Whether all of the mapping must be populated at once. Read-only memory is left to the kernel: all of it is the
    /// zero page.
    fn is_populated(&self) -> bool {
        // MAP_NONBLOCK cancels MAP_POPULATE (mmap(2)).
        let both = libc::MAP_POPULATE | libc::MAP_NONBLOCK;
        self.flags & both == libc::MAP_POPULATE && self.protection & libc::PROT_WRITE != 0
    }

    /// As [`Self::is_populated`], if the kernel can populate an existing mapping (Linux 5.14).
    fn is_populated_later(&self) -> bool {
        static IS_KNOWN: OnceBool = OnceBool::new();
        // SAFETY: an empty range: tests for kernel support.
        self.is_populated() && IS_KNOWN.get_or_init(|| unsafe { raw::populate(0, 0) }.is_ok())
    }

    /// Maps a body of superpages and a tail of base pages.
    unsafe fn on_hugetlb(self, settings: &Settings) -> Result<usize, Errno> {
        let superpage = sizes::superpage();
        // Requests with any other flag (an address below 4 GiB, locked or unreserved memory) are
        // left to the kernel.
        let known = PRIVATE_ANONYMOUS | libc::MAP_FIXED | libc::MAP_POPULATE | libc::MAP_NONBLOCK;
        let is_ours = self.protection == READ_WRITE && self.flags & !known == 0;
        let is_fixed = self.flags & libc::MAP_FIXED != 0;
        if !is_ours || (self.address != 0 && !is_fixed) || self.length < superpage {
            // Mappings too small for pool pages can have THP.
            let thp = contiguity::superpage();
            // SAFETY: the caller keeps this function's contract.
            return unsafe {
                match executor::advises() && is_ours && self.length < superpage {
                    true if self.length >= thp => self.without_pool(settings),
                    true if superpage == thp => self.map_packed(),
                    _ => {
                        if is_ours {
                            counters::count(Kind::Mmap, Column::Small, self.length);
                        }
                        self.small()
                    }
                }
            };
        }
        if !may_use_pool(settings) {
            counters::count_reason(Reason::Unprotected);
            // SAFETY: the caller keeps this function's contract.
            return unsafe { self.without_pool(settings) };
        }
        let length = self.length.checked_next_multiple_of(raw::base_page()).ok_or(libc::ENOMEM)?;
        // SAFETY: the caller's range, or address space of our own.
        unsafe {
            let start = if is_fixed {
                self.plain()?
            } else {
                match source::reserve(length, superpage) {
                    Ok(start) => start,
                    // The slack for alignment may exceed a limit that the mapping alone would keep.
                    Err(_) => return self.without_pool(settings),
                }
            };
            let (from, to) = (start.next_multiple_of(superpage), start + length);
            let to = to - to % superpage;
            let result = self.fill(start, length, from, to, is_fixed);
            if result.is_err() && !is_fixed {
                let _ = raw::munmap(start, length);
            }
            result.map(|()| start)
        }
    }

    /// Falls back to ordinary memory for another reason than a short pool.
    unsafe fn without_pool(self, settings: &Settings) -> Result<usize, Errno> {
        if executor::fall_back(settings.fallback, self.length) == Fallback::Error {
            counters::count(Kind::Mmap, Column::Refused, self.length);
            return Err(libc::ENOMEM);
        }
        counters::count(Kind::Mmap, Column::FellBack, self.length);
        // SAFETY: the caller keeps this function's contract.
        let start = unsafe { self.plain() }?;
        contiguity::advise(Kind::Mmap, start, self.length);
        Ok(start)
    }

    /// Puts superpages at `[from, to)` and base pages around them.
    unsafe fn fill(
        self,
        start: usize,
        length: usize,
        from: usize,
        to: usize,
        has_ends: bool,
    ) -> Result<(), Errno> {
        let end = start + length;
        if from >= to {
            counters::count(Kind::Mmap, Column::Small, length);
            return Ok(());
        }
        // SAFETY: inside the range of the caller of `on_hugetlb`.
        unsafe {
            if source::place(Kind::Mmap, from, to - from, self.protection)? == Backing::Hugetlb {
                let page = sizes::superpage();
                let range = Range { start: from, end: to, page, shared: false };
                if !table::add_part(range, (start, end)) {
                    return Err(libc::ENOMEM);
                }
                demote_if_forking(from, to);
            }
            counters::count(Kind::Mmap, Column::Small, length - (to - from));
            if !has_ends && to < end {
                let flags = PRIVATE_ANONYMOUS | libc::MAP_FIXED;
                raw::mmap(to, end - to, self.protection, flags, -1, 0)?;
                contiguity::advise(Kind::Mmap, to, end - to);
            }
            if self.is_populated() {
                let _ = raw::populate(start, length);
            }
        }
        Ok(())
    }
}
