//! Mappings that a program has unmapped are kept: where, for which process, and until when.

use super::*;
use crate::common::*;

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_again() {
    grow_large();
    let length = 16 * MIB;
    let (is_kept, start) = keep(length);
    assert_eq!(touch(start), Some((libc::SIGSEGV, SEGV_MAPERR)));
    // SAFETY: no mapping is there.
    unsafe {
        assert_eq!(libc::msync(start.cast(), length, libc::MS_ASYNC), -1);
        assert_eq!(libc::munlock(start.cast(), length), -1);
        assert_eq!(libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE), -1);
        assert_eq!(libc::mprotect(start.cast(), length, libc::PROT_READ), -1);
    }
    assert_eq!(mapped_at(start), None);
    if !is_kept {
        testkit::skipped!("nothing was kept: no superpages here");
        return;
    }
    let again = map(length);
    assert_eq!(again, start);
    assert!(is_zero(again, length) && is_resident(again, length));
    // Make requests of another length until the library no longer expects one of this length.
    unmap(again, length);
    for _ in 0..20 {
        map(2 * MIB);
    }
    assert_eq!(waiting_mib(), 0);
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_in_between() {
    grow_large();
    let length = 16 * MIB;
    for round in 0..4 {
        let (is_kept, start) = keep(length);
        // The program may map something at the old address.
        let there = start.wrapping_add(round * 4 * MIB);
        assert_eq!(map_at(there, 4096), 0);
        let again = map(2 * length);
        unmap(again, 2 * length);
        let again = map(length);
        assert!(!(again..again.wrapping_add(length)).contains(&there));
        assert!(is_zero(again, length) && (!is_kept || is_resident(again, length)));
        fill(again, length, 3);
        // The memory is one mapping, also together with memory mapped right behind it.
        let end = again.wrapping_add(length);
        if map_at(end, 4096) == 0 {
            // SAFETY: memory of this test.
            let moved = unsafe {
                libc::mremap(again.cast(), length + 4096, 2 * length, libc::MREMAP_MAYMOVE)
            };
            assert_ne!(moved, libc::MAP_FAILED);
            let words = (0..length / 8).map(|at| (again as u64 + at as u64 * 8) ^ 3);
            // SAFETY: as above.
            let found = unsafe { std::slice::from_raw_parts(moved.cast::<u64>(), length / 8) };
            assert!(words.eq(found.iter().copied()));
            unmap(moved.cast(), 2 * length);
        } else {
            unmap(again, length);
        }
        unmap(there, 4096);
    }
}

/// Maps fresh memory at an unmapped address. Returns the error, or 0.
fn map_at(address: *mut u8, length: usize) -> i32 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the call replaces no mapping.
    let got = unsafe { libc::mmap(address.cast(), length, protection, flags, -1, 0) };
    if got == address.cast() { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap() }
}

/// linux/signal.h
const SEGV_MAPERR: i32 = 1;

/// Reads a byte there in a child. Returns the child's signal and its code.
fn touch(address: *const u8) -> Option<(i32, i32)> {
    extern "C" fn say(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's structure; then the child ends.
        unsafe { libc::_exit(signal << 4 | (*info).si_code) }
    }
    let status = in_child(|| {
        // SAFETY: a handler of the type that SA_SIGINFO takes; the byte is not used.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = say as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
            std::ptr::read_volatile(address);
        }
        true
    });
    let code = libc::WEXITSTATUS(status);
    (code != 0).then_some((code >> 4, code & 0xf))
}

/// Returns the address of memory that the kernel may take at any time.
fn where_it_is_kept() -> Option<*mut u8> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("it can be read");
    let (mut start, mut found) = (0, None);
    for line in smaps.lines() {
        if let Some((first, _)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            start = usize::from_str_radix(first, 16).unwrap_or(start);
        }
        let is_kept = line.starts_with("LazyFree:") && !line.contains(" 0 kB");
        found = found.or(is_kept.then_some(start as *mut u8));
    }
    found
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_there() {
    grow_large();
    let length = 16 * MIB;
    for flag in [libc::MAP_FIXED, libc::MAP_FIXED_NOREPLACE, 0] {
        let (is_kept, _) = keep(length);
        let Some(place) = where_it_is_kept().filter(|_| is_kept) else {
            testkit::skipped!("nothing was kept: no superpages here");
            return;
        };
        let there = place.wrapping_add(4 * MIB).cast();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flag;
        // SAFETY: this program has no mapping there.
        let got = unsafe { libc::mmap(there, 4096, protection, flags, -1, 0) };
        assert_eq!(got, there, "flag {flag:x}");
        assert_eq!((waiting_mib(), mapped_at(place)), (0, None), "the rest is gone");
        let start = map(length);
        assert!(is_zero(start, length));
        unmap(start, length);
        unmap(got.cast(), 4096);
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_locks() {
    grow_large();
    let length = 4 * MIB;
    for _ in 0..5 {
        let start = map(length);
        // SAFETY: memory of this test.
        if unsafe { libc::mlock(start.cast(), length) } != 0 {
            testkit::skipped!("4 MiB may not be locked here");
            return;
        }
        fill(start, length, 2);
        unmap(start, length);
        let status = std::fs::read_to_string("/proc/self/status").expect("it can be read");
        let locked = status.lines().find(|line| line.starts_with("VmLck:")).expect("a line");
        assert_eq!(locked.split_whitespace().nth(1), Some("0"), "{locked}");
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_is_small() {
    for _ in 0..5 {
        let (is_kept, start) = keep(16 * MIB);
        assert!(!is_kept && mapped_at(start).is_none());
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_starts_a_small_one() {
    grow_large();
    assert!(succeeds(preparing("prepare::stock::child_is_small")));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_wants_small_pages() {
    grow_large();
    let length = 16 * MIB;
    let (_, _) = keep(length);
    for _ in 0..2 {
        let start = map(length);
        // SAFETY: memory of this test.
        unsafe {
            *start.add(5 * MIB) = 9;
            assert_eq!(libc::madvise(start.cast(), length, libc::MADV_NOHUGEPAGE), 0);
            assert_eq!(*start.add(5 * MIB), 9);
        }
        let present = (0..8).filter(|at| is_present(start.wrapping_add(at * 2 * MIB))).count();
        assert!(present <= 1, "{present} superpages");
        unmap(start, length);
    }
}
