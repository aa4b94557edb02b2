//! Demotes memory of a running program from the pool to ordinary memory, in place.
//!
//! Memory stays on the pool while the program only reads and writes it. Before a call that works differently on hugetlb
//! than on ordinary memory, [`make_ordinary`] demotes the memory. The kernel then carries out the call on ordinary
//! memory.
//!
//! All or nothing: the extents to be replaced are found (`plan`), every copy is made and filled, and only then the
//! first copy is moved into place. A failure before that leaves everything unchanged; a failure after it (a limit on
//! VMAs) leaves contents and protections unchanged, on other pages.
//!
//! Other threads may write meanwhile, so the extents are first write-protected through userfaultfd: a writer, whether
//! the program or a system call on its behalf, waits in the kernel. The contents are copied, each copy is moved over
//! its extent by one mremap, and when the descriptor is closed, the writers continue on the copy.
//!
//! Shared memory is demoted only if no other process maps its object (`object`): the copy is another object. If another
//! thread forks between that check and the move, the child keeps the old object.
//!
//! Limitation: a page that the kernel has pinned (O_DIRECT in flight, memory registered with a network card) is still
//! written by the device after its contents were copied. Buffers registered with io_uring are detected (`pinned`) and
//! stay in place: the call fails with `ENOMEM`.
//!
//! # Safety
//! The extents belong to ranges of `table` that the kernel has confirmed. Their contents are read while no thread can
//! change them.
//! See docs/decisions/pool.md#1.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pinned::{self, Rings};
use super::plan::{self, Extent, Plan};
use super::{exclusive, object};
use crate::counters::{self, Column, Kind, Reason};
use crate::raw::{self, Errno};
use crate::settings;
use crate::table::{self, Entry, Locked, Marks, Range};
use crate::write_protect::{self, WriteProtect};
use crate::{executor, filter, in_place, limits, maps, pagemap, sizes, source, stack};

/// Which superpages a call demotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Superpages that the range covers in part: the kernel carries out the call on whole ones.
    Edges,
    /// As `Edges`, for a call that unmaps the range. A shared object keeps unmapped contents, which the program may map
    /// again.
    Removed,
    /// Every superpage that the range touches: the kernel does not carry out the call on the pool.
    Covered,
    /// The whole mapping: the call is about a property of the mapping.
    Mapping,
}

/// Serializes demotions of a superpage: a second thread finds it ordinary, and is done.
fn serialize<R>(from: usize, to: usize, scope: Scope, work: impl FnOnce() -> R) -> R {
    let is_of_mapping = |entry: &Entry| entry.range.shared || scope == Scope::Mapping;
    let (from, to) = match table::first_entry(from, to, is_of_mapping) {
        // The call concerns whole mappings: wait for every range.
        Some(_) => (0, usize::MAX),
        None => {
            let entry = |at: usize| table::first(at, at.saturating_add(1));
            let (first, last) = (entry(from), entry(to - 1));
            let down = first.map_or(from, |first| from - from % first.page);
            (down, last.map_or(to, |last| plan::up(to, last.page)))
        }
    };
    exclusive::within(from, to, work)
}

/// Whether all memory is locked (mlockall), so that copies must be locked, too.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Sets whether copies are locked (`mlockall(2)`).
pub fn lock_copies(are_locked: bool) {
    IS_LOCKED.store(are_locked, Ordering::Relaxed);
}

