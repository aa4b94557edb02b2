//! `syscall(2)`: memory system calls that a program makes by number, not by their libc functions.
//!
//! Such a call must not meet a superpage where the program expects ordinary memory, so it is handled like the call of
//! libc's function. Only `mmap` gets no superpages here: a program that maps memory this way wants the kernel's result.
//! Every other call costs a few comparisons, and is made with registers and stack unchanged (a call may return twice,
//! or on another stack).
//!
//! # Safety
//! As the system calls.

use std::ffi::{c_char, c_int, c_long, c_void};

use super::demote::Scope;
use super::{Request, others, parts, remap};
use crate::table::{self, MemoryPolicy};
use crate::{prepare, raw, source};

/// `long syscall(long number, ...)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    std::arch::naked_asm!(
        "cmp rdi, 63",
        "ja 2f",
        "mov rax, {low}",
        "bt rax, rdi",
        "jc {intercepted}",
        "jmp superpage_system_call",
        "2:",
        "cmp rdi, {mlock}",
        "je {intercepted}",
        "cmp rdi, {munlock}",
        "je {intercepted}",
        "cmp rdi, {mlockall}",
        "je {intercepted}",
        "cmp rdi, {munlockall}",
        "je {intercepted}",
        "cmp rdi, {remap_file_pages}",
        "je {intercepted}",
        "cmp rdi, {mlock2}",
        "je {intercepted}",
        "cmp rdi, {pkey_mprotect}",
        "je {intercepted}",
        "cmp rdi, {seccomp}",
        "je {intercepted}",
        "cmp rdi, {chroot}",
        "je {intercepted}",
        "cmp rdi, {pivot_root}",
        "je {intercepted}",
        "cmp rdi, {mseal}",
        "je {intercepted}",
        "cmp rdi, {mbind}",
        "je {intercepted}",
        "cmp rdi, {set_mempolicy}",
        "je {intercepted}",
        "cmp rdi, {prctl}",
        "je {intercepted}",
        "cmp rdi, {process_madvise}",
        "je {intercepted}",
        "jmp superpage_system_call",
        intercepted = sym intercepted,
        low = const INTERCEPTED_BELOW_64,
        mlock = const libc::SYS_mlock,
        munlock = const libc::SYS_munlock,
        mlockall = const libc::SYS_mlockall,
        munlockall = const libc::SYS_munlockall,
        remap_file_pages = const libc::SYS_remap_file_pages,
        mlock2 = const libc::SYS_mlock2,
        pkey_mprotect = const libc::SYS_pkey_mprotect,
        process_madvise = const libc::SYS_process_madvise,
        mseal = const SYS_MSEAL,
        mbind = const libc::SYS_mbind,
        set_mempolicy = const libc::SYS_set_mempolicy,
        prctl = const libc::SYS_prctl,
        seccomp = const libc::SYS_seccomp,
        chroot = const libc::SYS_chroot,
        pivot_root = const libc::SYS_pivot_root,
    )
}

/// `mseal(2)` (Linux 6.10).
const SYS_MSEAL: c_long = 462;

const INTERCEPTED_BELOW_64: u64 = 1 << libc::SYS_mmap
    | 1 << libc::SYS_mprotect
    | 1 << libc::SYS_munmap
    | 1 << libc::SYS_ioctl
    | 1 << libc::SYS_mremap
    | 1 << libc::SYS_madvise;

