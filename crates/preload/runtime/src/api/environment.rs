//! The `HUGETLB_*` variables: read once, at the first call that needs them or by the constructor of the compatible
//! library.
//!
//! Other modules read the variables of the heap (`HUGETLB_MORECORE*`) and of program segments (`HUGETLB_ELFMAP` and its
//! relatives). Not supported: the variables of the link editor (`HUGETLB_LDSCRIPT_PATH`, `HUGETLB_DEPRECATED_LINK`),
//! and `HUGETLB_NO_PREFAULT`, which has no effect since the kernel reserves private mappings.
//!
//! # Safety
//! The settings lie in memory that is mapped once and never unmapped. If several threads call first at the same time,
//! each reads the environment. The first to publish wins, and the pages of the others leak.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::kernel;
use super::report::{Level, report};
use crate::text;
use crate::text::{LossyUtf8, Text};

const DEFAULT_VERBOSE: c_int = 2;
const DEBUG_VERBOSE: c_int = 4;

pub struct Settings {
    /// Messages up to this level are printed.
    pub verbose: c_int,
    /// shmget requests superpages.
    pub shm: bool,
    /// Mappings reserve no pages; they are populated at once instead.
    pub no_reserve: bool,
    /// `HUGETLB_DEFAULT_PAGE_SIZE`, as written.
    pub page_size: Text<64>,
    /// `HUGETLB_PATH`: mounts, separated by colons. Longer than PATH_MAX, because it contains several paths.
    pub path: Text<16384>,
    /// `HUGETLB_FEATURES` is set.
    has_features: bool,
    /// `HUGETLB_DEBUG` is set: print every message.
    debug: bool,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());

/// Defaults, for when there is no memory for the settings.
static DEFAULTS: Settings = Settings {
    verbose: DEFAULT_VERBOSE,
    shm: false,
    no_reserve: false,
    page_size: Text::new(),
    path: Text::new(),
    has_features: false,
    debug: false,
};

pub fn settings() -> &'static Settings {
    let known = SETTINGS.load(Ordering::Acquire);
    // SAFETY: once published, the settings are neither changed nor unmapped.
    if let Some(known) = unsafe { known.as_ref() } { known } else { read() }
}

#[cold]
fn read() -> &'static Settings {
    let Some(fresh) = kernel::forever::<Settings>() else { return &DEFAULTS };
    // SAFETY: fresh, zeroed, large enough and page-aligned; all zeroes are valid settings; no other thread has the
    // address yet.
    unsafe { (*fresh).fill() };
    let null = std::ptr::null_mut();
    match SETTINGS.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: as above; published, and only read from now on.
            let settings = unsafe { &*fresh };
            settings.warn_ignored();
            settings
        }
        // SAFETY: another thread's published settings.
        Err(first) => unsafe { &*first },
    }
}

impl Settings {
    fn fill(&mut self) {
        self.verbose = DEFAULT_VERBOSE;
        // SAFETY: getauxval reads the vector the kernel made. A program with more privileges than its caller must not
        // trust the environment.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return;
        }
        let mut applies = true;
        crate::environment::each_variable(|name, value| {
            let value = value.to_bytes();
            match name {
                // As atoi: text that is not a number is zero, which prints nothing.
                b"HUGETLB_VERBOSE" => self.verbose = text::number(value).map_or(0, as_level),
                b"HUGETLB_RESTRICT_EXE" => applies = crate::settings::names_this_program(value),
                b"HUGETLB_SHM" => self.shm = is_yes(value),
                b"HUGETLB_NO_RESERVE" => self.no_reserve = is_yes(value),
                b"HUGETLB_DEFAULT_PAGE_SIZE" => self.page_size.push(value),
                b"HUGETLB_PATH" => self.path.push(value),
                b"HUGETLB_FEATURES" => self.has_features = true,
                b"HUGETLB_DEBUG" => self.debug = true,
                _ => {}
            }
        });
        if self.debug {
            self.verbose = DEBUG_VERBOSE;
        }
        if !applies {
            (self.shm, self.no_reserve, self.has_features) = (false, false, false);
            self.page_size.clear();
            self.path.clear();
        }
    }

    fn warn_ignored(&self) {
        if self.has_features {
            let message =
                "HUGETLB_FEATURES is ignored: what the kernel can do is tried, not guessed";
            report(Level::Warning, format_args!("{message}"));
        }
        if self.path.is_full() {
            report(Level::Error, format_args!("HUGETLB_PATH is too long; its end is ignored"));
        }
    }
}

fn as_level((value, _): (u64, &[u8])) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn is_yes(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"yes")
}

/// `HUGETLB_DEFAULT_PAGE_SIZE`, for messages.
pub fn page_size_as_written() -> LossyUtf8<'static> {
    LossyUtf8(settings().page_size.bytes())
}
