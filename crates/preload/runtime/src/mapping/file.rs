//! Large files that a program maps for reading: weights of a model, the index of a search engine.
//!
//! Their superpages are large folios of the page cache, which all processes share. The kernel allocates them when the
//! file is first read (ext4, XFS, btrfs) through an advised mapping, and maps them by PMDs where address and offset are
//! congruent. So the library aligns and advises the mapping, and parts that are not cached yet get superpages. Parts
//! cached in small pages stay so, unless MADV_COLLAPSE can change that (tmpfs, or `CONFIG_READ_ONLY_THP_FOR_FS`): other
//! processes read them too, so the library never drops them from the cache. A private copy replaces them only on
//! request.
//!
//! Left alone: writable mappings, those at an address that the program chose, locked ones, and everything if a seccomp
//! filter may forbid the queries made here.
//!
//! # Safety
//! Advice and queries change no contents; only the kernel touches pages, and returns `EFAULT` where a touch would raise
//! SIGBUS.
//! See docs/decisions/segments.md#4.

use std::ffi::c_int;

use advisor::Action;
use advisor::{Event, Facts};

use super::{Request, shared};
use crate::counters::{self, Column, Kind, Reason};
use crate::executor::{self, advice};
use crate::raw::{self, Errno};
use crate::settings::{Files, Memory};
use crate::{files, filter, pagemap, sizes, source};

/// A file to be mapped on superpages.
pub(super) struct File {
    superpage: usize,
    /// Whether a private copy may replace file pages.
    may_copy: bool,
    /// Bytes of the mapping that lie within the file.
    filled: usize,
    /// Whether the file is on tmpfs.
    is_in_memory: bool,
    /// Whether mincore(2) reports what is cached.
    sees_cache_state: bool,
}

impl File {
    /// The file of a request; `None` if the request does not qualify.
    pub(super) fn of(request: &Request, memory: &Memory) -> Option<Self> {
        let &Request { address, length, protection, flags, fd, offset } = request;
        let Files { min, copies } = memory.files?;
        let known = libc::MAP_TYPE | libc::MAP_POPULATE | libc::MAP_NONBLOCK | libc::MAP_NORESERVE;
        let is_plain = address == 0 && protection == libc::PROT_READ && flags & !known == 0;
        if !is_plain || length < min || filter::may_be_in_place() {
            return None;
        }
        let superpage = sizes::pmd_size()?;
        let is_shared = request.is_shared();
        let file = raw::keeping_errno(|| raw::fstat(fd))?;
        let is_in_memory = shared::is_memory_file(fd);
        let is_meant = file.st_mode & libc::S_IFMT == libc::S_IFREG
            && !shared::is_on(libc::HUGETLBFS_MAGIC, fd)
            // `--shm` handles these files.
            && !(is_shared && memory.shared && is_in_memory);
        let left = usize::try_from(file.st_size.saturating_sub(offset)).unwrap_or(0);
        (is_meant && length >= superpage).then(|| Self {
            superpage,
            may_copy: copies && !is_shared,
            filled: left.min(length),
            is_in_memory,
            sees_cache_state: file.st_uid == raw::effective_user() || may_write(fd),
        })
    }

    /// Maps the file, on the superpages that the file has or will get.
    pub(super) unsafe fn map(&self, mut request: Request) -> Result<usize, Errno> {
        let both = libc::MAP_POPULATE | libc::MAP_NONBLOCK;
        // SAFETY: an empty range: tests for kernel support (Linux 5.14).
        let is_populated = request.flags & both == libc::MAP_POPULATE
            && unsafe { raw::populate_read(0, 0) }.is_ok();
        if is_populated {
            // MAP_POPULATE would read the file in small pages, before the advice.
            request.flags &= !libc::MAP_POPULATE;
        }
        // SAFETY: the caller keeps this function's contract.
        let start = unsafe { request.plain() }?;
        let start = self.placed(start, &request);
        let length = request.length;
        let first = start.next_multiple_of(self.superpage);
        let end = start + self.filled;
        let last = (end - end % self.superpage).max(first);
        let facts = &mut Facts {
            kind: advisor::Kind::File,
            may_copy: self.may_copy,
            is_off: files::is_thp_off() || is_disabled(),
            has_file: self.is_congruent(start, &request),
            ..executor::facts(start, length, self.superpage)
        };
        let why = match (facts.is_off, facts.has_file) {
            (true, _) => Reason::ThpOff,
            (_, false) => Reason::Place,
            _ => Reason::SmallFilePages,
        };
        let (mut on, mut is_to_populate) = (0, is_populated);
        let mut populate = || {
            if std::mem::take(&mut is_to_populate) {
                // SAFETY: just mapped. A failure is ignored, as with MAP_POPULATE.
                let _ = unsafe { raw::populate_read(start, length) };
            }
        };
        executor::run_advisor(Event::Loaded, facts, |action, _| {
            let is_done = match action {
                Action::Advise { bytes, .. } => {
                    let is_advised = advice::superpages(start, bytes as usize);
                    populate();
                    is_advised
                }
                Action::Collapse { .. } => {
                    on = self.collapse(first, last);
                    on == last - first
                }
                Action::Copy { .. } => {
                    let copied = self.copy(&request, start, first, last);
                    on += copied;
                    if copied > 0 {
                        counters::count_reason(Reason::Copied);
                    }
                    on == last - first
                }
                _ => return None,
            };
            Some((executor::done_if(is_done), 0))
        });
        populate();
        let off = last - first - on;
        counters::count(Kind::Files, Column::Small, length - (last - first));
        counters::count(Kind::Files, Column::Advised, on);
        counters::count(Kind::Files, Column::FellBack, off);
        if off > 0 {
            counters::count_reason(why);
        }
        Ok(start)
    }

