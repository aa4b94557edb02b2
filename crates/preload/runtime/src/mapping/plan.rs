//! The extents that a demotion replaces: the parts of a range that lie on the pool, according to the kernel.
//!
//! # Safety
//! The list lives in a mapping of its own, which is unmapped when the plan is dropped.

use std::ffi::c_int;

use super::demote::Scope;
use crate::maps::{self, Vma};
use crate::raw::{self, Errno};
use crate::table::{self, Entry, Marks};

/// Contiguous memory of one mapping with one protection, and its copy.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// Page size: a superpage, or the base page for base pages of a shared mapping.
    pub page: usize,
    /// Whether it is shared memory.
    pub shared: bool,
    /// Whether it lies in a file of `in_place`.
    pub in_place: bool,
    /// Protection, as `mprotect(2)` takes it.
    pub protection: c_int,
    /// Advice.
    pub marks: Marks,
    /// `[start, end)` of the program's mapping that the extent is part of.
    pub mapping: (usize, usize),
    /// The object behind shared memory: device and inode.
    pub file: (u64, u64),
    /// Offset in the object.
    pub offset: u64,
    /// Address of the copy; 0: none yet.
    pub copy: usize,
    /// Whether the copy has replaced the extent.
    pub is_replaced: bool,
}

impl Extent {
    /// A private extent; the other fields are zero.
    pub fn new(start: usize, end: usize) -> Self {
        Self {
            start,
            end,
            page: 0,
            shared: false,
            in_place: false,
            protection: 0,
            marks: Marks::default(),
            mapping: (0, 0),
            file: (0, 0),
            offset: 0,
            copy: 0,
            is_replaced: false,
        }
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.end - self.start
    }

    /// Whether `next` follows directly, with equal properties.
    fn continues_in(&self, next: &Self) -> bool {
        self.end == next.start
            && (self.page, self.shared, self.protection)
                == (next.page, next.shared, next.protection)
            && (self.marks, self.mapping) == (next.marks, next.mapping)
            && self.in_place == next.in_place
            && (!(self.shared || self.in_place)
                || self.file == next.file && self.offset + self.length() as u64 == next.offset)
    }
}

/// Extents in ascending order.
pub struct Plan {
    extents: *mut Extent,
    used: usize,
    capacity: usize,
}

/// Maximum number of VMAs of a process (the default of vm.max_map_count).
const MAX_EXTENTS: usize = 65_530;

impl Plan {
    /// Finds the extents of `[from, to)`, and of the superpages at its edges, that must be replaced; `ENOMEM` if they
    /// cannot be determined.
    pub fn new(from: usize, to: usize, scope: Scope) -> Result<Self, Errno> {
        let mut plan = Self { extents: std::ptr::null_mut(), used: 0, capacity: 0 };
        let (mut low, mut high, mut at) = (usize::MAX, 0, from);
        while let Some(entry) = table::first_entry(at, to, is_replaceable) {
            let (first, last) = span(&entry, from, to, scope);
            (low, high) = (low.min(first), high.max(last));
            at = entry.range.end;
        }
        if low >= high {
            return Ok(plan);
        }
        let bytes = MAX_EXTENTS * size_of::<Extent>();
        // Only the part of the list that is used becomes resident.
        let list = raw::map(bytes, libc::MAP_NORESERVE)?;
        (plan.extents, plan.capacity) = (list as *mut Extent, MAX_EXTENTS);
        let mut is_whole = true;
        let read = maps::each(|vma| {
            if vma.start < high && low < vma.end {
                is_whole &= plan.enter(vma, (low, high), (from, to), scope);
            }
        });
        if read.is_none() || !is_whole || !plan.has_whole_objects() {
            return Err(libc::ENOMEM);
        }
        Ok(plan)
    }

    /// Whether the extents cover the objects behind shared extents completely. The contents of an unmapped part are
    /// still in the object, and could not be copied.
    fn has_whole_objects(&mut self) -> bool {
        let is_of = |mapping| move |extent: &&Extent| extent.shared && extent.mapping == mapping;
        let extents = &*self.extents();
        extents.iter().filter(|extent| extent.shared).all(|extent| {
            let (start, end) = extent.mapping;
            let parts = || extents.iter().filter(is_of(extent.mapping));
            parts().map(Extent::length).sum::<usize>() == end - start
                && parts().next().is_some_and(|first| first.offset == 0)
        })
    }

    pub fn extents(&mut self) -> &mut [Extent] {
        if self.extents.is_null() {
            return &mut [];
        }
        // SAFETY: `used` extents have been written.
        unsafe { std::slice::from_raw_parts_mut(self.extents, self.used) }
    }