/// Demotes superpages of `[from, to)` to ordinary memory with the same contents and protections. A shared mapping is
/// demoted as a whole, or not at all.
///
/// # Errors
/// `ENOMEM`: no memory, no descriptor to block other threads with, or another process maps the shared object. Nothing
/// that the program could see has changed.
pub fn make_ordinary(from: usize, to: usize, scope: Scope) -> Result<(), Errno> {
    // Most calls demote nothing: return before opening a descriptor or /proc, which may be unavailable.
    if from >= to || !plan::must_replace(from, to, scope) {
        return Ok(());
    }
    if filter::is_set() {
        if scope == Scope::Removed && !plan::must_replace(from, to, Scope::Edges) {
            return Ok(()); // whole superpages can be unmapped in place
        }
        counters::count_reason(Reason::Held);
        return Err(libc::ENOMEM);
    }
    let make = |scope| carry_out(&mut Plan::new(from, to, scope)?, true);
    serialize(from, to, scope, || match make(scope) {
        // In a file of `in_place` the kernel carries out the call for any base page.
        Err(_) if matches!(scope, Scope::Edges | Scope::Removed) && in_place::is_asked() => Ok(()),
        // Whole superpages can be unmapped in place. The rest of the object stays where it is.
        Err(_) if scope == Scope::Removed => make(Scope::Edges),
        result => result,
    })
}

/// Demotes all private superpages, part by part, so that little memory is held twice.
///
/// # Errors
/// As [`make_ordinary`], for a part that stays on the pool; the others are ordinary then.
pub fn make_all_ordinary() -> Result<(), Errno> {
    const PART: usize = 32 << 20;
    let (mut at, mut result) = (0, Ok(()));
    while let Some(range) = table::first(at, usize::MAX) {
        let from = at.max(range.start);
        at = if range.shared { range.end } else { range.end.min(from + PART) };
        if !range.shared {
            // Freed pool pages are not available as ordinary memory: leave the rest on the pool before ordinary memory
            // runs out.
            let is_there = in_place::is_asked()
                || limits::available_memory().is_none_or(|memory| memory > at - from + 2 * PART);
            let one_by_one = || {
                let mut pages = (from..at).step_by(range.page);
                pages.try_for_each(|page| make_ordinary(page, page + range.page, Scope::Covered))
            };
            let made = match is_there {
                // A limit may not permit a copy of the whole part.
                true => make_ordinary(from, at, Scope::Covered).or_else(|_| one_by_one()),
                false => Err(libc::ENOMEM),
            };
            result = made.and(result);
        }
    }
    result
}

/// Discards the contents of whole private superpages of `[from, to)`. They stay on the pool if it has fresh pages. The
/// kernel's own MADV_DONTNEED would lose the reservation if the pool has surplus pages, and the next touch could be
/// killed.
///
/// # Errors
/// As [`make_ordinary`].
pub fn discard(from: usize, to: usize) -> Result<(), Errno> {
    if from >= to || table::first(from, to).is_none() {
        return Ok(());
    }
    if filter::is_set() {
        return Err(libc::ENOMEM);
    }
    serialize(from, to, Scope::Covered, || {
        let mut plan = Plan::new(from, to, Scope::Covered)?;
        plan.retain(|extent| {
            let is_whole = from <= extent.start && extent.end <= to;
            !extent.shared && is_whole && !replace_by_fresh(extent)
        });
        carry_out(&mut plan, false)
    })
}

/// Replaces resident pages by fresh reserved pages of the pool; `false` if it has none.
fn replace_by_fresh(extent: &Extent) -> bool {
    /// Maximum bytes held twice.
    const STEP: usize = 1 << 30;
    let is_plain = extent.marks == Marks::default() && !IS_LOCKED.load(Ordering::Relaxed);
    let mut at = extent.start;
    while at < extent.end {
        let mut end = at;
        while end < extent.end && end - at < STEP && is_present(end) {
            end += extent.page;
        }
        if at < end {
            let is_usual = is_plain && extent.page == sizes::superpage();
            // SAFETY: the program gives the contents up; the range's table entry stays valid.
            let place = || unsafe {
                source::place_hugetlb(at, end - at, extent.protection, libc::MAP_PRIVATE)
            };
            if !is_usual || place().is_err() {
                return false;
            }
        }
        at = end.max(at + extent.page);
    }
    true
}

/// Demotes one private page, before a fork; `false`: it is not on the pool, or stays there.
pub fn make_page_ordinary(start: usize, page: usize) -> bool {
    exclusive::within(start, start + page, || {
        let marks = marks_of(start);
        plan::is_hugetlb(start)
            && table::replacing_page(start, page, || to_ordinary(start, page, marks))
    })
}