    fn is_congruent(&self, start: usize, request: &Request) -> bool {
        (start as u64 ^ request.offset as u64).is_multiple_of(self.superpage as u64)
    }

    /// Moves a new mapping to an address where its superpages can be mapped. Most file systems let the kernel choose
    /// such an address (overlayfs does not). If there is no such address, the mapping stays.
    fn placed(&self, start: usize, request: &Request) -> usize {
        if self.is_congruent(start, request) {
            return start;
        }
        let length = request.length.next_multiple_of(raw::base_page());
        let shift = request.offset as usize % self.superpage;
        let Ok(place) = source::reserve(shift + length, self.superpage) else { return start };
        let to = place + shift;
        // SAFETY: a mapping that no other code knows of yet, and address space of our own.
        unsafe {
            let is_moved = raw::move_to(start, length, to).is_ok();
            let rest = if is_moved { shift } else { shift + length };
            if rest > 0 {
                let _ = raw::munmap(place, rest);
            }
            if is_moved { to } else { start }
        }
    }

    /// Bytes of `[first, last)` that lie on superpages of the file, or will when they are first read; all, if it is
    /// unknown what is cached.
    fn collapse(&self, first: usize, last: usize) -> usize {
        let all = (first..last).step_by(self.superpage);
        let count = |fd| {
            // Before Linux 6.7 superpages are not reported.
            pagemap::scan(
                fd,
                first as u64,
                first as u64,
                pagemap::PAGE_IS_HUGE,
                &mut [pagemap::Region::default()],
            )
            .ok()?;
            Some(all.clone().filter(|at| self.is_on(fd, *at)).count())
        };
        let on = if self.sees_cache_state { pagemap::with(count) } else { None };
        on.unwrap_or(all.clone().count()) * self.superpage
    }

    /// Whether there is a superpage at `at`, or will be; collapses if necessary. Checks few pages: mincore takes 50 us
    /// for all.
    fn is_on(&self, pagemap: c_int, at: usize) -> bool {
        const SAMPLES: usize = 4;
        let end = at + self.superpage;
        if pagemap::is_resident(at) != Some(true) {
            let others = (at..end).step_by(self.superpage / SAMPLES).skip(1);
            return others.chain([end - 1]).all(|other| pagemap::is_resident(other) != Some(true));
        }
        // SAFETY: our mapping; maps what is cached.
        let _ = unsafe { raw::populate_read(at, raw::base_page()) };
        let pages = self.superpage / raw::base_page();
        pagemap::is_all(pagemap, at, end, pagemap::PAGE_IS_HUGE)
            // Holes of a tmpfs file stay holes.
            || (!self.is_in_memory || pagemap::resident(at, pages) == Some(pages))
                && advice::collapse(at, self.superpage)
    }

    /// Copies parts that lie on small pages; returns the bytes copied.
    fn copy(&self, request: &Request, start: usize, first: usize, last: usize) -> usize {
        // Copy in parts: a part that gets too few superpages is dropped.
        const MAX_SUPERPAGES_PER_COPY: usize = 128;
        let (page, mut at, mut copied) = (self.superpage, first, 0);
        let work = |pagemap| {
            while at < last {
                let from = at;
                let most = last.min(from + MAX_SUPERPAGES_PER_COPY * page);
                while at < most && !self.is_on(pagemap, at) {
                    at += page;
                }
                match at - from {
                    0 => at += page,
                    length => {
                        let offset = request.offset + (from - start) as i64;
                        if copy_part(pagemap, request.fd, offset, from, length, page).is_ok() {
                            copied += length;
                        }
                    }
                }
            }
            Some(())
        };
        let _ = pagemap::with(work);
        copied
    }
}

/// Replaces `length` bytes of a file mapping at `at` by a copy on superpages, if there are enough.
fn copy_part(
    pagemap: c_int,
    fd: c_int,
    offset: i64,
    at: usize,
    length: usize,
    page: usize,
) -> Result<(), Reason> {
    let fill = |fresh: usize| {
        let mut used = 0;
        while used < length {
            let (to, from) = (fresh + used, offset + used as i64);
            // SAFETY: memory of our own, of that length.
            let got = unsafe { raw::call!(SYS_pread64, fd, to, length - used, from) };
            match usize::try_from(got) {
                // If the file was truncated meanwhile, a touch must raise SIGBUS.
                Err(_) | Ok(0) => return false,
                Ok(got) => used += got,
            }
        }
        pagemap::is_all(pagemap, fresh, fresh + length, pagemap::PAGE_IS_HUGE)
    };
    let fill = |fresh| raw::keeping_errno(|| fill(fresh));
    source::replace_by_copy(at, length, page, libc::PROT_READ, at + length, fill)
}

/// Whether this process may write the file: mincore(2) reports what is cached only to writers and to the owner.
fn may_write(fd: c_int) -> bool {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: only a query.
    raw::keeping_errno(|| unsafe {
        raw::call!(SYS_faccessat2, fd, c"".as_ptr(), libc::W_OK, flags) == 0
    })
}

/// Whether THP are off for this process (`PR_SET_THP_DISABLE`).
fn is_disabled() -> bool {
    // SAFETY: only a query.
    raw::keeping_errno(|| unsafe {
        raw::call!(SYS_prctl, libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1
    })
}
