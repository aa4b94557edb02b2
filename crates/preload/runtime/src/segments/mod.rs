//! Text, data and bss of the program and of the libraries it starts with, on superpages.
//!
//! When the library is loaded, the program is mapped and relocated, and none of its code has run. Each segment that
//! holds whole aligned superpages is moved to superpages in place: the contents are copied to fresh superpages, these
//! get the protection of the original, and one mremap moves them over the original. No address changes, so there is
//! nothing to relocate, and nothing is unmapped at any moment.
//!
//! | part | on THP | on hugetlb |
//! |---|---|---|
//! | text | the file's own superpages, or base pages | the same |
//! | text=copy | the file's own superpages if there are any, else a copy | a copy |
//! | data | a copy | a copy |
//! | bss | advised in place, touched pages collapsed | fresh pages, touched pages copied |
//!
//! Code is copied only on explicit request. A copy belongs to no file. A program breaks if it finds its code by the
//! file's name in /proc/self/maps and maps the code again (V8 does, nodejs/node issue 64408). Code of V8 is never
//! copied.
//!
//! Constants stay in place unless `hugeedit` has marked their segment: a copy is private memory, made whether it is
//! used or not, and libraries such as ICU contain 28 MiB of constants.
//!
//! Protection is never widened: a superpage that would span two protections (RELRO and data, code and constants) is
//! left alone. The ends of a segment that fill no superpage get one only if nothing else is mapped around them.
//!
//! # Safety
//! There is one thread, and it runs only our code, libc's and the kernel's. Our own segments are left alone. libc's may
//! move: its code is the same before and after.
//! See docs/decisions/segments.md#1 and #3.

use crate::counters::{self, Column, Kind, Reason};
use crate::executor;
use crate::pagemap;
use crate::settings::{Fallback, Pages, Settings, Text};
use crate::sizes;
use crate::source;

mod image;
pub mod legacy;
mod relocate;
mod share;

use image::{Extent, Segments};

/// How to move a segment.
#[derive(Clone, Copy)]
struct Placement {
    /// THP or hugetlb.
    pages: Pages,
    /// Superpage size.
    page: usize,
    fallback: Fallback,
    fit: Fit,
    /// Whether code may be copied.
    text: Text,
    /// Put text and constants on the same pages in all processes.
    share: Option<Share>,
}

#[derive(Clone, Copy)]
struct Share {
    /// Directory; `None`: in the hugetlbfs mount.
    directory: Option<&'static [u8]>,
}

/// Which superpages a segment gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Superpages that the extent fills, and superpages at its ends that it fills at least by half.
    Filled,
    /// Superpages that the extent touches; at an end where something else is mapped, only
    /// superpages that it fills.
    Touched,
    /// Only those that it fills.
    Inside,
    /// All superpages that the extent touches, or none, as in libhugetlbfs.
    Whole,
}

/// Puts the segments that the settings name on superpages.
pub fn provide(settings: &Settings) {
    let memory = settings.memory;
    if memory.text.is_none() && !memory.data {
        return;
    }
    let page = sizes::superpage();
    let wanted = |is_written: bool| if is_written { memory.data } else { memory.text.is_some() };
    let mut segments = Segments::new();
    image::each_segment(|segment, _| {
        if wanted(segment.is_written) {
            if segment.may_fill(page) || segment.is_marked {
                segments.push(segment);
            } else {
                counters::count(kind(segment.is_written), Column::Small, segment.length());
            }
        }
    });
    if segments.is_empty() {
        return;
    }
    let mut text = memory.text.unwrap_or(Text::File);
    if text == Text::Copy && image::has_v8() {
        counters::count_reason(Reason::MappedAgain);
        text = Text::File;
    }
    let debugged = settings.is_hugetlb() && text == Text::Copy && image::is_traced();
    image::each_extent(&segments, false, |extent| {
        if !extent.is_written && !extent.is_code() && !extent.is_marked {
            counters::count(Kind::Text, Column::Small, extent.end - extent.start);
            return;
        }
        let fit = if extent.is_marked { Fit::Touched } else { Fit::Filled };
        let (pages, fallback) = (settings.pages, settings.fallback);
        let mut placement = Placement { pages, page, fallback, fit, text, share: None };
        // A debugger cannot write breakpoints into pool pages without write permission (EFAULT).
        if debugged && extent.is_code() {
            counters::count_reason(Reason::Place);
            placement.pages = Pages::Thp(0);
        }
        put(&extent, &placement);
    });
}