/// Advice recorded for the superpage at an address.
pub fn marks_of(start: usize) -> Marks {
    let entry = table::first_entry(start, start + 1, |entry| !entry.is_ordinary);
    entry.map_or_else(Marks::default, |entry| entry.marks)
}

fn to_ordinary(start: usize, length: usize, marks: Marks) -> bool {
    let Some(protection) = protection_of(start) else { return false };
    let extent = Extent {
        page: length,
        protection,
        marks,
        mapping: (start, start + length),
        ..Extent::new(start, start + length)
    };
    raw::keeping_errno(|| replace(&mut [extent], true)).is_ok()
}

/// Replaces the extents of a plan, on an alternate stack if the current one is among them.
fn carry_out(plan: &mut Plan, keeps_contents: bool) -> Result<(), Errno> {
    let extents = plan.extents();
    let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(()) };
    let (low, high) = (first.start, last.end);
    raw::keeping_errno(|| {
        stack::on_alternate_if_within(low, high, || replace(extents, keeps_contents))
    })
}

fn replace(extents: &mut [Extent], keeps_contents: bool) -> Result<(), Errno> {
    let rings = pinned::rings(extents);
    if !object::are_only_here(extents) || rings.have_buffer {
        counters::count_reason(Reason::Held);
        return Err(libc::ENOMEM);
    }
    let result = make_copies(extents).and_then(|()| {
        let guard = if keeps_contents { protect_from_writes(extents, rings)? } else { None };
        let result = fill_copies(extents, keeps_contents).and_then(|()| put_copies(extents));
        drop(guard);
        result
    });
    // Update the table only now: a writer that was blocked may have held its lock.
    for extent in extents.iter() {
        if extent.is_replaced {
            note_ordinary(extent);
        } else if extent.copy != 0 {
            // SAFETY: ours, and not in use.
            let _ = unsafe { raw::munmap(extent.copy, extent.length()) };
        }
    }
    if result.is_err() {
        counters::count_reason(Reason::Kernel);
    }
    result
}

/// Maps ordinary memory for each extent. The extents of a shared mapping get one object, so that the program can
/// enlarge it, map it again and rearrange it.
fn make_copies(extents: &mut [Extent]) -> Result<(), Errno> {
    check_memory(extents)?;
    let mut at = 0;
    while at < extents.len() {
        let (rest, first) = (&extents[at..], extents[at]);
        let beside = |extent: &&Extent| extent.shared && extent.mapping == first.mapping;
        let count = rest.iter().take_while(beside).count().max(1);
        let length = rest[..count].iter().map(Extent::length).sum();
        let page = rest[..count].iter().map(|extent| extent.page).max().unwrap_or(first.page);
        let copy = map_copy(length, page, first.shared)?;
        for extent in &mut extents[at..at + count] {
            extent.copy = copy + (extent.start - first.start);
        }
        at += count;
    }
    Ok(())
}

fn map_copy(length: usize, page: usize, shared: bool) -> Result<usize, Errno> {
    let start = source::reserve(length, page)?;
    let sharing = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: address space of our own.
    if let Err(errno) = unsafe { raw::mmap(start, length, raw::READ_WRITE, flags, -1, 0) } {
        // SAFETY: as above.
        let _ = unsafe { raw::munmap(start, length) };
        return Err(errno);
    }
    executor::advise(advisor::Kind::Copy, settings::get().fallback, start, length);
    Ok(start)
}

/// Fails if memory for large copies is not available: an error is better than the OOM killer.
fn check_memory(extents: &[Extent]) -> Result<(), Errno> {
    const UNCHECKED: usize = 64 << 20;
    let bytes: usize = extents.iter().map(Extent::length).sum();
    if bytes <= UNCHECKED {
        return Ok(());
    }
    let present = |extent: &Extent| {
        let pages = (extent.start..extent.end).step_by(extent.page);
        pages.filter(|page| extent.shared || is_present(*page)).count() * extent.page
    };
    let needed: usize = extents.iter().map(present).sum();
    match limits::available_memory() {
        Some(available) if available < needed => Err(libc::ENOMEM),
        _ => Ok(()),
    }
}

