//! Programs that must run without this library: built with a sanitizer, or run by valgrind.
//!
//! Sanitizers and valgrind bring an allocator that must come first. `superpage run` recognizes such programs by their
//! files; this module recognizes those that a shell, or another program of a run, executes. Under valgrind the library
//! stays inert (see `settings`). A sanitizer's runtime rejects any library loaded before it, so the program is executed
//! again without this one.
//!
//! # Safety Runs at the beginning of the constructor, before any other constructor (`start`): one thread, and no code
//! of the program or the sanitizer has run. The module makes only system calls, and compares bytes in loops: the
//! sanitizer may interpose libc's functions.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use crate::counters::{self, Reason};
use crate::loaded::{self, Object};
use crate::{environment, raw};

/// Whether the program has a sanitizer. If LD_PRELOAD loaded this library, executes the program again without the
/// library and does not return.
pub fn has_to_stay_out() -> bool {
    let mut objects = loaded::objects();
    let is_instrumented = objects.next().is_some_and(is_instrumented);
    if !is_instrumented && !objects.any(is_runtime) {
        return false;
    }
    if let Some(path) = environment::value(abi::environment::COUNTERS) {
        counters::note(path, Reason::Instrumented);
    }
    // Loaded by other means (/etc/ld.so.preload, DT_NEEDED), the library would be loaded again, in an endless loop.
    if environment::leave() {
        execute_again();
    }
    true
}

/// Whether the object is a sanitizer's runtime: `libasan.so.8` of GCC, `libclang_rt.asan-x86_64.so` of clang.
fn is_runtime(object: &Object) -> bool {
    const SANITIZERS: [&[u8]; 5] = [b"asan", b"hwasan", b"lsan", b"msan", b"tsan"];
    object.is_file_of(b"lib", &SANITIZERS) || object.is_file_of(b"libclang_rt.", &SANITIZERS)
}

/// Whether a sanitizer's runtime is linked into the program: clang exports its entry point. GCC does not, but a program
/// that interposes all three of these functions is taken for a sanitized one.
fn is_instrumented(program: &Object) -> bool {
    const ENTRIES: [&[u8]; 5] =
        [b"__asan_init", b"__hwasan_init", b"__lsan_init", b"__msan_init", b"__tsan_init"];
    const INTERPOSED: [&[u8]; 3] = [b"malloc", b"memcpy", b"pthread_create"];
    ENTRIES.iter().any(|name| program.exports(name))
        || INTERPOSED.iter().all(|name| program.exports(name))
}

/// Executes the same program with the current environment; returns only on failure.
fn execute_again() {
    let mut buffer = MaybeUninit::<[c_char; 4096]>::uninit();
    // SAFETY: the path that the kernel executed (a C string on the stack), a buffer and less than its length,
    // the kernel's own lists of arguments and variables.
    unsafe {
        let file = buffer.as_mut_ptr().cast::<c_char>();
        let at = libc::AT_FDCWD;
        let length = raw::call!(SYS_readlinkat, at, OWN.as_ptr(), file, 4095);
        // Without AT_BASE the executable is the dynamic loader itself, called by name to load the program.
        if length < 0 || libc::getauxval(libc::AT_BASE) == 0 {
            return;
        }
        *file.add(length as usize) = 0;
        // The path as executed, unless it names a script: then /proc/self/exe is the interpreter.
        let given = libc::getauxval(libc::AT_EXECFN) as *const c_char;
        let path = if is_own(given) { given } else { file.cast_const() };
        if is_own(path) {
            let arguments = environment::initial_arguments();
            raw::call!(SYS_execve, path, arguments, environment::initial_environment());
        }
    }
}

const OWN: &CStr = c"/proc/self/exe";

/// Whether the path leads to the running executable.
unsafe fn is_own(path: *const c_char) -> bool {
    let identity = |path: *const c_char| {
        // SAFETY: the pointer is to a C string.
        unsafe { raw::stat_by(path, 0) }.map(|file| (file.st_dev, file.st_ino))
    };
    let own = identity(OWN.as_ptr());
    !path.is_null() && own.is_some() && identity(path) == own
}