fn kind(is_written: bool) -> Kind {
    if is_written { Kind::Data } else { Kind::Text }
}

/// Puts one extent on superpages, as far as they fit; `true` if that succeeded.
fn put(extent: &Extent, placement: &Placement) -> bool {
    let kind = kind(extent.is_written);
    if !extent.is_written && placement.text == Text::File {
        return put_on_file(extent, placement);
    }
    let Some((first, last)) = extent.fitting(placement.page, placement.fit) else {
        counters::count(kind, Column::Small, extent.end - extent.start);
        return false;
    };
    let inside = last.min(extent.end) - first.max(extent.start);
    counters::count(kind, Column::Small, extent.end - extent.start - inside);
    if extent.is_written {
        return put_part(kind, extent, first, last, placement);
    }
    if let Some(Share { directory }) = placement.share
        && placement.fit == Fit::Whole
        && pagemap::is_as_in_file(first, last - first)
        && share::place(extent, (first, last), placement.page, directory)
    {
        counters::count(kind, Column::Hugetlb, last - first);
        return true;
    }
    // Code that was modified (a debugger's breakpoint, a uprobe) stays in place: the kernel finds its uprobes by the
    // file mapping, and would kill a program that hits one in a copy.
    let mut any = false;
    let mut at = first;
    while at < last {
        let from = at;
        while at < last && pagemap::is_as_in_file(at, placement.page) {
            at += placement.page;
        }
        if from < at {
            any |= put_part(kind, extent, from, at, placement);
        }
        if at < last {
            counters::count_reason(Reason::Place);
            counters::count(kind, Column::FellBack, placement.page);
            at += placement.page;
        }
    }
    any
}

/// Puts code on its file's superpages where the file has any. The mapping stays one of the file; only
/// its pages change.
fn put_on_file(extent: &Extent, placement: &Placement) -> bool {
    let length = extent.end - extent.start;
    let Some((first, last)) = extent.fitting(placement.page, Fit::Inside) else {
        counters::count(Kind::Text, Column::Small, length);
        return false;
    };
    let on = relocate::to_file(extent, first, last, placement.page);
    let off = last - first - on;
    counters::count(Kind::Text, Column::Small, length - (last - first));
    counters::count(Kind::Text, Column::Advised, on);
    if off > 0 {
        if matches!(placement.pages, Pages::Hugetlb(_))
            && executor::fall_back(placement.fallback, off) == Fallback::Error
        {
            source::refuse(Kind::Text);
        }
        counters::count_reason(Reason::SmallFilePages);
        counters::count(Kind::Text, Column::FellBack, off);
    }
    off == 0
}

/// Puts superpages under `[first, last)`, a part of `extent`.
fn put_part(kind: Kind, extent: &Extent, first: usize, last: usize, placement: &Placement) -> bool {
    let length = last - first;
    let in_mount = placement.fit == Fit::Whole;
    let to_pool = || relocate::to_hugetlb(extent, (first, last), placement.page, in_mount);
    let (column, reason) = match placement.pages {
        Pages::Hugetlb(_) => match to_pool() {
            Ok(()) => (Column::Hugetlb, None),
            Err(why) => match executor::fall_back(placement.fallback, length) {
                Fallback::Error => source::refuse(kind),
                Fallback::Base => (Column::FellBack, Some(why)),
                Fallback::Thp => {
                    counters::count_reason(why);
                    // Pool pages of 1 GiB fall back to THP of 2 MiB, which the extent fills, too.
                    let other = relocate::to_thp(extent, first, last, placement.page);
                    (Column::FellBack, other.err())
                }
            },
        },
        _ => match relocate::to_thp(extent, first, last, placement.page) {
            Ok(()) => (Column::Advised, None),
            Err(why) => (Column::FellBack, Some(why)),
        },
    };
    if let Some(why) = reason {
        counters::count_reason(why);
    }
    counters::count(kind, column, length);
    reason.is_none()
}
