//! The functions of libhugetlbfs under this library's prefix (get_huge_pages(3) and its relatives).
//!
//! Differences from libhugetlbfs: a pointer that this library did not hand out is never unmapped. If even the fallback
//! fails, a region is null, coloured or not. The colours of regions differ. A length of 0 is EINVAL. Any page size with
//! a pool works, mounted or not. errno says why a call failed.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::size_t;

use super::environment::settings;
use super::mounts::{self, Found};
use super::obtain::{Fallback, Memory, Request, obtain};
use super::reason::{self, Reason, Refusal};
use super::regions::{self, Region};
use super::report::{ErrnoText, Level, report};
use super::{environment, fd, sizes, sysv};
use crate::raw;
use crate::text::LossyUtf8;

const GHP_MASK: c_ulong = 0x01;
const GHR_STRICT: c_ulong = 0x1000_0000;
const GHR_FALLBACK: c_ulong = 0x2000_0000;
const GHR_COLOR: c_ulong = 0x4000_0000;
const GHR_MASK: c_ulong = GHR_STRICT | GHR_FALLBACK | GHR_COLOR;

/// Called by the constructor of the compatible libhugetlbfs.so.0: reads the environment now, as libhugetlbfs'
/// constructor did, and not at the first call.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_start() {
    super::report::use_old_name();
    let _ = environment::settings();
}

/// `long gethugepagesize(void)`: -1 with ENOSYS without hugetlb.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_gethugepagesize() -> c_long {
    match sizes::chosen() {
        Some(size) => size as c_long,
        None => raw::fails_with(libc::ENOSYS).into(),
    }
}

/// `int gethugepagesizes(long sizes[], int n)`: writes the superpage sizes, the kernel's default first. With a null
/// array and `n` of 0 returns the number of sizes.
///
/// # Safety
/// `sizes` has room for `count` numbers, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_gethugepagesizes(sizes: *mut c_long, count: c_int) -> c_int {
    // SAFETY: the caller's array of `count`, none of it filled yet.
    unsafe { list_sizes(sizes, count, 0) }
}

/// `int getpagesizes(long sizes[], int n)`: writes the base page size, then the superpage sizes.
///
/// # Safety
/// As [`superpage_gethugepagesizes`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_getpagesizes(sizes: *mut c_long, count: c_int) -> c_int {
    if count > 0 && !sizes.is_null() {
        // SAFETY: there is room for one.
        unsafe { *sizes = raw::base_page() as c_long };
    }
    // SAFETY: the caller's array, with the first number filled in.
    unsafe { list_sizes(sizes, count, 1) }
}

/// Fills `sizes` from index `filled` on; returns the number of sizes.
///
/// # Safety
/// `sizes` has room for `count` numbers, or is null.
unsafe fn list_sizes(sizes: *mut c_long, count: c_int, filled: usize) -> c_int {
    let counting = sizes.is_null() && count == 0;
    let Some(capacity) =
        usize::try_from(count).ok().filter(|_| counting || count == 0 || !sizes.is_null())
    else {
        return raw::fails_with(libc::EINVAL);
    };
    let mut listed = filled;
    if !counting && capacity <= filled {
        return capacity as c_int;
    }
    let outcome = sizes::for_each(|size| {
        if !counting {
            // SAFETY: `listed` is less than `capacity`, see below.
            unsafe { *sizes.add(listed) = size as c_long };
        }
        listed += 1;
        if !counting && listed == capacity {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    match outcome {
        Ok(()) => listed as c_int,
        Err(errno) => raw::fails_with(errno),
    }
}

/// `int hugetlbfs_test_path(const char *path)`: 1 on a hugetlbfs, 0 elsewhere, -1 with errno.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_hugetlbfs_test_path(path: *const c_char) -> c_int {
    mounts::is_hugetlbfs(path).map_or(-1, c_int::from)
}

/// `const char *hugetlbfs_find_path(void)`: a usable mount of the default size, or null.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_find_path() -> *const c_char {
    sizes::chosen().map_or(std::ptr::null(), find_path)
}

/// As [`superpage_hugetlbfs_find_path`], for another size.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_find_path_for_size(size: c_long) -> *const c_char {
    usize::try_from(size).map_or(std::ptr::null(), find_path)
}

fn find_path(size: usize) -> *const c_char {
    match mounts::find(size) {
        Found::Path(path) => path.as_ptr(),
        Found::None | Found::Unknown => std::ptr::null(),
    }
}

/// `int hugetlbfs_unlinked_fd(void)`: an unlinked file on superpages of the default size, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_unlinked_fd() -> c_int {
    match sizes::chosen() {
        Some(size) => fd::unlinked(size).unwrap_or(-1),
        None => raw::fails_with(libc::ENOSYS),
    }
}

/// As [`superpage_hugetlbfs_unlinked_fd`], for another size.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_unlinked_fd_for_size(size: c_long) -> c_int {
    match usize::try_from(size) {
        Ok(size) if size > 0 => fd::unlinked(size).unwrap_or(-1),
        _ => raw::fails_with(libc::EINVAL),
    }
}

