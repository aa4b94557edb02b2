//! The loader's list of objects: names and exported symbols, read from its tables.
//!
//! No libc function is called, not even memcmp: a sanitizer interposes it, and the sanitizer's version must not run
//! before its runtime is initialized.
//!
//! # Safety
//! The loader's list (`struct r_debug`, link.h) is complete when constructors run, and objects loaded at start-up are
//! never unloaded. A null entry ends each object's dynamic section, a zero byte each name, an odd hash each hash chain
//! (the ELF and GNU hash formats).

use std::ffi::{c_char, c_int, c_void};

/// The public part of `struct link_map`.
#[repr(C)]
pub struct Object {
    base: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Object,
}

#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
}

unsafe extern "C" {
    static _r_debug: Debug;
    /// This library's own dynamic section, named by the linker.
    static _DYNAMIC: [usize; 2];
}

/// The loaded objects, the program first.
pub fn objects() -> impl Iterator<Item = &'static Object> {
    // SAFETY: see "Safety" of this module.
    let mut next = unsafe { _r_debug.first };
    std::iter::from_fn(move || {
        // SAFETY: as above.
        let object = unsafe { next.as_ref() }?;
        next = object.next;
        Some(object)
    })
}

/// `Elf64_Sym`
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;

impl Object {
    /// Whether the object's file name begins with `start`, then one of `then`, then a character that is not a letter.
    pub fn is_file_of(&self, start: &[u8], then: &[&[u8]]) -> bool {
        let mut file = self.name;
        let mut at = file;
        // SAFETY: the loader's name, a C string or null.
        unsafe {
            while !at.is_null() && *at != 0 {
                if *at as u8 == b'/' {
                    file = at.add(1);
                }
                at = at.add(1);
            }
            !file.is_null()
                && then.iter().any(|then| {
                    after(file, start)
                        .and_then(|rest| after(rest, then))
                        .is_some_and(|rest| !(*rest as u8).is_ascii_alphabetic() && *rest != 0)
                })
        }
    }

    /// Whether the object exports the symbol.
    pub fn exports(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// Address of the function that the object exports under this name.
    pub fn function(&self, name: &[u8]) -> Option<*mut c_void> {
        const STT_FUNC: u8 = 2;
        let symbol = self.find(name).filter(|symbol| symbol.info & 0xf == STT_FUNC)?;
        Some((self.base + symbol.value as usize) as *mut c_void)
    }

    /// Whether the object is this library.
    pub fn is_ours(&self) -> bool {
        std::ptr::eq(self.dynamic, &raw const _DYNAMIC)
    }

    /// Finds an exported symbol. Objects without a GNU hash table (very old ones) count as exporting nothing.
    fn find(&self, name: &[u8]) -> Option<&Symbol> {
        let (hashes, symbols, strings) =
            (self.entry(DT_GNU_HASH), self.entry(DT_SYMTAB), self.entry(DT_STRTAB));
        if hashes == 0 || symbols == 0 || strings == 0 {
            return None;
        }
        let hash = name
            .iter()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        // SAFETY: the table's header (buckets, first hashed symbol, words of the filter, shift), the filter, a bucket
        // for each remainder, and a hash for each symbol; the last hash of a chain is odd.
        unsafe {
            let header = hashes as *const u32;
            let (buckets, first, words) = (*header, *header.add(1), *header.add(2) as usize);
            let bucket = header.add(4).cast::<u64>().add(words).cast::<u32>();
            if buckets == 0 {
                return None;
            }
            let chain = bucket.add(buckets as usize);
            let mut at = *bucket.add((hash % buckets) as usize);
            if at < first {
                return None;
            }
            loop {
                let found = *chain.add((at - first) as usize);
                let symbol = &*(symbols as *const Symbol).add(at as usize);
                let own = (strings + symbol.name as usize) as *const c_char;
                if found | 1 == hash | 1 && after(own, name).is_some_and(|rest| *rest == 0) {
                    return (symbol.section != 0).then_some(symbol);
                }
                if found & 1 == 1 {
                    return None;
                }
                at += 1;
            }
        }
    }

    /// An address in the dynamic section; 0 if the section has no entry with this tag.
    fn entry(&self, tag: usize) -> usize {
        let mut at = self.dynamic;
        // SAFETY: see "Safety" of this module.
        unsafe {
            while !at.is_null() && (*at)[0] != 0 {
                if (*at)[0] == tag {
                    let value = (*at)[1];
                    // glibc replaces offsets by addresses, except in a read-only section.
                    return if value < self.base { self.base + value } else { value };
                }
                at = at.add(1);
            }
        }
        0
    }
}

/// Returns the rest of a C string after `start`; `None` if the string begins otherwise.
pub unsafe fn after(mut text: *const c_char, start: &[u8]) -> Option<*const c_char> {
    for byte in start {
        // SAFETY: no byte before this one was zero, unless `start` has one.
        unsafe {
            if *text as u8 != *byte {
                return None;
            }
            text = text.add(1);
        }
    }
    Some(text)
}
