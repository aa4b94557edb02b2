//! Which function a name would have reached without this library: found in the loader's own list of
//! objects, without `dlsym`, which may allocate and take locks.
//!
//! The list is in the order in which names are searched for, but for what `dlopen` adds later. An
//! object's hash table is read as the ELF specification (`DT_HASH`) and glibc (`DT_GNU_HASH`) have it.
//!
//! # Safety
//! The loader publishes the list in `_r_debug` (`<link.h>`) before anything is relocated, and adds to
//! its end only; dynamic sections and the tables they name stay mapped and unchanged while an object
//! is loaded, and those loaded at start-up are never unloaded.

use std::ffi::{CStr, c_char, c_void};

/// `struct link_map`, as far as `<link.h>` publishes it.
#[repr(C)]
struct Object {
    /// What is added to the addresses in the file.
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Object,
    previous: *const Object,
}

/// `Elf64_Dyn`
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// `Elf64_Sym`
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// `struct r_debug`
#[repr(C)]
struct Debug {
    version: i32,
    first: *const Object,
}

unsafe extern "C" {
    static _r_debug: Debug;
    /// This library's own dynamic section, named by the linker.
    static _DYNAMIC: Dynamic;
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;
const SHN_UNDEF: u16 = 0;

/// The definition of `name` that comes after this library's in the order of search, and whether it is
/// libc's; `None` if there is none.
pub fn next(name: &CStr) -> Option<(*mut c_void, bool)> {
    let mut is_after = false;
    objects().find_map(|object| {
        // SAFETY: the address of this library's own section.
        let is_ours = std::ptr::eq(object.dynamic, &raw const _DYNAMIC);
        let was_after = is_after;
        is_after |= is_ours;
        if !was_after {
            return None;
        }
        // SAFETY: an object of the loader's list.
        unsafe { object.define(name) }.map(|at| (at, object.is_libc()))
    })
}

/// libc's definition of `name`, for a program in which libc comes before this library.
pub fn in_libc(name: &CStr) -> Option<(*mut c_void, bool)> {
    // SAFETY: an object of the loader's list.
    objects()
        .find(|it| it.is_libc())
        .and_then(|libc| unsafe { libc.define(name) })
        .map(|at| (at, true))
}

fn objects() -> impl Iterator<Item = &'static Object> {
    // SAFETY: see above: the list stays, and `next` is written before an object is linked in.
    let mut next = unsafe { (&raw const _r_debug.first).read_volatile() };
    std::iter::from_fn(move || {
        // SAFETY: null, or an object of the list.
        let object = unsafe { next.as_ref() }?;
        // SAFETY: a field that a dlopen may write meanwhile.
        next = unsafe { (&raw const object.next).read_volatile() };
        Some(object)
    })
}

impl Object {
    fn is_libc(&self) -> bool {
        if self.name.is_null() {
            return false;
        }
        // SAFETY: a C string of the loader's.
        let path = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        path.rsplit(|&byte| byte == b'/').next() == Some(b"libc.so.6")
    }

    /// The value of an entry that is an address. glibc relocates them in place where it can.
    unsafe fn address(&self, tag: i64) -> Option<usize> {
        let mut entry = self.dynamic;
        // SAFETY: a dynamic section, which ends with a null tag.
        unsafe {
            while (*entry).tag != 0 {
                if (*entry).tag == tag {
                    let value = (*entry).value;
                    return Some(if value < self.base { value + self.base } else { value });
                }
                entry = entry.add(1);
            }
        }
        None
    }

    /// The address of the function that this object defines under `name`.
    unsafe fn define(&self, name: &CStr) -> Option<*mut c_void> {
        if self.dynamic.is_null() {
            return None;
        }
        // SAFETY: the object's own tables.
        unsafe {
            let symbols = self.address(DT_SYMTAB)? as *const Symbol;
            let strings = self.address(DT_STRTAB)? as *const c_char;
            let is_it = |at: u32| {
                let symbol = &*symbols.add(at as usize);
                symbol.section != SHN_UNDEF
                    && symbol.info & 0xf == STT_FUNC
                    && CStr::from_ptr(strings.add(symbol.name as usize)) == name
            };
            let found = match (self.address(DT_GNU_HASH), self.address(DT_HASH)) {
                (Some(table), _) => find_gnu(table as *const u32, name, is_it),
                // Words: buckets, entries, then the tables; every symbol is an entry.
                (None, Some(table)) => (0..*(table as *const u32).add(1)).find(|at| is_it(*at)),
                (None, None) => None,
            }?;
            Some((self.base + (*symbols.add(found as usize)).value) as *mut c_void)
        }
    }
}

/// Looks `name` up in a `DT_GNU_HASH` table: buckets, first symbol, words of the Bloom filter, its
/// shift; the filter; the buckets; and for each symbol its hash, the lowest bit set at a chain's end.
unsafe fn find_gnu(table: *const u32, name: &CStr, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    let hash = name
        .to_bytes()
        .iter()
        .fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
    // SAFETY: a table of that layout.
    unsafe {
        let (buckets, first, words) = (*table, *table.add(1), *table.add(2));
        if buckets == 0 {
            return None;
        }
        let bucket = table.add(4 + words as usize * (size_of::<usize>() / 4));
        let chain = bucket.add(buckets as usize);
        let mut at = *bucket.add((hash % buckets) as usize);
        while at >= first {
            let entry = *chain.add((at - first) as usize);
            if entry | 1 == hash | 1 && is_it(at) {
                return Some(at);
            }
            if entry & 1 != 0 {
                return None;
            }
            at += 1;
        }
    }
    None
}
