//! What of a range lies on the pool, as the kernel has it now: the pieces that a demotion replaces.
//!
//! # Safety
//! The list lives in a mapping of its own, which ends with it.

use std::ffi::c_int;

use super::demote::Extent;
use super::table::{self, Marks, Row};
use crate::maps::{self, Vma};
use crate::raw::{self, Errno};

/// A run of memory of one mapping with one protection, and what is to take its place.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// Size of its pages: a superpage, or the base page for a shared mapping's base pages.
    pub page: usize,
    /// Whether it is shared memory.
    pub shared: bool,
    /// As `mprotect(2)` takes it.
    pub protection: c_int,
    /// What was advised.
    pub marks: Marks,
    /// The mapping that it was made as a part of.
    pub mapping: (usize, usize),
    /// The object behind shared memory: device and inode.
    pub file: (u64, u64),
    /// Where in the object it begins.
    pub offset: u64,
    /// Where the copy lies, once there is one.
    pub copy: usize,
    /// Whether the piece was made readable to be copied.
    pub is_opened: bool,
    /// Whether the copy has taken its place.
    pub is_replaced: bool,
}

impl Piece {
    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.end - self.start
    }

    /// Whether `next` begins where this ends and is of the same kind.
    fn continues_in(&self, next: &Self) -> bool {
        self.end == next.start
            && (self.page, self.shared, self.protection)
                == (next.page, next.shared, next.protection)
            && (self.marks, self.mapping) == (next.marks, next.mapping)
            && (!self.shared
                || self.file == next.file && self.offset + self.length() as u64 == next.offset)
    }
}

/// The pieces, ascending.
pub struct Plan {
    pieces: *mut Piece,
    used: usize,
    capacity: usize,
}

/// As many mappings as a process has at most (vm.max_map_count, as it usually is).
const MAX_PIECES: usize = 65_530;

impl Plan {
    /// What of `[from, to)` and of the superpages around its edges is to be replaced; `ENOMEM` where that
    /// cannot be found out.
    pub fn new(from: usize, to: usize, extent: Extent) -> Result<Self, Errno> {
        let mut plan = Self { pieces: std::ptr::null_mut(), used: 0, capacity: 0 };
        let (mut low, mut high, mut at) = (usize::MAX, 0, from);
        while let Some(row) = table::first_row(at, to, concerns) {
            let (first, last) = span(&row, from, to, extent);
            (low, high) = (low.min(first), high.max(last));
            at = row.range.end;
        }
        if low >= high {
            return Ok(plan);
        }
        let bytes = MAX_PIECES * size_of::<Piece>();
        let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: fresh memory, of which as much comes to be as there are pieces.
        let list = unsafe { raw::mmap(0, bytes, raw::READ_WRITE, flags, -1, 0) }?;
        (plan.pieces, plan.capacity) = (list as *mut Piece, MAX_PIECES);
        let mut is_whole = true;
        let read = maps::each(|vma| {
            if vma.start < high && low < vma.end {
                is_whole &= plan.enter(vma, (low, high), (from, to), extent);
            }
        });
        if read.is_none() || !is_whole || !plan.has_whole_objects() {
            return Err(libc::ENOMEM);
        }
        Ok(plan)
    }

    /// Whether all is here of the objects behind shared pieces. Of a part that was unmapped the contents
    /// are still in the object, and nobody could copy them.
    fn has_whole_objects(&mut self) -> bool {
        let is_of = |mapping| move |piece: &&Piece| piece.shared && piece.mapping == mapping;
        let pieces = &*self.pieces();
        pieces.iter().filter(|piece| piece.shared).all(|piece| {
            let (start, end) = piece.mapping;
            let parts = || pieces.iter().filter(is_of(piece.mapping));
            parts().map(Piece::length).sum::<usize>() == end - start
                && parts().next().is_some_and(|first| first.offset == 0)
        })
    }

    /// The pieces.
    pub fn pieces(&mut self) -> &mut [Piece] {
        if self.pieces.is_null() {
            return &mut [];
        }
        // SAFETY: `used` have been written.
        unsafe { std::slice::from_raw_parts_mut(self.pieces, self.used) }
    }