    /// Keeps only the extents for which `is_kept` returns `true`.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Extent) -> bool) {
        let mut kept = 0;
        for at in 0..self.used {
            let extent = self.extents()[at];
            if is_kept(&extent) {
                self.extents()[kept] = extent;
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// Adds the parts of a VMA that must be replaced; `false` if the list is full.
    fn enter(
        &mut self,
        vma: &Vma,
        (low, high): (usize, usize),
        (from, to): (usize, usize),
        scope: Scope,
    ) -> bool {
        let (mut at, end) = (vma.start.max(low), vma.end.min(high));
        let mut is_whole = true;
        while let Some(entry) = table::first_entry(at, end, is_replaceable) {
            let start = entry.range.start.max(at);
            at = entry.range.end.min(end);
            let is_as_entered = match entry.is_ordinary {
                true => vma.is_anonymous_shared(),
                false => vma.is_in_place() || is_hugetlb(start),
            };
            if !is_as_entered {
                // The range was unmapped without this library, and another mapping replaced it.
                table::remove(start, at);
                continue;
            }
            for (first, last) in parts_to_replace(&entry, from, to, scope) {
                let (first, last) = (first.max(start), last.min(at));
                if first < last {
                    is_whole &= self.push(extent_from(vma, first, last, &entry));
                }
            }
        }
        is_whole
    }

    fn push(&mut self, extent: Extent) -> bool {
        if let Some(last) = self.extents().last_mut()
            && last.continues_in(&extent)
        {
            last.end = extent.end;
            return true;
        }
        if self.used == self.capacity {
            return false;
        }
        // SAFETY: below the capacity.
        unsafe { self.extents.add(self.used).write(extent) };
        self.used += 1;
        true
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        if !self.extents.is_null() {
            let bytes = self.capacity * size_of::<Extent>();
            // SAFETY: ours, and not borrowed any more.
            let _ = unsafe { raw::munmap(self.extents as usize, bytes) };
        }
    }
}

fn extent_from(vma: &Vma, start: usize, end: usize, entry: &Entry) -> Extent {
    // The program may have changed the protection of part of a superpage without this library; files permit that.
    let is_whole = [start, end].iter().all(|edge| edge.is_multiple_of(entry.range.page));
    Extent {
        page: if entry.is_ordinary || !is_whole { raw::base_page() } else { entry.range.page },
        shared: vma.is_shared_memory(),
        in_place: vma.is_in_place(),
        protection: vma.protection(),
        marks: entry.marks,
        mapping: entry.mapping,
        file: vma.file,
        offset: vma.offset + (start - vma.start) as u64,
        ..Extent::new(start, end)
    }
}

/// Whether an entry can be replaced. Base pages can be replaced only as the tail of a shared mapping.
pub fn is_replaceable(entry: &Entry) -> bool {
    !entry.is_ordinary || entry.range.shared
}

/// The range to examine because of an entry.
fn span(entry: &Entry, from: usize, to: usize, scope: Scope) -> (usize, usize) {
    match scope {
        Scope::Mapping => entry.mapping,
        _ if entry.range.shared => entry.mapping,
        _ => (down(from, entry.range.page), up(to, entry.range.page)),
    }
}

/// Whether any part of `[from, to)` must be replaced.
pub fn must_replace(from: usize, to: usize, scope: Scope) -> bool {
    let is_wanted = |entry: &Entry| {
        is_replaceable(entry)
            && parts_to_replace(entry, from, to, scope).iter().any(|(first, last)| first < last)
    };
    table::first_entry(from, to, is_wanted).is_some()
}

/// The parts of an entry that must be replaced; unused ones are empty.
fn parts_to_replace(entry: &Entry, from: usize, to: usize, scope: Scope) -> [(usize, usize); 2] {
    const NOTHING: (usize, usize) = (0, 0);
    let (range, page) = (entry.range, entry.range.page);
    match scope {
        _ if range.shared => {
            let is_wanted = is_wanted_whole(entry.mapping, page, from, to, scope);
            [if is_wanted { (range.start, range.end) } else { NOTHING }, NOTHING]
        }
        Scope::Covered => [(down(from, page), up(to, page)), NOTHING],
        Scope::Mapping if entry.mapping.0 < to && from < entry.mapping.1 => {
            [(range.start, range.end), NOTHING]
        }
        Scope::Mapping => [NOTHING; 2],
        Scope::Edges | Scope::Removed => {
            let around = |edge: usize| {
                let (is_inside, at) = (range.start < edge && edge < range.end, down(edge, page));
                if is_inside && at != edge { (at, at + page) } else { NOTHING }
            };
            let (first, last) = (around(from), around(to));
            [first, if last == first { NOTHING } else { last }]
        }
    }
}

/// Whether a shared mapping must be replaced. It is replaced as a whole: a part of its object cannot become an object
/// of its own.
fn is_wanted_whole(
    (start, end): (usize, usize),
    page: usize,
    from: usize,
    to: usize,
    scope: Scope,
) -> bool {
    let body = start..down(end, page);
    let overlaps = start < to && from < end;
    let cuts = |edge: &usize| body.contains(edge) && !edge.is_multiple_of(page);
    match scope {
        Scope::Covered | Scope::Mapping => overlaps,
        Scope::Edges => [from, to].iter().any(cuts),
        Scope::Removed => overlaps && !(from <= start && end <= to),
    }
}

fn down(address: usize, page: usize) -> usize {
    address - address % page
}

/// The next multiple of `page`.
pub fn up(address: usize, page: usize) -> usize {
    address.checked_next_multiple_of(page).unwrap_or(usize::MAX)
}

/// Whether a hugetlb page begins at `start`. Tests by an mremap of its second base page to the same size. The call
/// changes nothing, and fails inside a hugetlb page.
pub fn is_hugetlb(start: usize) -> bool {
    let base = raw::base_page();
    let part = start + base;
    // SAFETY: the same size, at the same address.
    let asked = raw::keeping_errno(|| unsafe {
        if raw::call!(SYS_mremap, part, base, base, 0) == -1 { raw::errno() } else { 0 }
    });
    asked != 0 && asked != libc::EFAULT
}
