//! The functions that libhugetlbfs lacked: superpage_map(3) and its relatives.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{size_t, ssize_t};

use super::names::hand_out;
use super::obtain::{Fallback, Node, Request, obtain};
use super::reason::{self, Reason, Refusal};
use super::{coverage, regions, sizes};
use crate::raw;

const OR_THP: c_uint = 1 << 0;
const OR_BASE: c_uint = 1 << 1;
const POPULATE: c_uint = 1 << 2;
const NODE_STRICT: c_uint = 1 << 3;
const DONTFORK: c_uint = 1 << 4;
const ALL: c_uint = OR_THP | OR_BASE | POPULATE | NODE_STRICT | DONTFORK;

/// `const char *superpage_version(void)`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `void *superpage_map(size_t length, size_t page_size, unsigned flags, int node)`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_map(
    length: size_t,
    page_size: size_t,
    flags: c_uint,
    node: c_int,
) -> *mut c_void {
    let is_size = page_size == 0 || page_size.is_power_of_two() && page_size >= raw::base_page();
    let what = if is_size { Reason::BadArgument } else { Reason::NotAligned };
    let memory = request(length, page_size, flags, node)
        .filter(|_| is_size)
        .ok_or(Refusal::new(libc::EINVAL, what))
        .and_then(|request| obtain(&request));
    hand_out(memory, length, |memory| memory.start)
}

/// Checks the arguments; `None`: invalid flags or node.
fn request(length: usize, page_size: usize, flags: c_uint, node: c_int) -> Option<Request> {
    if flags & !ALL != 0 || flags & (OR_THP | OR_BASE) == OR_THP | OR_BASE || node < -1 {
        return None;
    }
    let page = if page_size == 0 { sizes::chosen().unwrap_or(2 << 20) } else { page_size };
    let node =
        u32::try_from(node).ok().map(|number| Node { number, is_strict: flags & NODE_STRICT != 0 });
    if node.is_none() && flags & NODE_STRICT != 0 {
        return None;
    }
    let fallback = match flags & (OR_THP | OR_BASE) {
        0 => Fallback::Error,
        OR_THP => Fallback::Thp,
        _ => Fallback::Base,
    };
    Some(Request {
        length,
        page,
        fallback,
        node,
        populate: flags & POPULATE != 0,
        no_reserve: false,
        keep_from_children: flags & DONTFORK != 0,
    })
}

/// `int superpage_unmap(void *address, size_t length)`: unmaps one whole mapping; 0 or -1 with errno.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_unmap(address: *mut c_void, length: size_t) -> c_int {
    let region =
        regions::take(address as usize, |region| length == region.asked || length == region.mapped);
    let Some(region) = region else {
        reason::remember(Reason::NotOurs);
        return raw::fails_with(libc::EINVAL);
    };
    // SAFETY: handed out by this library and removed from the table by this call; the caller gives the memory up.
    raw::answer(unsafe { raw::munmap(region.start, region.mapped) })
}

/// `ssize_t superpage_coverage(const void *address, size_t length)`: bytes on superpages now, or -1 with errno if that
/// is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_coverage(address: *const c_void, length: size_t) -> ssize_t {
    match raw::keeping_errno(|| coverage::superpage_bytes(address as usize, length)) {
        Ok(bytes) => bytes as ssize_t,
        Err(errno) => raw::fails_with(errno) as ssize_t,
    }
}

/// `int superpage_node(const void *address)`: the NUMA node of the page, or -1 with ENOENT if the page is not present.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_node(address: *const c_void) -> c_int {
    let mut status: c_int = 0;
    let null = std::ptr::null::<c_int>();
    let before = raw::errno();
    // move_pages(2) without target nodes moves nothing and reports the node of each page.
    // SAFETY: one address in a live local, one status in another.
    let code = unsafe {
        let (addresses, statuses) = (&raw const address, &raw mut status);
        raw::call!(SYS_move_pages, 0, 1, addresses, null, statuses, 0)
    };
    match (code, status) {
        (0, 0..) => {
            raw::set_errno(before);
            status
        }
        (0, error) => {
            raw::set_errno(if error == -libc::EFAULT { libc::ENOENT } else { -error });
            -1
        }
        _ => -1,
    }
}

/// `int superpage_last_reason(void)`: why this thread's last request got no superpages.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_last_reason() -> c_int {
    reason::last() as c_int
}

/// `const char *superpage_reason_text(int reason)`: never null.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_reason_text(number: c_int) -> *const c_char {
    Reason::from_number(number).text().as_ptr()
}
