//! The functions of superpage.h as the loader finds them in this process.

#![allow(dead_code, reason = "each test that starts itself again uses its part")]

pub mod child;
pub mod memory;

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};

pub const SUPERPAGE: usize = 2 << 20;

pub const STRICT: c_ulong = 0x1000_0000;
pub const FALLBACK: c_ulong = 0x2000_0000;
pub const COLOR: c_ulong = 0x4000_0000;
pub const DEFAULT: c_ulong = FALLBACK | COLOR;

pub const OR_THP: c_uint = 1;
pub const OR_BASE: c_uint = 2;
pub const POPULATE: c_uint = 4;
pub const NODE_STRICT: c_uint = 8;

pub mod reasons {
    pub const NONE: i32 = 0;
    pub const POOL_SHORT: i32 = 1;
    pub const NO_POOL: i32 = 2;
    pub const CGROUP_LIMIT: i32 = 5;
    pub const NOT_ALIGNED: i32 = 6;
    pub const NO_MEMORY: i32 = 7;
    pub const NODE: i32 = 8;
    pub const NOT_OURS: i32 = 10;
    pub const THP_OFF: i32 = 11;
}

/// The preloaded library.
#[derive(Clone, Copy)]
pub struct Library;

/// Returns a function's address as the function's type.
///
/// # Safety
/// `F` is the function pointer type of superpage.h.
unsafe fn find<F: Copy>(name: &CStr) -> F {
    // SAFETY: the pointer is to a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is not exported");
    // SAFETY: a function pointer is an address; the caller vouches for its type.
    unsafe { std::mem::transmute_copy(&address) }
}

macro_rules! call {
    ($name:literal, fn($($kind:ty),*) -> $result:ty, $($value:expr),*) => {{
        let name = CStr::from_bytes_with_nul(concat!("superpage_", $name, "\0").as_bytes());
        // SAFETY: the type is the one superpage.h declares, and the arguments are valid for it.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> $result =
                find(name.expect("one zero byte"));
            function($($value),*)
        }
    }};
}

fn given(pointer: *mut c_void) -> Option<usize> {
    (!pointer.is_null()).then_some(pointer as usize)
}

impl Library {
    pub fn loaded() -> Self {
        Self
    }

    pub fn get_huge_pages(self, length: usize, flags: c_ulong) -> Option<usize> {
        given(call!("get_huge_pages", fn(usize, c_ulong) -> *mut c_void, length, flags))
    }

    pub fn free_huge_pages(self, address: usize) {
        call!("free_huge_pages", fn(usize) -> (), address);
    }

    pub fn get_region(self, length: usize, flags: c_ulong) -> Option<usize> {
        given(call!("get_hugepage_region", fn(usize, c_ulong) -> *mut c_void, length, flags))
    }

    pub fn free_region(self, address: usize) {
        call!("free_hugepage_region", fn(usize) -> (), address);
    }

    pub fn map(self, length: usize, size: usize, flags: c_uint, node: c_int) -> Option<usize> {
        let kind =
            call!("map", fn(usize, usize, c_uint, c_int) -> *mut c_void, length, size, flags, node);
        given(kind)
    }

    pub fn unmap(self, address: usize, length: usize) -> c_int {
        call!("unmap", fn(usize, usize) -> c_int, address, length)
    }

    pub fn coverage(self, address: usize, length: usize) -> isize {
        call!("coverage", fn(usize, usize) -> isize, address, length)
    }

    pub fn node(self, address: usize) -> c_int {
        call!("node", fn(usize) -> c_int, address)
    }

    pub fn last_reason(self) -> c_int {
        call!("last_reason", fn() -> c_int,)
    }

    pub fn reason_text(self, reason: c_int) -> String {
        text(call!("reason_text", fn(c_int) -> *const c_char, reason)).expect("never null")
    }

    pub fn version(self) -> String {
        text(call!("version", fn() -> *const c_char,)).expect("never null")
    }

    pub fn gethugepagesize(self) -> c_long {
        call!("gethugepagesize", fn() -> c_long,)
    }

    pub fn gethugepagesizes(self, count: c_int) -> Vec<c_long> {
        let mut sizes = vec![0; count as usize];
        let pointer = sizes.as_mut_ptr();
        let all =
            call!("gethugepagesizes", fn(*mut c_long, c_int) -> c_int, std::ptr::null_mut(), 0);
        let got = call!("gethugepagesizes", fn(*mut c_long, c_int) -> c_int, pointer, count);
        assert_eq!(got, all.min(count));
        sizes.truncate(got as usize);
        sizes
    }

    pub fn getpagesizes(self, count: c_int) -> Vec<c_long> {
        let mut sizes = vec![0; count as usize];
        let got = call!("getpagesizes", fn(*mut c_long, c_int) -> c_int, sizes.as_mut_ptr(), count);
        sizes.truncate(usize::try_from(got).expect("no error"));
        sizes
    }

    pub fn find_path_pointer(self) -> *const c_char {
        call!("hugetlbfs_find_path", fn() -> *const c_char,)
    }

    pub fn find_path(self) -> Option<String> {
        text(self.find_path_pointer())
    }

    pub fn test_path(self, path: &str) -> c_int {
        let path = CString::new(path).expect("no zero bytes");
        call!("hugetlbfs_test_path", fn(*const c_char) -> c_int, path.as_ptr())
    }

    pub fn unlinked_fd(self) -> c_int {
        call!("hugetlbfs_unlinked_fd", fn() -> c_int,)
    }

    pub fn unlinked_fd_for_size(self, size: c_long) -> c_int {
        call!("hugetlbfs_unlinked_fd_for_size", fn(c_long) -> c_int, size)
    }
}

fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: the library's strings are never freed.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
