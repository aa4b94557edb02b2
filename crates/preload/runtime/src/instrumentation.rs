//! Programs that this library must not be in: with a sanitizer, or under valgrind.
//!
//! Sanitizers and valgrind bring an allocator that has to be the first. `superpage run` recognizes such
//! programs by their files; this is for those that a shell, or another program of a run, executes. Under
//! valgrind the library stays inert (see `settings`). A sanitizer's runtime minds that another library is
//! there at all, so the program is executed anew without this one.
//!
//! # Safety
//! Runs at the beginning of the constructor, which is the first of all (`start`): one thread, nothing of the
//! program or of the sanitizer has run. So only system calls are made, and loops compare bytes: libc's
//! functions may be the sanitizer's.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use crate::counters::{self, Reason};
use crate::loaded::{self, Object};
use crate::{environment, raw};

/// Whether the program comes with a sanitizer. If this library is there because LD_PRELOAD names it, the
/// program is executed anew without, and this does not return.
pub fn has_to_stay_out() -> bool {
    let mut objects = loaded::objects();
    let is_instrumented = objects.next().is_some_and(is_instrumented);
    if !is_instrumented && !objects.any(is_runtime) {
        return false;
    }
    if let Some(path) = environment::value(abi::environment::COUNTERS) {
        counters::note(path, Reason::Instrumented);
    }
    // Loaded by other means (/etc/ld.so.preload, DT_NEEDED) it would come again, for ever.
    if environment::leave() {
        execute_again();
    }
    true
}

/// `libasan.so.8` of GCC, `libclang_rt.asan-x86_64.so` of clang.
fn is_runtime(object: &Object) -> bool {
    const SANITIZERS: [&[u8]; 5] = [b"asan", b"hwasan", b"lsan", b"msan", b"tsan"];
    object.is_file_of(b"lib", &SANITIZERS) || object.is_file_of(b"libclang_rt.", &SANITIZERS)
}

/// Whether a runtime is linked into the program: clang exports its entry. GCC does not, but whoever puts its
/// own functions in place of all three of these is of that kind.
fn is_instrumented(program: &Object) -> bool {
    const ENTRIES: [&[u8]; 5] =
        [b"__asan_init", b"__hwasan_init", b"__lsan_init", b"__msan_init", b"__tsan_init"];
    const INTERPOSED: [&[u8]; 3] = [b"malloc", b"memcpy", b"pthread_create"];
    ENTRIES.iter().any(|name| program.exports(name))
        || INTERPOSED.iter().all(|name| program.exports(name))
}

/// Becomes the same program once more, with the environment as it is now; returns only if it cannot.
fn execute_again() {
    let mut buffer = MaybeUninit::<[c_char; 4096]>::uninit();
    // SAFETY: the path that the kernel executed (a C string on the stack), a buffer and less than its length,
    // the kernel's own lists of arguments and variables.
    unsafe {
        let file = buffer.as_mut_ptr().cast::<c_char>();
        let at = libc::AT_FDCWD;
        let length = raw::call!(SYS_readlinkat, at, OWN.as_ptr(), file, 4095);
        // With no loader of its own it is one, called by name to load the program.
        if length < 0 || libc::getauxval(libc::AT_BASE) == 0 {
            return;
        }
        *file.add(length as usize) = 0;
        // As it was called, unless that names a script: its interpreter is what runs.
        let given = libc::getauxval(libc::AT_EXECFN) as *const c_char;
        let path = if is_own(given) { given } else { file.cast_const() };
        if is_own(path) {
            let arguments = environment::initial_arguments();
            raw::call!(SYS_execve, path, arguments, environment::initial_environment());
        }
    }
}

const OWN: &CStr = c"/proc/self/exe";

/// Whether the path leads to the file that runs.
unsafe fn is_own(path: *const c_char) -> bool {
    let identity = |path: *const c_char| {
        // SAFETY: a C string.
        unsafe { raw::stat_by(path, 0) }.map(|file| (file.st_dev, file.st_ino))
    };
    let own = identity(OWN.as_ptr());
    !path.is_null() && own.is_some() && identity(path) == own
}
