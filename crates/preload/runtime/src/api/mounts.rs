//! Mount points of hugetlbfs: the mount table, read completely and decoded.
//!
//! A path handed out stays valid for the life of the process (libhugetlbfs' contract), so each path is kept once, in
//! memory that is never unmapped. A kept path that is still a usable hugetlbfs of the size is handed out again without
//! reading the table. Otherwise the table is read again, to find later mounts.
//!
//! # Safety
//! `PLACES` is a list that only grows, at its head, by compare-and-swap. A place is written before it is published and
//! never changes afterwards. Two threads may each add the same place, which is harmless.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::environment::settings;
use super::files::File;
use super::kernel;
use super::report::{Level, report};
use crate::raw;
use crate::text::{LossyUtf8, Text};

/// From `include/uapi/linux/magic.h`. The type of the libc crate's constant differs between targets.
const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;

/// The kernel's maximum path length, with the zero byte.
const PATH_MAX: usize = 4096;

type Path = Text<{ PATH_MAX + 1 }>;

struct Place {
    next: *mut Place,
    size: usize,
    path: Path,
}

static PLACES: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());

/// Result of a look-up in the mount table for one page size.
pub enum Found {
    Path(&'static CStr),
    /// The table was read, and has no usable mount of the size.
    None,
    /// The table could not be read, or was empty: every process has a root, so an empty table is invalid.
    Unknown,
}

pub fn find(size: usize) -> Found {
    raw::keeping_errno(|| look_up(size))
}

/// A usable mount of hugetlbfs with pages of this size.
pub fn mount_of_size(size: usize) -> Option<&'static CStr> {
    match find(size) {
        Found::Path(path) => Some(path),
        Found::None | Found::Unknown => None,
    }
}

fn look_up(size: usize) -> Found {
    if let Some(path) = known(size) {
        return Found::Path(path);
    }
    let mut found = None;
    let mut look = |path: &Path| {
        if found.is_none() && is_usable(path.as_c(), size) {
            found = keep(path, size);
        }
    };
    let listed = settings().path.bytes();
    let read = if listed.is_empty() {
        read_table(&mut look)
    } else {
        read_list(listed, &mut look);
        true
    };
    match found {
        Some(path) => Found::Path(path),
        None if read => Found::None,
        None => Found::Unknown,
    }
}

/// `Some(true)` on a hugetlbfs; `None` with errno if statfs fails.
pub fn is_hugetlbfs(path: *const c_char) -> Option<bool> {
    status(path).map(|status| status.f_type as u32 == HUGETLBFS_MAGIC)
}

fn status(path: *const c_char) -> Option<libc::statfs> {
    let mut status = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a C string, and a live structure to fill in.
    let code = unsafe { libc::statfs(path, status.as_mut_ptr()) };
    // SAFETY: all integers, zeroed before and filled in by the call.
    (code == 0).then(|| unsafe { status.assume_init() })
}

/// Whether the path is a hugetlbfs of the page size in which this user may create files.
fn is_usable(path: *const c_char, size: usize) -> bool {
    let all = libc::R_OK | libc::W_OK | libc::X_OK;
    // SAFETY: the pointer is to a C string.
    status(path).is_some_and(|status| {
        status.f_type as u32 == HUGETLBFS_MAGIC && status.f_bsize as usize == size
    }) && unsafe { libc::access(path, all) == 0 }
}

fn known(size: usize) -> Option<&'static CStr> {
    let mut next = PLACES.load(Ordering::Acquire);
    // SAFETY: published places are never changed or unmapped.
    while let Some(place) = unsafe { next.as_ref() } {
        if place.size == size && is_usable(place.path.as_c(), size) {
            // SAFETY: a path ends with a zero byte and is never unmapped.
            return Some(unsafe { CStr::from_ptr(place.path.as_c()) });
        }
        next = place.next;
    }
    None
}

/// Keeps a path for the life of the process and returns it.
fn keep(path: &Path, size: usize) -> Option<&'static CStr> {
    let place = kernel::forever::<Place>()?;
    // SAFETY: fresh memory, large enough and aligned, all zeroes: an empty place. Only this thread
    // has it until the exchange succeeds.
    unsafe {
        (*place).size = size;
        (*place).path.push(path.bytes());
        loop {
            let head = PLACES.load(Ordering::Acquire);
            (*place).next = head;
            let published =
                PLACES.compare_exchange(head, place, Ordering::AcqRel, Ordering::Acquire);
            if published.is_ok() {
                return Some(CStr::from_ptr((*place).path.as_c()));
            }
        }
    }
}

/// Calls `look` with each mount in `HUGETLB_PATH=a:b`. Prints warnings about them once.
fn read_list(list: &[u8], look: &mut dyn FnMut(&Path)) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let is_said = SAID.swap(true, Ordering::Relaxed);
    for entry in list.split(|byte| *byte == b':').filter(|entry| !entry.is_empty()) {
        let mut path = Path::new();
        path.push(entry);
        if is_hugetlbfs(path.as_c()) == Some(true) {
            look(&path);
        } else if !is_said {
            let message = "HUGETLB_PATH does not name a hugetlbfs mount";
            report(Level::Warning, format_args!("{message}: {}", LossyUtf8(entry)));
        }
    }
}

/// Calls `look` with every hugetlbfs mount in the table; `false`: there is no table.
fn read_table(look: &mut dyn FnMut(&Path)) -> bool {
    let Some(mut table) = File::open(c"/proc/mounts").or_else(|| File::open(c"/etc/mtab")) else {
        let errno = raw::errno();
        let words = super::report::ErrnoText(errno);
        report(Level::Error, format_args!("neither /proc/mounts nor /etc/mtab: {words}"));
        return false;
    };
    let mut any = false;
    while let Some(mount) = next_mount(&mut table) {
        any = true;
        if let Some(path) = mount {
            look(&path);
        }
    }
    any && !table.is_broken
}

/// Reads one line of the table, of any length: `source target type options 0 0`. `None` at the end; `Some(None)` for
/// other file systems.
fn next_mount(table: &mut File) -> Option<Option<Path>> {
    let mut end = skip_field(table)?;
    let mut path = Path::new();
    if end == b' ' {
        end = decode_field(table, &mut path);
    }
    let mut kind = Text::<16>::new();
    if end == b' ' {
        end = decode_field(table, &mut kind);
    }
    while end != b'\n' {
        end = table.byte().unwrap_or(b'\n');
    }
    let fits = !path.is_full();
    Some((kind.bytes() == b"hugetlbfs" && fits).then_some(path))
}

/// Skips a field. Returns the byte that ended it, a space or a newline; `None` at the end of the file.
fn skip_field(table: &mut File) -> Option<u8> {
    loop {
        if let end @ (b' ' | b'\n') = table.byte()? {
            return Some(end);
        }
    }
}

/// Copies a field, in which the kernel escapes blanks and backslashes as `\040` (`mangle`, fs/proc_namespace.c). Text
/// that does not fit is cut off.
fn decode_field<const N: usize>(table: &mut File, field: &mut Text<N>) -> u8 {
    loop {
        match table.byte() {
            None => return b'\n',
            Some(end @ (b' ' | b'\n')) => return end,
            Some(b'\\') => {
                let mut value = 0u8;
                for _ in 0..3 {
                    let digit = match table.byte() {
                        Some(digit @ b'0'..=b'7') => digit - b'0',
                        Some(end @ (b' ' | b'\n')) => return end,
                        _ => 0,
                    };
                    value = value.wrapping_mul(8).wrapping_add(digit);
                }
                field.push(&[value]);
            }
            Some(byte) => field.push(&[byte]),
        }
    }
}