/// Gets the arguments of `syscall`: a jump leads here, so the last argument lies where the caller put it.
unsafe extern "C" fn intercepted(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let address = a as *mut c_void;
    // SAFETY: the caller keeps this function's contract. Arguments that a call does not have may hold anything.
    unsafe {
        match number {
            libc::SYS_mmap => {
                let (protection, flags) = (c as c_int, d as c_int);
                let (fd, offset) = (e as c_int, f as i64);
                let request = Request { address: a, length: b, protection, flags, fd, offset };
                raw::answer_address(request.replace_as_it_is()) as c_long
            }
            libc::SYS_mprotect => raw::answer(parts::protect(a, b, c as c_int)).into(),
            libc::SYS_munmap => raw::answer(parts::unmap(a, b)).into(),
            libc::SYS_madvise => raw::answer(parts::advise(a, b, c as c_int)).into(),
            libc::SYS_ioctl => others::ioctl(a as c_int, b as _, c as *mut c_void).into(),
            libc::SYS_mremap => {
                remap::mremap(address, b, c, d as c_int, e as *mut c_void) as c_long
            }
            libc::SYS_mlock => others::mlock(address, b).into(),
            libc::SYS_mlock2 => others::mlock2(address, b, c as _).into(),
            libc::SYS_munlock => others::munlock(address, b).into(),
            libc::SYS_mlockall => others::mlockall(a as c_int).into(),
            libc::SYS_munlockall => others::munlockall().into(),
            libc::SYS_remap_file_pages => {
                others::remap_file_pages(address, b, c as c_int, d, e as c_int).into()
            }
            libc::SYS_pkey_mprotect => {
                others::pkey_mprotect(address, b, c as c_int, d as c_int).into()
            }
            libc::SYS_process_madvise => {
                others::process_madvise(a as c_int, b as _, c, d as c_int, e as _) as c_long
            }
            libc::SYS_mbind => bind(a, b, c as c_int, d as *const u64, e, f),
            libc::SYS_set_mempolicy => {
                const MPOL_BIND: usize = 2;
                if a & 0xff == MPOL_BIND {
                    source::populate_reserved();
                }
                raw::system_call(number, a, b, c, d, e, f)
            }
            SYS_MSEAL => {
                // Sealed memory can never be demoted.
                let made = parts::first_make_ordinary(a, parts::round_up(a, b), Scope::Covered);
                match made {
                    Ok(()) => raw::system_call(number, a, b, c, d, e, f),
                    Err(errno) => raw::fails_with(errno).into(),
                }
            }
            libc::SYS_prctl => others::prctl(a as c_int, b as _, c as _, d as _, e as _).into(),
            libc::SYS_chroot | libc::SYS_pivot_root => {
                let change = || raw::system_call(number, a, b, c, d, e, f);
                others::changing_root(a as *const c_char, change)
            }
            libc::SYS_seccomp => {
                // A program that only tests for seccomp passes no filter, or flags in strict mode.
                const SET_MODE_STRICT: usize = 0;
                const SET_MODE_FILTER: usize = 1;
                let set = || raw::system_call(number, a, b, c, d, e, f);
                match (a, b, c) {
                    (SET_MODE_STRICT, 0, 0) => others::setting_filter(set),
                    (SET_MODE_FILTER, _, 1..) => others::setting_filter(set),
                    _ => set(),
                }
            }
            _ => raw::system_call(number, a, b, c, d, e, f),
        }
    }
}

/// `mbind(2)`: records the policy, so that copies get it, too.
unsafe fn bind(
    start: usize,
    length: usize,
    mode: c_int,
    nodes: *const u64,
    bits: usize,
    flags: usize,
) -> c_long {
    /// The mode without its flags.
    const MODE: c_int = 0xff;
    let end = parts::round_up(start, length);
    prepare::changed(start, end);
    // Reservations ignore nodes, so a touch of bound memory could fail. The table cannot record nodes from 64 on.
    let words = bits.saturating_sub(1).div_ceil(u64::BITS as usize);
    if (mode & MODE == libc::MPOL_BIND || words > 1)
        && let Err(errno) = parts::first_make_ordinary(start, end, Scope::Covered)
    {
        return raw::fails_with(errno).into();
    }
    super::without_demotion(start, end, || {
        // SAFETY: the caller keeps this function's contract.
        let result =
            unsafe { raw::system_call(libc::SYS_mbind, start, length, mode, nodes, bits, flags) };
        if result == 0 {
            let has_nodes = words > 0 && !nodes.is_null();
            // SAFETY: the kernel has read the mask.
            let nodes = if has_nodes { unsafe { nodes.read_unaligned() } } else { 0 };
            let policy = MemoryPolicy { mode, nodes };
            let policy = (mode & MODE != libc::MPOL_DEFAULT).then_some(policy);
            table::mark(start, end, |marks| marks.policy = policy);
        }
        result
    })
}
