//! Segments on hugetlb pages in the way of libhugetlbfs, requested by its environment variables.
//!
//! | variable | effect |
//! |---|---|
//! | `HUGETLB_ELFMAP=R`, `W`, `RW`, `R=2M:W=1G`, `no` | read-only, writable segments; page sizes |
//! | `HUGETLB_FORCE_ELFMAP=yes` | also programs not linked for it: whole pages inside their segments |
//! | `HUGETLB_RESTRICT_EXE=a:b` | only programs with these names |
//! | `HUGETLB_DEFAULT_PAGE_SIZE` | page size if none is named |
//! | `HUGETLB_VERBOSE` | from 2, its default, segments that get no pages are reported |
//! | `HUGETLB_MINIMAL_COPY` | accepted and ignored: touched pages are copied, symbols are not read |
//! | `HUGETLB_SHARE=1`, `HUGETLB_SHARE_PATH` | text and constants of all processes on the same pages, in a file |
//!
//! Without `HUGETLB_ELFMAP`, the segments that `hugeedit` marked are moved. A segment is moved as a whole, including
//! ends that fill no page. It gets the protection of its header, so its RELRO part becomes writable again, as
//! libhugetlbfs does for a program linked for it.
//!
//! # Safety
//! As in the parent module, the process has one thread. The entry point runs once, in a constructor.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use super::image::{self, Segments};
use super::{Fit, Placement, Share};
use crate::settings::{self, Fallback, Pages, Text};
use crate::text::{first_number, page_size};
use crate::{message, raw, sizes};

struct Variables {
    elfmap: Option<&'static [u8]>,
    force: bool,
    preloaded: bool,
    restricted_to: Option<&'static [u8]>,
    default_size: Option<usize>,
    verbose: usize,
    share: bool,
    share_path: Option<&'static [u8]>,
}

impl Variables {
    fn read() -> Self {
        let mut variables = Self {
            elfmap: None,
            force: false,
            preloaded: false,
            restricted_to: None,
            default_size: None,
            verbose: 2,
            share: false,
            share_path: None,
        };
        crate::environment::each_variable(|name, value| {
            let value: &'static CStr = value;
            let value = value.to_bytes();
            match name {
                b"LD_PRELOAD" => {
                    let names =
                        |library: &[u8]| value.windows(library.len()).any(|it| it == library);
                    variables.preloaded = names(b"libsuperpage") || names(b"libhugetlbfs");
                }
                b"HUGETLB_ELFMAP" => variables.elfmap = Some(value),
                b"HUGETLB_FORCE_ELFMAP" => variables.force = value.eq_ignore_ascii_case(b"yes"),
                b"HUGETLB_RESTRICT_EXE" => variables.restricted_to = Some(value),
                b"HUGETLB_DEFAULT_PAGE_SIZE" => variables.default_size = size(value),
                b"HUGETLB_SHARE" => variables.share = first_number(value).is_some_and(|n| n > 0),
                b"HUGETLB_SHARE_PATH" => variables.share_path = Some(value),
                b"HUGETLB_VERBOSE" => variables.verbose = first_number(value).unwrap_or(2),
                _ => {}
            }
        });
        variables
    }

    /// The page size requested for text (`b'R'`) or data (`b'W'`); `None`: not requested.
    fn wants(&self, key: u8) -> Option<usize> {
        let text = self.elfmap?;
        let at = text.iter().position(|byte| byte.eq_ignore_ascii_case(&key))?;
        match text[at + 1..].strip_prefix(b"=") {
            Some(rest) => size(rest.split(|&byte| byte == b':').next()?),
            None => Some(self.usual_size()),
        }
    }

    fn usual_size(&self) -> usize {
        self.default_size.unwrap_or_else(sizes::usual_hugetlb)
    }

    fn is_for_this_program(&self) -> bool {
        self.restricted_to.is_none_or(settings::names_this_program)
    }
}

fn size(text: &[u8]) -> Option<usize> {
    page_size(text).filter(|size| *size >= raw::base_page())
}

/// At the start of a process that preloads this library: does what its `HUGETLB_ELFMAP` asks for. In programs linked
/// with libhugetlbfs, that library calls [`superpage_legacy_elfmap`].
pub fn provide() {
    let variables = Variables::read();
    if variables.preloaded && variables.elfmap.is_some() {
        superpage_legacy_elfmap();
    }
}

/// `int superpage_legacy_elfmap(void)`: puts the program's segments on hugetlb pages, as the `HUGETLB_*` variables ask.
/// Call from a constructor, before there is a second thread.
///
/// Returns the number of moved segments, or -1 if none was requested or the settings of this library have moved them
/// already. Only the first call does anything.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_legacy_elfmap() -> c_int {
    static CALLED: AtomicBool = AtomicBool::new(false);
    // SAFETY: getauxval reads the vector the kernel made. A program with more privileges than its caller must not trust
    // the caller's environment.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    if CALLED.swap(true, Ordering::Relaxed) || !trusted {
        return -1;
    }
    let settings = settings::get();
    let memory = settings.memory;
    let variables = Variables::read();
    let refused = variables.elfmap.is_some_and(|text| text.eq_ignore_ascii_case(b"no"));
    if memory.text.is_some() || memory.data || refused || !variables.is_for_this_program() {
        return -1;
    }
    if settings.pages == Pages::None {
        crate::order::provide();
    }
    move_segments(&variables)
}

fn move_segments(variables: &Variables) -> c_int {
    let sizes = (variables.wants(b'R'), variables.wants(b'W'));
    let page_of = |is_written: bool, is_marked: bool| match sizes {
        (None, None) => is_marked.then(|| variables.usual_size()),
        (text, data) => {
            if is_written {
                data
            } else {
                text
            }
        }
    };
    let keeps_text = sizes.0.is_some() && image::has_v8();
    let mut segments = Segments::new();
    image::each_segment(|segment, is_program| {
        if !segment.is_written && keeps_text {
            return;
        }
        if is_program && page_of(segment.is_written, segment.is_marked).is_some() {
            segments.push(segment);
        }
    });
    if segments.is_empty() {
        return 0;
    }
    let fit = if variables.preloaded && variables.force { Fit::Inside } else { Fit::Whole };
    let mut moved = 0;
    image::each_extent(&segments, fit == Fit::Whole, |extent| {
        let Some(page) = page_of(extent.is_written, extent.is_marked) else { return };
        let placement = Placement {
            pages: Pages::Hugetlb(page),
            page,
            fallback: Fallback::Base,
            fit,
            text: Text::Copy,
            share: variables.share.then_some(Share { directory: variables.share_path }),
        };
        if super::put(&extent, &placement) {
            moved += 1;
        } else if variables.verbose >= 2 && fit == Fit::Whole {
            let name: &[u8] = if extent.is_written { b"data" } else { b"text" };
            message::line(&[
                b"a segment of ",
                name,
                b" stays on base pages: the pool is short of them, or the program is not linked ",
                b"with segments aligned to them (HUGETLB_ELFMAP)",
            ]);
        }
    });
    moved
}