/// Blocks writers to the extents while the guard lives.
fn protect_from_writes(extents: &[Extent], rings: Rings) -> Result<Option<WriteProtect>, Errno> {
    if write_protect::has_one_thread() && !rings.are_any {
        return Ok(None);
    }
    let guard = WriteProtect::new().ok_or(libc::ENOMEM)?;
    let mut copied = extents.iter().filter(|extent| extent.copy != 0);
    for extent in copied.clone().filter(|extent| extent.in_place) {
        // A range can be registered with only one userfaultfd.
        write_protect::unregister(extent.start, extent.length());
    }
    let is_protected = copied.all(|extent| guard.protect(extent.start, extent.length()));
    if is_protected { Ok(Some(guard)) } else { Err(libc::ENOMEM) }
}

/// Gives the copies the contents, the protections and the advice of the extents.
fn fill_copies(extents: &mut [Extent], keeps_contents: bool) -> Result<(), Errno> {
    let mut memory = None;
    for extent in extents.iter_mut().filter(|extent| extent.copy != 0) {
        let (copy, length) = (extent.copy, extent.length());
        let is_readable = extent.protection & libc::PROT_READ != 0;
        // SAFETY: the extent is readable, or read through `memory`; no thread writes it, and the copy is ours.
        unsafe {
            if keeps_contents {
                if !is_readable && memory.is_none() {
                    memory = Some(own_memory()?);
                }
                copy_contents(extent, memory.as_ref().filter(|_| !is_readable))?;
            }
            advise_alike(copy, length, extent.marks)?;
            raw::mprotect(copy, length, extent.protection)?;
            let locked = match extent.marks.locked {
                Locked::No if !IS_LOCKED.load(Ordering::Relaxed) => 0,
                Locked::OnFault => raw::call!(SYS_mlock2, copy, length, libc::MLOCK_ONFAULT),
                _ => raw::call!(SYS_mlock, copy, length),
            };
            // mlock locks unreadable memory, but fails because it cannot populate it.
            if locked != 0 && is_readable {
                return Err(libc::ENOMEM);
            }
        }
    }
    Ok(())
}

/// Gives a copy the advice and the policy that the kernel keeps per VMA. Otherwise the copy would not merge with its
/// mapping.
///
/// # Safety
/// The caller owns the copy.
pub unsafe fn advise_alike(copy: usize, length: usize, marks: Marks) -> Result<(), Errno> {
    let asked = [
        (marks.dont_fork, libc::MADV_DONTFORK),
        (marks.dont_dump, libc::MADV_DONTDUMP),
        (marks.order != libc::MADV_NORMAL, marks.order),
    ];
    for (_, advice) in asked.into_iter().filter(|(is_asked, _)| *is_asked) {
        // SAFETY: the caller keeps this function's contract; it changes no contents.
        unsafe { raw::madvise(copy, length, advice) }?;
    }
    match marks.policy {
        // SAFETY: as above.
        Some(policy) => unsafe { raw::mbind(copy, length, policy.mode, &[policy.nodes]) },
        None => Ok(()),
    }
}

/// Opens /proc/self/mem to copy unreadable memory. Making the memory readable would let other threads read it.
fn own_memory() -> Result<raw::File, Errno> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let opened = raw::keeping_errno(|| raw::open(c"/proc/self/mem", flags, 0));
    opened.map(raw::File).ok_or(libc::ENOMEM)
}

