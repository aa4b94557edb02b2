//! Memory on the pool's pages, as ordinary programs treat ordinary memory.
//!
//! Privileged ring: the pool's limit is set, so they need root and hold the machine's lock.

mod common;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::*;

const NEEDS: &str = "needs root and 2 MiB hugetlb pages";

#[test]
fn parts_of_superpages_are_unmapped_protected_and_emptied() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_parts", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn no_write_is_lost_while_a_superpage_is_split() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_writes_while_splitting", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn mappings_smaller_than_a_superpage_are_ordinary() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_maps_small", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn calls_that_fail_or_come_twice_change_nothing_else() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_calls_oddly", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn discarded_pages_can_be_touched_again_when_the_pool_is_gone() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(4);
    assert!(succeeds(child("child_discards", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn threads_may_split_the_same_superpage_and_map_what_others_unmap() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_splits_together", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn calls_that_hugetlb_does_not_carry_work_as_on_base_pages() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_calls_rarely", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn what_was_one_mapping_is_moved_as_one() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child("child_moves", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn parts_of_shared_memory_move_unless_another_process_has_it() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(64);
    assert!(succeeds(child_on_pool("child_shares", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn buffers_registered_with_io_uring_stay_where_they_are() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(16);
    assert!(succeeds(child("child_registers_buffers", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn four_gibibytes_in_one_piece_are_on_the_pool() {
    const PAGES: u64 = 2100;
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("a file of /proc");
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:")).expect("the field");
    let available: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap();
    testkit::require!(available >> 20 >= 8, "needs 8 GiB of memory");
    pool.allow(PAGES);
    assert!(succeeds(child("child_maps_four_gibibytes", HUGETLB)));
    assert!(pool.is_empty());
}

#[test]
fn without_a_way_to_hold_up_system_calls_only_who_asks_gets_the_pool() {
    let pool = Pool::lock();
    testkit::require!(pool.is_some(), "{NEEDS}");
    let pool = pool.unwrap();
    pool.allow(16);
    for (word, mib) in [("exact", "0"), ("always", "8")] {
        let mut command = child("child_has_no_privilege", HUGETLB);
        command.env("SUPERPAGE_POOL", word).env("SUPERPAGE_TEST_MIB", mib);
        // The device gives the descriptor to whoever may open it, and the call to CAP_SYS_PTRACE.
        let (user, group) = (65_534, 65_534);
        std::os::unix::process::CommandExt::uid(&mut command, user);
        std::os::unix::process::CommandExt::gid(&mut command, group);
        assert!(succeeds(command), "{word}");
        assert!(pool.is_empty());
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_calls_rarely() {
    let at = |start: *mut u8, offset: usize| start.wrapping_add(offset).cast::<c_void>();
    let filled = |seed| {
        let start = map(8 * MIB);
        fill(start, 8 * MIB, seed);
        start
    };
    let on_pool = hugetlb_mib;
    // SAFETY: mappings of this function's own.
    unsafe {
        // A guard superpage and a guard page stay what they are when all is emptied.
        for guard in [2 * MIB, 4096] {
            let start = filled(1);
            assert_eq!(libc::mprotect(at(start, 2 * MIB), guard, libc::PROT_NONE), 0);
            assert_eq!(libc::madvise(start.cast(), 8 * MIB, libc::MADV_DONTNEED), 0);
            assert!(!can_write(start.add(2 * MIB)) && can_write(start.add(2 * MIB + guard)));
            assert!(is_zero(start, 2 * MIB) && is_zero(start.add(4 * MIB), 4 * MIB));
            assert_eq!(libc::munmap(start.cast(), 8 * MIB), 0);
        }
        // What is emptied by whole superpages stays on the pool.
        let start = filled(1);
        let before = on_pool();
        assert_eq!(libc::madvise(at(start, 2 * MIB), 4 * MIB, libc::MADV_DONTNEED), 0);
        fill(start, 8 * MIB, 2);
        assert_eq!(on_pool(), before);
        // The pages around an edge move, and no others.
        assert_eq!(libc::mprotect(at(start, MIB), 4096, libc::PROT_READ), 0);
        assert_eq!(on_pool(), before - 2);
        // Wiped in the child: a page, and what is whole.
        for (from, length) in [(4 * MIB + 4096, 4096), (6 * MIB, 2 * MIB)] {
            assert_eq!(libc::madvise(at(start, from), length, libc::MADV_WIPEONFORK), 0);
            let status =
                in_child(|| is_zero(start.add(from), length) && holds(start, from - 4096, from, 2));
            assert_eq!(status, 0);
        }
        // Advice that goes with a mapping goes with the copy.
        let start = filled(3);
        assert_eq!(libc::madvise(start.cast(), 4 * MIB, libc::MADV_DONTFORK), 0);
        assert_eq!(libc::mprotect(at(start, MIB), 4096, libc::PROT_READ), 0);
        assert_eq!(in_child(|| !is_mapped(start) && !is_mapped(start.add(2 * MIB))), 0);
        // Enlarged across a part that was replaced.
        let start = filled(4);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let part = at(start, 3 * MIB);
        assert_eq!(libc::mmap(part, MIB, rw, flags, -1, 0), part);
        let moved = libc::mremap(start.cast(), 8 * MIB, 12 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(moved, libc::MAP_FAILED);
        let moved = moved.cast::<u8>();
        let expected = |at: usize| (start as u64 + at as u64) ^ 4;
        let word = |at: usize| *moved.add(at).cast::<u64>();
        assert!([0, 3 * MIB - 8, 4 * MIB, 8 * MIB - 8].iter().all(|at| word(*at) == expected(*at)));
        assert!(is_zero(moved.add(3 * MIB), MIB) && is_zero(moved.add(8 * MIB), 4 * MIB));
        // Kept in place, and empty there.
        let start = filled(5);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let moved = libc::mremap(start.cast(), 8 * MIB, 8 * MIB, flags);
        assert_ne!(moved, libc::MAP_FAILED);
        assert!(is_zero(start, 8 * MIB) && *moved.cast::<u64>() == start as u64 ^ 5);
        // Past libc's functions of those names.
        let start = filled(6);
        assert_eq!(libc::syscall(libc::SYS_munmap, at(start, MIB), 4096usize), 0);
        assert!(!is_mapped(start.add(MIB)) && holds(start, 0, MIB, 6));
        assert_eq!(libc::syscall(libc::SYS_munmap, at(start, 1), 4096usize), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        // Locked memory is counted.
        assert_eq!(libc::mlock(at(start, 5 * MIB), 8192), 0);
        let status = std::fs::read_to_string("/proc/self/status").expect("our own");
        assert!(status.lines().any(|line| line.starts_with("VmLck:") && line.ends_with(" 8 kB")));
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_shares() {
    let length = 8 * MIB + 8192;
    let start = map_as(length, libc::MAP_SHARED);
    fill(start, length, 1);
    let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
    let before = hugetlb_mib();
    assert!(before >= 8);
    // SAFETY: parts of the mapping above.
    unsafe {
        // While a child has it: refused, and nothing changed.
        let (mut ready, mut go) = ([0; 2], [0; 2]);
        assert_eq!(libc::pipe(ready.as_mut_ptr()) | libc::pipe(go.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            let mut byte = 0u8;
            libc::write(ready[1], (&raw const byte).cast(), 1);
            libc::read(go[0], (&raw mut byte).cast(), 1);
            start.add(5 * MIB).cast::<u64>().write(99);
            libc::_exit(0);
        }
        let mut byte = 0u8;
        libc::read(ready[0], (&raw mut byte).cast(), 1);
        assert_eq!(libc::mprotect(at(MIB), 4096, libc::PROT_NONE), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        assert!(can_write(start.add(MIB)) && holds(start, 0, length, 1));
        assert_eq!(libc::mprotect(at(2 * MIB), 2 * MIB, libc::PROT_READ), 0, "whole superpages");
        libc::write(go[1], (&raw const byte).cast(), 1);
        let mut status = -1;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
        assert_eq!(*start.add(5 * MIB).cast::<u64>(), 99);
        // Now it may move, as a whole; it stays shared.
        assert_eq!(libc::mprotect(at(MIB), 4096, libc::PROT_NONE), 0);
        assert!(!can_write(start.add(MIB)) && !can_write(start.add(2 * MIB)));
        assert_eq!(hugetlb_mib(), before - 8);
        assert!(holds(start, 0, MIB, 1) && holds(start, MIB + 4096, 5 * MIB, 1));
        assert_eq!(
            in_child(|| {
                start.cast::<u64>().write(7);
                start.add(6 * MIB).cast::<u64>().write(8);
                true
            }),
            0
        );
        assert_eq!((*start.cast::<u64>(), *start.add(6 * MIB).cast::<u64>()), (7, 8));
        // Mapped once more: one object.
        assert_eq!(libc::mprotect(start.cast(), length, libc::PROT_READ | libc::PROT_WRITE), 0);
        let again = libc::mremap(start.cast(), 0, length, libc::MREMAP_MAYMOVE).cast::<u8>();
        assert_ne!(again.cast(), libc::MAP_FAILED);
        for place in [0, 3 * MIB, 8 * MIB + 4096] {
            again.add(place).cast::<u64>().write(place as u64 + 1);
            assert_eq!(*start.add(place).cast::<u64>(), place as u64 + 1);
        }
        marks_on_base_pages_stay();
        // Address space that is only reserved is no use on the pool.
        let before = hugetlb_mib();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let null = std::ptr::null_mut();
        let reserved = libc::mmap(null, 8 * MIB, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mprotect(reserved.cast(), 8 * MIB, rw), 0);
        fill(reserved, 8 * MIB, 3);
        assert_eq!(hugetlb_mib(), before);
    }
}

/// Of superpages, of their copies and of base pages: in the process and in a child of its.
#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_moves() {
    let length = 8 * MIB + 8192;
    let is_moved = |start: *mut u8| {
        // SAFETY: the whole of a mapping that the test made.
        let moved =
            unsafe { libc::mremap(start.cast(), length, length + MIB, libc::MREMAP_MAYMOVE) };
        let at = |offset: usize| {
            // SAFETY: inside what was moved.
            unsafe { *moved.cast::<u64>().byte_add(offset) == (start as u64 + offset as u64) ^ 1 }
        };
        moved != libc::MAP_FAILED && [0, MIB, 5 * MIB, length - 8].into_iter().all(at)
    };
    let advice = [libc::MADV_SEQUENTIAL, libc::MADV_RANDOM, libc::MADV_DONTDUMP, libc::MADV_NORMAL];
    for advice in advice {
        for is_divided in [false, true] {
            let start = map(length);
            fill(start, length, 1);
            // SAFETY: parts of the mapping.
            unsafe {
                assert_eq!(libc::madvise(start.cast(), length, advice), 0);
                for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
                    let part = start.add(if is_divided { MIB } else { 0 }).cast();
                    let bytes = if is_divided { 4096 } else { length };
                    assert_eq!(libc::mprotect(part, bytes, protection), 0);
                }
            }
            assert_eq!(in_child(|| is_moved(start)), 0, "a child, advice {advice}");
            assert!(is_moved(start), "advice {advice}, divided: {is_divided}");
        }
    }
}

/// What the tail of a shared mapping was advised holds when the whole mapping is moved off the pool.
fn marks_on_base_pages_stay() {
    const MADV_GUARD_INSTALL: i32 = 102;
    let length = 2 * MIB + 16384;
    for advice in [MADV_GUARD_INSTALL, libc::MADV_DONTFORK] {
        let start = map_as(length, libc::MAP_SHARED);
        fill(start, length, 1);
        let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
        let tail = 2 * MIB + 4096;
        // SAFETY: parts of the mapping above.
        unsafe {
            if libc::madvise(at(tail), 4096, advice) != 0 {
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
                continue; // Guards in shared memory: Linux 6.15.
            }
            let before = hugetlb_mib();
            assert_eq!(libc::mprotect(at(MIB), 4096, libc::PROT_READ), 0);
            assert!(hugetlb_mib() < before || advice == MADV_GUARD_INSTALL, "it was moved");
            assert!(holds(start, 0, tail, 1) && holds(start, tail + 4096, length, 1));
            let is_there = || start.add(tail).cast::<u64>().read_volatile() != 0;
            if advice == MADV_GUARD_INSTALL {
                assert_eq!(in_child(is_there), libc::SIGSEGV, "the guard");
                assert_eq!(libc::madvise(at(tail), 4096, advice + 1), 0, "removed");
            } else {
                assert_eq!(in_child(is_there), libc::SIGSEGV, "not the child's");
            }
            assert!(holds(start, tail, tail + 4096, 1));
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_registers_buffers() {
    const IORING_REGISTER_BUFFERS: usize = 0;
    const IORING_UNREGISTER_BUFFERS: usize = 1;
    let start = map(4 * MIB);
    fill(start, 4 * MIB, 1);
    let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
    // `struct io_uring_params`: 120 bytes, all of them zero.
    let mut parameters = [0u64; 15];
    let buffer = libc::iovec { iov_base: at(MIB), iov_len: 64 << 10 };
    // SAFETY: the structures the calls want, and parts of the mapping above.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr());
        if ring < 0 {
            testkit::skipped!("no io_uring: {}", std::io::Error::last_os_error());
            return;
        }
        let (register, one) = (libc::SYS_io_uring_register, 1usize);
        let done = libc::syscall(register, ring, IORING_REGISTER_BUFFERS, &raw const buffer, one);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // Its superpage stays; the next may go.
        assert_eq!(libc::munmap(at(0), 4096), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        assert!(holds(start, 0, 4 * MIB, 1));
        assert_eq!(libc::munmap(at(3 * MIB), 4096), 0);
        // The kernel lets go of a ring's pages some time after it is closed.
        let none = std::ptr::null::<libc::iovec>();
        let done = libc::syscall(register, ring, IORING_UNREGISTER_BUFFERS, none, 0usize);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::munmap(at(0), 4096), 0);
        assert!(!is_mapped(start));
        assert_eq!(libc::close(ring as i32), 0);
        assert!(holds(start, 4096, 3 * MIB, 1));
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_four_gibibytes() {
    let length = 4096 * MIB;
    let start = map(length);
    assert_eq!(read("resv_hugepages"), 2048);
    for place in [0, 1023 * MIB, 1024 * MIB, 3000 * MIB, length - 4096] {
        // SAFETY: inside the mapping.
        unsafe {
            assert_eq!(*start.add(place), 0);
            *start.add(place) = 1;
        }
    }
    assert_eq!(hugetlb_mib(), 10);
    // SAFETY: not used again.
    assert_eq!(unsafe { libc::munmap(start.cast(), length) }, 0);
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_has_no_privilege() {
    let expected = std::env::var("SUPERPAGE_TEST_MIB").expect("set by the test");
    let start = map(8 * MIB);
    fill(start, 8 * MIB, 1);
    assert_eq!(hugetlb_mib().to_string(), expected);
    // SAFETY: part of the mapping above.
    assert_eq!(unsafe { libc::munmap(start.add(MIB).cast(), 4096) }, 0);
    assert!(holds(start, 0, MIB, 1) && holds(start, MIB + 4096, 8 * MIB, 1));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_parts() {
    let length = 16 * MIB + 12288;
    let start = map(length);
    assert_eq!(start as usize % (2 * MIB), 0);
    fill(start, length, 1);
    assert!(hugetlb_mib() >= 16, "{} MiB", hugetlb_mib());
    let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
    // SAFETY: ranges of the mapping above, none used again after it is unmapped.
    unsafe {
        // A hole in the second superpage.
        assert_eq!(libc::munmap(at(3 * MIB), 8192), 0);
        assert!(!is_mapped(start.add(3 * MIB)) && !is_mapped(start.add(3 * MIB + 4096)));
        assert!(holds(start, 0, 3 * MIB, 1) && holds(start, 3 * MIB + 8192, length, 1));
        // Two edges at once: the fourth and fifth.
        assert_eq!(libc::mprotect(at(7 * MIB), 2 * MIB, libc::PROT_READ), 0);
        assert!(holds(start, 3 * MIB + 8192, length, 1));
        assert!(!can_write(start.add(7 * MIB)) && !can_write(start.add(9 * MIB - 4096)));
        assert!(can_write(start.add(7 * MIB - 4096)) && can_write(start.add(9 * MIB)));
        // Parts and wholes emptied: zero, and only they.
        assert_eq!(libc::madvise(at(9 * MIB), 4 * MIB, libc::MADV_DONTNEED), 0);
        for quarter in (9 * MIB..13 * MIB).step_by(MIB / 4) {
            assert!(is_zero(start.add(quarter), MIB / 4), "at {} KiB", quarter >> 10);
        }
        assert!(holds(start, 13 * MIB, length, 1));
        // Lazily freed memory holds what it held or zero.
        assert_eq!(libc::madvise(at(14 * MIB), 4096, libc::MADV_FREE), 0);
        // Hints are taken note of.
        assert_eq!(libc::madvise(at(14 * MIB), 4096, libc::MADV_HUGEPAGE), 0);
        assert_eq!(libc::madvise(at(14 * MIB + 4096), 4096, libc::MADV_DONTFORK), 0);
        // Something else over a part.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let over = libc::mmap(at(MIB), 4096, libc::PROT_READ, flags, -1, 0);
        assert_eq!(over, at(MIB));
        assert!(is_zero(start.add(MIB), 4096) && !can_write(start.add(MIB)));
        assert!(holds(start, 0, MIB, 1) && holds(start, MIB + 4096, 3 * MIB, 1));
        assert_eq!(libc::munmap(start.cast(), length), 0);
        assert!(!is_mapped(start));
    }
    resizes();
    assert!(hugetlb_mib() <= 8, "what was unmapped went back: {} MiB", hugetlb_mib());
}

fn resizes() {
    // SAFETY: mappings of this function's own.
    unsafe {
        let old = map(6 * MIB);
        fill(old, 6 * MIB, 2);
        let in_place = libc::mremap(old.cast(), 6 * MIB, 8 * MIB, 0);
        assert_eq!(in_place, libc::MAP_FAILED);
        let new = libc::mremap(old.cast(), 6 * MIB, 9 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(new, libc::MAP_FAILED);
        let words = new.cast::<u64>();
        let expected = |at: usize| (old as u64 + at as u64 * 8) ^ 2;
        assert!((0..6 * MIB / 8).all(|at| *words.add(at) == expected(at)));
        assert!(is_zero(new.cast::<u8>().add(6 * MIB), 3 * MIB));
        assert!(!is_mapped(old));
        // Smaller, not by whole superpages.
        let same = libc::mremap(new, 9 * MIB, 5 * MIB + 4096, 0);
        assert_eq!(same, new);
        assert!(!is_mapped(new.cast::<u8>().add(5 * MIB + 4096)));
        assert_eq!(*words.add(5 * MIB / 8), expected(5 * MIB / 8));
        assert_eq!(libc::munmap(new, 5 * MIB + 4096), 0);
    }
}

/// Through a system call, which does not kill.
fn can_write(address: *mut u8) -> bool {
    let mut byte = 0u8;
    // SAFETY: one byte is read and written back by the kernel, which checks both.
    unsafe {
        let ours = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let theirs = libc::iovec { iov_base: address.cast(), iov_len: 1 };
        let pid = libc::getpid();
        libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) == 1
            && libc::process_vm_writev(pid, &ours, 1, &theirs, 1, 0) == 1
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_writes_while_splitting() {
    const THREADS: usize = 3;
    let pages = 24;
    let start = map(pages * 2 * MIB) as usize;
    fill(start as *mut u8, pages * 2 * MIB, 3);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let stop = &stop;
                scope.spawn(move || {
                    // One word in each superpage, which only this thread writes.
                    let word = |page: usize| {
                        let at = start + page * 2 * MIB + 4096 + thread * 8;
                        // SAFETY: inside the mapping; never unmapped by the main thread.
                        unsafe { &*(at as *const AtomicU64) }
                    };
                    (0..pages).for_each(|page| word(page).store(0, Ordering::Relaxed));
                    let mut rounds = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        for page in 0..pages {
                            let before = word(page).fetch_add(1, Ordering::Relaxed);
                            assert_eq!(before, rounds, "a write to page {page} was lost");
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(20));
        for page in 0..pages {
            let hole = start + page * 2 * MIB + MIB;
            // SAFETY: no thread writes there.
            assert_eq!(unsafe { libc::munmap(hole as *mut c_void, 4096) }, 0);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            assert!(writer.join().expect("no lost write") > 0);
        }
    });
    for page in 0..pages {
        let from = page * 2 * MIB;
        assert!(holds(start as *const u8, from, from + 4096, 3));
        assert!(holds(start as *const u8, from + 8192, from + MIB, 3));
        assert!(holds(start as *const u8, from + MIB + 4096, from + 2 * MIB, 3));
    }
    assert!(hugetlb_mib() <= 8, "all of it was split: {} MiB", hugetlb_mib());
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_small() {
    let before = hugetlb_mib();
    let small: Vec<*mut u8> = (0..40).map(|_| map(MIB)).collect();
    for (at, start) in small.iter().enumerate() {
        assert!(is_zero(*start, MIB), "fresh memory is zero");
        fill(*start, MIB, at as u64);
    }
    assert_eq!(hugetlb_mib(), before);
    // What is unmapped is not there any more, and its place is free.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = small[20].cast::<c_void>();
    // SAFETY: the test's own, not used again.
    unsafe {
        assert_eq!(libc::munmap(at, MIB), 0);
        assert!(!is_mapped(small[20]));
        assert_eq!(libc::mmap(at, MIB, libc::PROT_READ, flags, -1, 0), at);
    }
    assert!(is_zero(small[20], MIB));
    for (at, start) in small.iter().enumerate().filter(|(at, _)| *at != 20) {
        assert!(holds(*start, 0, MIB, at as u64), "mapping {at}");
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_calls_oddly() {
    let start = map(4 * MIB);
    fill(start, 4 * MIB, 1);
    let (at, rw) = (start.cast::<c_void>(), libc::PROT_READ | libc::PROT_WRITE);
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: mappings of this test's own, at and below `start`.
    unsafe {
        // A mapping that fails (no such descriptor) leaves what was there.
        let failed = libc::mmap(at, 2 * MIB, rw, libc::MAP_PRIVATE | libc::MAP_FIXED, 9999, 0);
        assert_eq!(failed, libc::MAP_FAILED);
        assert!(holds(start, 0, 4 * MIB, 1));
        // Emptying what may not be written.
        assert_eq!(libc::mprotect(at, 4 * MIB, libc::PROT_READ), 0);
        assert_eq!(libc::madvise(at.add(MIB), 8192, libc::MADV_DONTNEED), 0);
        assert!(is_zero(start.add(MIB), 8192) && holds(start, 0, MIB, 1));
        // Enlarging what may not even be read.
        assert_eq!(libc::mprotect(at, 4 * MIB, libc::PROT_NONE), 0);
        let grown = libc::mremap(at, 4 * MIB, 6 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(grown, libc::MAP_FAILED);
        assert!(!can_write(grown.cast()));
        assert_eq!(libc::munmap(grown, 6 * MIB), 0);
        // Below 4 GiB, where that is asked for.
        let low = libc::mmap(std::ptr::null_mut(), 4 * MIB, rw, anonymous | libc::MAP_32BIT, -1, 0);
        assert!(low == libc::MAP_FAILED || (low as usize) < 1 << 32);
        // As small as an object may be, aligned as in glibc.
        for _ in 0..100 {
            assert_eq!(std::hint::black_box(libc::malloc(5)) as usize % 16, 0);
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_discards() {
    let start = map(8 * MIB);
    fill(start, 8 * MIB, 1);
    // SAFETY: a mapping of this test's own.
    assert_eq!(unsafe { libc::madvise(start.cast(), 8 * MIB, libc::MADV_DONTNEED) }, 0);
    // Whatever the pool has left goes to somebody else.
    let status = in_child(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        for _ in 0..8 {
            // SAFETY: fresh memory, if any.
            let page = unsafe { libc::mmap(std::ptr::null_mut(), 2 * MIB, prot, flags, -1, 0) };
            if page != libc::MAP_FAILED {
                fill(page.cast(), 2 * MIB, 1);
            }
        }
        true
    });
    assert_eq!(status, 0);
    assert!(is_zero(start, 8 * MIB));
    fill(start, 8 * MIB, 2);
    assert!(holds(start, 0, 8 * MIB, 2));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_splits_together() {
    for _ in 0..30 {
        let start = map(4 * MIB) as usize;
        fill(start as *mut u8, 4 * MIB, 5);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for page in 0..2 {
                        let hole = start + page * 2 * MIB + (thread + 1) * 256 * 1024;
                        let hole = hole as *mut c_void;
                        // SAFETY: each thread's own hole.
                        let split = unsafe {
                            match (thread + page) % 4 {
                                0 => libc::mprotect(hole, 4096, libc::PROT_READ),
                                1 => libc::madvise(hole, 4096, libc::MADV_DONTFORK),
                                _ => libc::munmap(hole, 4096),
                            }
                        };
                        assert_eq!(split, 0, "{}", std::io::Error::last_os_error());
                    }
                    // What one thread unmaps another may get.
                    for _ in 0..20 {
                        let own = map(2 * MIB);
                        fill(own, 2 * MIB, 9);
                        let part = own.wrapping_add(MIB).cast::<c_void>();
                        // SAFETY: this thread's own.
                        unsafe {
                            assert_eq!(libc::madvise(part, 4096, libc::MADV_DONTNEED), 0);
                            assert!(is_zero(part.cast(), 4096));
                            assert_eq!(libc::munmap(own.cast(), 2 * MIB), 0);
                        }
                    }
                });
            }
        });
        let start = start as *mut u8;
        assert!(holds(start, 0, 256 * 1024, 5) && holds(start, 2 * MIB, 2 * MIB + 4096, 5));
        // SAFETY: the test's own.
        assert_eq!(unsafe { libc::munmap(start.cast(), 4 * MIB) }, 0);
    }
}