    /// Leaves out the pieces that `is_kept` says no of.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Piece) -> bool) {
        let mut kept = 0;
        for at in 0..self.used {
            let piece = self.pieces()[at];
            if is_kept(&piece) {
                self.pieces()[kept] = piece;
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// Enters what of a mapping is meant; `false` if there is no place for it.
    fn enter(
        &mut self,
        vma: &Vma,
        (low, high): (usize, usize),
        (from, to): (usize, usize),
        extent: Extent,
    ) -> bool {
        let (mut at, end) = (vma.start.max(low), vma.end.min(high));
        let mut is_whole = true;
        while let Some(row) = table::first_row(at, end, concerns) {
            let start = row.range.start.max(at);
            at = row.range.end.min(end);
            let is_as_entered = match row.is_ordinary {
                true => vma.is_anonymous_shared(),
                false => is_hugetlb(start),
            };
            if !is_as_entered {
                // It was unmapped past us, and something else is there now.
                table::remove(start, at);
                continue;
            }
            for (first, last) in wanted(&row, from, to, extent) {
                let (first, last) = (first.max(start), last.min(at));
                if first < last {
                    is_whole &= self.push(piece_of(vma, first, last, &row));
                }
            }
        }
        is_whole
    }

    fn push(&mut self, piece: Piece) -> bool {
        if let Some(last) = self.pieces().last_mut()
            && last.continues_in(&piece)
        {
            last.end = piece.end;
            return true;
        }
        if self.used == self.capacity {
            return false;
        }
        // SAFETY: below the capacity.
        unsafe { self.pieces.add(self.used).write(piece) };
        self.used += 1;
        true
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        if !self.pieces.is_null() {
            let bytes = self.capacity * size_of::<Piece>();
            // SAFETY: ours, and nobody borrows it any more.
            let _ = unsafe { raw::munmap(self.pieces as usize, bytes) };
        }
    }
}

fn piece_of(vma: &Vma, start: usize, end: usize, row: &Row) -> Piece {
    Piece {
        start,
        end,
        page: if row.is_ordinary { raw::base_page() } else { row.range.page },
        shared: !vma.is_private(),
        protection: vma.protection(),
        marks: row.marks,
        mapping: row.mapping,
        file: vma.file,
        offset: vma.offset + (start - vma.start) as u64,
        copy: 0,
        is_opened: false,
        is_replaced: false,
    }
}

/// Whether a row can be replaced: base pages only as the tail of a shared mapping.
pub fn concerns(row: &Row) -> bool {
    !row.is_ordinary || row.range.shared
}

/// Everything that is looked at because of a row.
fn span(row: &Row, from: usize, to: usize, extent: Extent) -> (usize, usize) {
    match extent {
        Extent::Mapping => row.mapping,
        _ if row.range.shared => row.mapping,
        _ => (down(from, row.range.page), up(to, row.range.page)),
    }
}

/// What of a row is to be replaced.
fn wanted(row: &Row, from: usize, to: usize, extent: Extent) -> [(usize, usize); 2] {
    const NOTHING: (usize, usize) = (0, 0);
    let (range, page) = (row.range, row.range.page);
    match extent {
        _ if range.shared => {
            let is_wanted = is_wanted_whole(row.mapping, page, from, to, extent);
            [if is_wanted { (range.start, range.end) } else { NOTHING }, NOTHING]
        }
        Extent::Covered => [(down(from, page), up(to, page)), NOTHING],
        Extent::Mapping if row.mapping.0 < to && from < row.mapping.1 => {
            [(range.start, range.end), NOTHING]
        }
        Extent::Mapping => [NOTHING; 2],
        Extent::Edges | Extent::Removed => {
            let around = |edge: usize| {
                let (is_inside, at) = (range.start < edge && edge < range.end, down(edge, page));
                if is_inside && at != edge { (at, at + page) } else { NOTHING }
            };
            let (first, last) = (around(from), around(to));
            [first, if last == first { NOTHING } else { last }]
        }
    }
}

/// Whether a shared mapping is to be replaced, which is done as a whole: parts of its object have no object
/// of their own.
fn is_wanted_whole(
    (start, end): (usize, usize),
    page: usize,
    from: usize,
    to: usize,
    extent: Extent,
) -> bool {
    let body = start..down(end, page);
    let overlaps = start < to && from < end;
    let cuts = |edge: &usize| body.contains(edge) && !edge.is_multiple_of(page);
    match extent {
        Extent::Covered | Extent::Mapping => overlaps,
        Extent::Edges => [from, to].iter().any(cuts),
        Extent::Removed => overlaps && !(from <= start && end <= to),
    }
}

fn down(address: usize, page: usize) -> usize {
    address - address % page
}

/// The next multiple.
pub fn up(address: usize, page: usize) -> usize {
    address.checked_next_multiple_of(page).unwrap_or(usize::MAX)
}

/// Whether there are pages of the pool at `start`, the first address of one. Asked by a call that does
/// nothing: to leave its second base page as it is, which cannot be said of part of such a page.
pub fn is_hugetlb(start: usize) -> bool {
    let base = raw::base_page();
    let part = start + base;
    // SAFETY: the same size, at the same place.
    let asked = raw::keeping_errno(|| unsafe {
        if raw::call!(SYS_mremap, part, base, base, 0) == -1 { raw::errno() } else { 0 }
    });
    asked != 0 && asked != libc::EFAULT
}