/// Copies pieces that are not zero: a fresh copy is zero.
///
/// # Safety
/// The extent is readable, or `memory` is given; the copy is ours.
unsafe fn copy_contents(extent: &Extent, memory: Option<&raw::File>) -> Result<(), Errno> {
    for page in (0..extent.length()).step_by(extent.page) {
        // A shared object may have pages that this process has not mapped yet.
        let at = extent.start + page;
        let may_have_contents = match extent.in_place {
            true => in_place::may_have_contents(at, extent.page),
            false => extent.shared || is_present(at),
        };
        if !may_have_contents {
            continue;
        }
        for at in (page..page + extent.page).step_by(PIECE) {
            let (from, to) = (extent.start + at, extent.copy + at);
            match memory {
                // SAFETY: the caller keeps this function's contract.
                None => unsafe { copy_piece(from, to) },
                // SAFETY: the copy is ours.
                Some(memory) => unsafe { copy_unreadable(memory, from, to) }?,
            }
        }
    }
    Ok(())
}

/// Bytes copied at once: the smallest base page of any architecture.
const PIECE: usize = 4096;

/// # Safety
/// `from` is readable and `to` ours, [`PIECE`] bytes each.
unsafe fn copy_piece(from: usize, to: usize) {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        if !raw::is_zero(from, PIECE) {
            std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PIECE);
        }
    }
}

/// As [`copy_piece`], for unreadable memory. Not inlined because of its buffer: a signal handler's stack may be small.
///
/// # Safety
/// `to` is ours, [`PIECE`] bytes.
#[inline(never)]
unsafe fn copy_unreadable(memory: &raw::File, from: usize, to: usize) -> Result<(), Errno> {
    let mut buffer = [0u64; PIECE / size_of::<u64>()];
    memory.read_at(from, &mut buffer).ok_or(libc::ENOMEM)?;
    // SAFETY: a buffer of a piece, and the contract.
    unsafe { copy_piece(buffer.as_ptr() as usize, to) };
    Ok(())
}

/// Moves the copies over the extents.
fn put_copies(extents: &mut [Extent]) -> Result<(), Errno> {
    for extent in extents.iter_mut().filter(|extent| extent.copy != 0) {
        // SAFETY: both are whole VMAs or parts of them; the copy has the contents of the extent.
        let mut put = || unsafe { raw::move_to(extent.copy, extent.length(), extent.start) };
        let is_put = match extent.in_place {
            true => in_place::unmap_and_free(extent.start, extent.end, &mut put),
            false => put(),
        };
        is_put.map_err(|_| libc::ENOMEM)?;
        extent.is_replaced = true;
    }
    Ok(())
}

/// Records in the table and counters that an extent was replaced.
fn note_ordinary(extent: &Extent) {
    let Extent { start, end, page, shared, mapping, .. } = *extent;
    table::remove(start, end);
    if !shared {
        // If there is no memory for the entry, the extent cannot be moved together with its neighbours.
        table::add_ordinary(Range { start, end, page, shared }, mapping);
    }
    if page > raw::base_page() {
        let kind = if shared { Kind::Shared } else { Kind::Mmap };
        counters::count_reason(Reason::Split);
        counters::count(kind, Column::Returned, end - start);
        counters::count(kind, Column::FellBack, end - start);
    }
}

/// Whether the page is resident; an absent one is zero, like a fresh copy.
pub fn is_present(start: usize) -> bool {
    pagemap::is_resident(start) != Some(false)
}

/// Copies resident pages (of size `page`); the others are zero in both ranges, and stay so.
///
/// # Safety
/// Both ranges have at least `length` bytes; the first is readable, the second the caller's to write.
pub unsafe fn copy_present(from: usize, to: usize, length: usize, page: usize) {
    for at in (0..length).step_by(page) {
        if is_present(from + at) {
            // SAFETY: the caller keeps this function's contract.
            unsafe {
                let (from, to) = ((from + at) as *const u8, (to + at) as *mut u8);
                std::ptr::copy_nonoverlapping(from, to, page);
            }
        }
    }
}

/// The protection of the VMA at an address.
pub fn protection_of(address: usize) -> Option<c_int> {
    maps::at(address).map(|vma| vma.protection())
}
