//! Text, data and bss of the program and of the libraries it starts with, on superpages.
//!
//! When the library is loaded the program is mapped and relocated, and nothing of it has run. Each
//! segment that holds whole aligned superpages is put on them in place: the contents are copied
//! into fresh superpages, these get the protection of the original, and one mremap moves them over
//! it. No address changes, so there is nothing to relocate, and at no moment is anything unmapped.
//!
//! | part | on THP | on hugetlb |
//! |---|---|---|
//! | text | the file's own superpages, or base pages | the same |
//! | text=copy | the file's own superpages where there are any, else a copy | a copy |
//! | data | a copy | a copy |
//! | bss | advised where it is, what was touched collapsed | fresh pages, what was touched copied |
//!
//! Code is copied only where that is asked for by name. A copy is no file's: a program that finds its code
//! by the file's name in /proc/self/maps and maps it again (V8 does, nodejs/node issue 64408) breaks, and
//! so would whatever else takes its code for the file's. Code of V8 is never copied.
//!
//! Constants stay where they are unless their segment is marked by `hugeedit`: a copy is private
//! memory, made whether it is used or not, and libraries such as ICU bring 28 MiB of them.
//!
//! Protection is never widened: a superpage that would span memory of two protections (RELRO and
//! data, code and constants) stays as it is. The ends of a segment that fill no superpage are put
//! on one only where nothing else is mapped around them.
//!
//! # Safety
//! There is one thread, and it runs code of ours, of libc and of the kernel. Our own segments are
//! left alone. libc's may move: what is executed there is the same before and after.
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

/// What is asked for a segment.
#[derive(Clone, Copy)]
struct Order {
    /// THP or hugetlb.
    pages: Pages,
    /// The size of a superpage.
    page: usize,
    fallback: Fallback,
    fit: Fit,
    /// What may be done about code.
    text: Text,
    /// Text and constants are to be the same pages in all processes.
    share: Option<Share>,
}

/// How text is shared.
#[derive(Clone, Copy)]
struct Share {
    /// Where; `None`: in the mount of hugetlbfs.
    directory: Option<&'static [u8]>,
}

/// Which superpages a segment is to get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Those that it fills, and those at its ends that it fills at least by half.
    Filled,
    /// Those that it touches, or if something else is in the way, those that it fills.
    Touched,
    /// Those that it fills and no others.
    Inside,
    /// Those that it touches, or none: what libhugetlbfs did.
    Whole,
}

/// Puts on superpages what the settings name. Returns at once when they name no segments, and after
/// a look at the program headers when no segment is large enough.
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
        counters::because(Reason::MappedAgain);
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
        let mut order = Order { pages, page, fallback, fit, text, share: None };
        // A debugger cannot write breakpoints into pool pages without write permission (EFAULT).
        if debugged && extent.is_code() {
            counters::because(Reason::Place);
            order.pages = Pages::Thp(0);
        }
        put(&extent, &order);
    });
}

fn kind(is_written: bool) -> Kind {
    if is_written { Kind::Data } else { Kind::Text }
}

/// Puts one extent on superpages, as far as they fit; `true` if they did.
fn put(extent: &Extent, order: &Order) -> bool {
    let kind = kind(extent.is_written);
    if !extent.is_written && order.text == Text::File {
        return put_on_file(extent, order);
    }
    let Some((first, last)) = extent.fitting(order.page, order.fit) else {
        counters::count(kind, Column::Small, extent.end - extent.start);
        return false;
    };
    let inside = last.min(extent.end) - first.max(extent.start);
    counters::count(kind, Column::Small, extent.end - extent.start - inside);
    if extent.is_written {
        return put_part(kind, extent, first, last, order);
    }
    if let Some(Share { directory }) = order.share
        && order.fit == Fit::Whole
        && pagemap::is_as_in_file(first, last - first)
        && share::place(extent, (first, last), order.page, directory)
    {
        counters::count(kind, Column::Hugetlb, last - first);
        return true;
    }
    // Code in which somebody has set a mark (a debugger's breakpoint, a uprobe) stays what it is:
    // the kernel knows its uprobes by the file's mapping, and would kill a program that runs into
    // one elsewhere.
    let mut any = false;
    let mut at = first;
    while at < last {
        let from = at;
        while at < last && pagemap::is_as_in_file(at, order.page) {
            at += order.page;
        }
        if from < at {
            any |= put_part(kind, extent, from, at, order);
        }
        if at < last {
            counters::because(Reason::Place);
            counters::count(kind, Column::FellBack, order.page);
            at += order.page;
        }
    }
    any
}

/// Code on its file's superpages, as far as there are some: nothing of it changes but the pages under it.
fn put_on_file(extent: &Extent, order: &Order) -> bool {
    let length = extent.end - extent.start;
    let Some((first, last)) = extent.fitting(order.page, Fit::Inside) else {
        counters::count(Kind::Text, Column::Small, length);
        return false;
    };
    let on = relocate::to_file(extent, first, last, order.page);
    let off = last - first - on;
    counters::count(Kind::Text, Column::Small, length - (last - first));
    counters::count(Kind::Text, Column::Advised, on);
    if off > 0 {
        if matches!(order.pages, Pages::Hugetlb(_))
            && executor::fall_back(order.fallback, off) == Fallback::Error
        {
            source::refuse(Kind::Text);
        }
        counters::because(Reason::SmallFilePages);
        counters::count(Kind::Text, Column::FellBack, off);
    }
    off == 0
}

/// Puts the superpages at `[first, last)` under a part of `extent`.
fn put_part(kind: Kind, extent: &Extent, first: usize, last: usize, order: &Order) -> bool {
    let length = last - first;
    let in_mount = order.fit == Fit::Whole;
    let to_pool = || relocate::to_hugetlb(extent, (first, last), order.page, in_mount);
    let (column, reason) = match order.pages {
        Pages::Hugetlb(_) => match to_pool() {
            Ok(()) => (Column::Hugetlb, None),
            Err(why) => match executor::fall_back(order.fallback, length) {
                Fallback::Error => source::refuse(kind),
                Fallback::Base => (Column::FellBack, Some(why)),
                Fallback::Thp => {
                    counters::because(why);
                    // Pool pages of 1 GiB would fall back to THP of 2 MiB: those it still fills.
                    let other = relocate::to_thp(extent, first, last, order.page);
                    (Column::FellBack, other.err())
                }
            },
        },
        _ => match relocate::to_thp(extent, first, last, order.page) {
            Ok(()) => (Column::Advised, None),
            Err(why) => (Column::FellBack, Some(why)),
        },
    };
    if let Some(why) = reason {
        counters::because(why);
    }
    counters::count(kind, column, length);
    reason.is_none()
}