/// `void *get_huge_pages(size_t len, ghp_t flags)`: superpages, or null with errno. The length is rounded up to whole
/// superpages.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_get_huge_pages(length: size_t, flags: c_ulong) -> *mut c_void {
    if flags & GHR_MASK != 0 {
        let message = "get_huge_pages: a GHR flag is for get_hugepage_region; ignored";
        report(Level::Error, format_args!("{message}"));
    }
    let memory = pages_for(length, Fallback::Error, "get_huge_pages");
    hand_out(memory, length, |memory| memory.start)
}

/// `void free_huge_pages(void *ptr)`. A pointer that was not handed out here is left alone and reported.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_free_huge_pages(pointer: *mut c_void) {
    free(pointer, "free_huge_pages");
}

/// `void *get_hugepage_region(size_t len, ghr_t flags)`: maps any length. `GHR_FALLBACK` allows base pages. `GHR_COLOR`
/// places the region at a varying cache line within the slack that rounding up left.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_get_hugepage_region(length: size_t, flags: c_ulong) -> *mut c_void {
    if flags & GHP_MASK != 0 {
        let message = "get_hugepage_region: a GHP flag is for get_huge_pages; ignored";
        report(Level::Error, format_args!("{message}"));
    }
    let fallback = if flags & GHR_FALLBACK != 0 { Fallback::Base } else { Fallback::Error };
    let memory = pages_for(length, fallback, "get_hugepage_region");
    hand_out(memory, length, |memory| {
        let spare = memory.length - length;
        if flags & GHR_COLOR != 0 { memory.start + colour(spare) } else { memory.start }
    })
}

/// `void free_hugepage_region(void *ptr)`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_free_hugepage_region(pointer: *mut c_void) {
    free(pointer, "free_hugepage_region");
}

/// For this library's shmget: the segment's id if `HUGETLB_SHM` is set.
pub fn shmget_on_superpages(key: libc::key_t, size: size_t, flags: c_int) -> Option<c_int> {
    sysv::shmget(key, size, flags)
}

/// `__tp_kernel_default_hugepage_size_reset`: makes the next call read /proc/meminfo again.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_forget_default_size() {
    sizes::forget_default();
}

fn pages_for(length: usize, fallback: Fallback, function: &str) -> Result<Memory, Refusal> {
    let request = Request {
        length,
        page: sizes::chosen().unwrap_or(2 << 20),
        fallback,
        node: None,
        populate: false,
        no_reserve: settings().no_reserve,
        keep_from_children: false,
    };
    let outcome = obtain(&request);
    match outcome {
        Ok(memory) if memory.reason == Reason::None => {}
        Ok(memory) => {
            let why = shown(memory.reason);
            let message = format_args!("{function}: base pages for {length} bytes: {why}");
            report(Level::Warning, message);
        }
        Err(refusal) => {
            let (why, words) = (shown(refusal.reason), ErrnoText(refusal.errno));
            let message = format_args!("{function}: nothing for {length} bytes: {why} ({words})");
            report(Level::Warning, message);
        }
    }
    outcome
}

fn shown(reason: Reason) -> LossyUtf8<'static> {
    let text: &'static CStr = reason.text();
    LossyUtf8(text.to_bytes())
}

/// Adds memory to the table under the address that `handle` chooses, and returns that address to the caller.
pub fn hand_out(
    memory: Result<Memory, Refusal>,
    asked: usize,
    handle: impl FnOnce(Memory) -> usize,
) -> *mut c_void {
    let refusal = match memory {
        Ok(memory) => {
            let handle = handle(memory);
            let region = Region { handle, start: memory.start, mapped: memory.length, asked };
            if regions::add(region) {
                reason::remember(memory.reason);
                return handle as *mut c_void;
            }
            // SAFETY: mapped for this call; no other code has the address.
            let _ = unsafe { raw::munmap(memory.start, memory.length) };
            Refusal::new(libc::ENOMEM, Reason::NoMemory)
        }
        Err(refusal) => refusal,
    };
    reason::remember(refusal.reason);
    raw::set_errno(refusal.errno);
    std::ptr::null_mut()
}

fn free(pointer: *mut c_void, function: &str) {
    if pointer.is_null() {
        return;
    }
    match regions::take(pointer as usize, |_| true) {
        // SAFETY: handed out by this library and removed from the table by this call; the caller gives the memory up.
        Some(region) => drop(unsafe { raw::munmap(region.start, region.mapped) }),
        None => {
            reason::remember(Reason::NotOurs);
            let message = "was not handed out here, or was freed already; nothing is unmapped";
            report(Level::Error, format_args!("{function}: {pointer:?} {message}"));
        }
    }
}

/// Returns an offset of whole cache lines within `spare` bytes. The offsets of successive calls are spread evenly, like
/// the fractional parts of multiples of the golden ratio.
fn colour(spare: usize) -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    // SAFETY: sysconf takes an integer. 0 or -1 if the line size is unknown.
    let line = unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) };
    let line = usize::try_from(line).ok().filter(|line| line.is_power_of_two()).unwrap_or(64);
    let choices = (spare / line + 1) as u128;
    let turn = COUNT.fetch_add(1, Ordering::Relaxed) as u64;
    let fraction = turn.wrapping_mul(GOLDEN);
    ((u128::from(fraction) * choices) >> 64) as usize * line
}
