//! Making glibc's `glibc.malloc.hugetlb=1` reliable.
//!
//! At its first allocation glibc reads the THP mode into a stack buffer one byte longer than the
//! text, does not terminate it, and compares it as a string (`__malloc_thp_mode`, seen on 2.36).
//! Whether malloc then advises its memory depends on the byte that happened to lie there: on a Zen
//! 4 guest with Debian 12, 28 of 60 runs of one program silently got no superpage. Here that byte is
//! made zero: the first allocation of the process is made from a stack that was just cleared.
//!
//! First means before any other library's constructor: libstdc++ allocates in its own, and so
//! does libselinux. The loader runs the constructors of a preloaded library last, unless the
//! library is marked `DF_1_INITFIRST`, as `build.rs` has it. Only one library can be: of several
//! the one loaded last, which up to glibc 2.33 is libpthread (no harm: those have no
//! `glibc.malloc.hugetlb`).
//!
//! # Safety
//! The constructor runs before libc's own, so it may use only what libc makes ready earlier, in
//! `__libc_early_init` (2.32): thread-local storage, the tunables and malloc, but not `environ`.
//! It reads the environment from its arguments, which glibc's loader gives every constructor
//! (`call_init`, elf/dl-init.c; Rust's std relies on the same).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;

use libc::size_t;

type Strings = *const *const c_char;

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, Strings, Strings) = start;

// glibc's malloc, whoever stands in for the name `malloc`. An allocator of the program's own must
// not be called here: without `environ` it would miss its settings (MALLOC_CONF of jemalloc).
unsafe extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

extern "C" fn start(_count: c_int, _arguments: Strings, environment: Strings) {
    // SAFETY: the loader's own list, which nobody has changed yet.
    if unsafe { asks_for_thp(environment) } {
        crate::turn_on();
        clear_stack();
        // SAFETY: freeing what malloc returned, null included.
        unsafe { __libc_free(black_box(__libc_malloc(black_box(1)))) };
    }
}

/// Whether `SUPERPAGE_PAGES=thp` is in the list.
///
/// # Safety
/// `environment` is null, or an array of C strings that ends with a null pointer.
unsafe fn asks_for_thp(environment: Strings) -> bool {
    let mut next = environment;
    // SAFETY: by the contract each entry up to the null is a C string, and the null is there.
    unsafe {
        while !next.is_null() && !(*next).is_null() {
            let entry = CStr::from_ptr(*next);
            if let Some(value) = entry.to_bytes().strip_prefix(b"SUPERPAGE_PAGES=") {
                return value == b"thp";
            }
            next = next.add(1);
        }
    }
    false
}

/// Zeroes the stack below the caller, deeper than malloc's start-up goes.
#[inline(never)]
fn clear_stack() {
    black_box([0u8; 32 << 10]);
}
