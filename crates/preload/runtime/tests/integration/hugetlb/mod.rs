//! Ordinary programs' calls on memory of the pool.
//!
//! Privileged tier: the tests set the pool's limit, so they need root and hold the machine's lock.

mod shared;
mod split;

use crate::common::*;
use std::ffi::c_void;
use std::io::{Error, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

mod exclusive {
    use super::*;

    #[test]
    fn mappings_smaller_than_a_superpage_are_ordinary() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::child_maps_small", HUGETLB)));
        let with_thp = Asked { fallback: "thp", ..HUGETLB };
        assert!(succeeds(child("hugetlb::child_maps_small", with_thp)));
        assert!(pool.is_empty());
    }

    #[test]
    fn mappings_smaller_than_a_superpage_share_thp_where_these_are_the_fallback() {
        testkit::require!(crate::programs::has_thp(), "THP are off on this machine");
        testkit::require!(has_free_superpages(100), "{NEEDS_FREE}");
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let with_thp = Asked { fallback: "thp", ..HUGETLB };
        assert!(succeeds(child("hugetlb::child_maps_small_ones_with_thp", with_thp)));
        assert!(pool.is_empty());
    }

    #[test]
    fn calls_that_fail_or_come_twice_change_nothing_else() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::child_calls_oddly", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn discarded_pages_can_be_touched_again_when_the_pool_is_gone() {
        let Some(pool) = Pool::of(4) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::child_discards", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn calls_that_hugetlb_does_not_carry_work_as_on_base_pages() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::child_calls_rarely", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn what_was_one_mapping_is_moved_as_one() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::child_moves", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn four_gibibytes_in_one_piece_are_on_the_pool() {
        const PAGES: u64 = 2100;
        let Some(pool) = Pool::of(1) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let meminfo = std::fs::read_to_string("/proc/meminfo").expect("a file of /proc");
        let line =
            meminfo.lines().find(|line| line.starts_with("MemAvailable:")).expect("the field");
        let available: u64 =
            line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap();
        testkit::require!(available >> 20 >= 8, "needs 8 GiB of memory");
        testkit::require!(pool.allow(PAGES), "{NEEDS_POOL}");
        assert!(succeeds(child("hugetlb::child_maps_four_gibibytes", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn without_a_way_to_hold_up_system_calls_only_who_asks_gets_the_pool() {
        let Some(pool) = Pool::of(16) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        // Anyone who may open /dev/userfaultfd gets a userfaultfd; the system call needs CAP_SYS_PTRACE.
        let by_nobody = |command: &mut Command| {
            command.uid(65_534).gid(65_534);
        };
        let mut listing = Command::new(std::env::current_exe().expect("our own path"));
        by_nobody(listing.arg("--list"));
        let can_start = listing.output().is_ok_and(|output| output.status.success());
        testkit::require!(can_start, "this program lies where only its owner can start it");
        for (word, mib) in [("exact", "0"), ("always", "8")] {
            let mut command = child("hugetlb::child_has_no_privilege", HUGETLB);
            command.env("SUPERPAGE_POOL", word).env("SUPERPAGE_TEST_MIB", mib);
            by_nobody(&mut command);
            assert!(succeeds(command), "{word}");
            assert!(pool.is_empty());
        }
    }

    #[test]
    fn memory_that_a_group_fills_with_cache_is_had() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let group = testkit::ControlGroup::of_memory(320 << 20, "cached");
        testkit::require!(group.is_some(), "needs a memory cgroup that root can make");
        let group = group.unwrap();
        let mut kind = Command::new("stat");
        kind.args(["-f", "-c", "%T", env!("CARGO_TARGET_TMPDIR")]);
        let kind = kind.output().expect("stat starts").stdout;
        testkit::require!(!kind.starts_with(b"tmpfs"), "what is written to a tmpfs is no cache");
        let inner = child("hugetlb::child_fills_its_group_with_cache", HUGETLB);
        let mut command = Command::new("sh");
        group.join(&mut command).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            value.map(|value| command.env(name, value));
        }
        assert!(succeeds(command));
        assert!(pool.is_empty());
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_fills_its_group_with_cache() {
    const LENGTH: usize = 96 * MIB;
    // The file must be on a disk: files of a tmpfs are not page cache that can be dropped.
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    for _ in 0..400 {
        file.write_all(&[1; MIB]).expect("it fits on the disk");
    }
    file.sync_all().expect("written");
    let start = map(LENGTH);
    fill(start, LENGTH, 7);
    assert_eq!(hugetlb_mib(), 96);
    // SAFETY: memory that this function owns.
    assert_eq!(unsafe { libc::mlock(start.cast(), LENGTH) }, 0, "{:?}", Error::last_os_error());
    assert_eq!(hugetlb_mib(), 0);
    assert!(holds(start, 0, LENGTH, 7));
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
    // SAFETY: mappings that this function owns.
    unsafe {
        // A guard superpage and a guard page stay guards when the whole mapping is discarded.
        for guard in [2 * MIB, 4096] {
            let start = filled(1);
            assert_eq!(libc::mprotect(at(start, 2 * MIB), guard, libc::PROT_NONE), 0);
            assert_eq!(libc::madvise(start.cast(), 8 * MIB, libc::MADV_DONTNEED), 0);
            assert!(!can_write(start.add(2 * MIB)) && can_write(start.add(2 * MIB + guard)));
            assert!(is_zero(start, 2 * MIB) && is_zero(start.add(4 * MIB), 4 * MIB));
            assert_eq!(libc::munmap(start.cast(), 8 * MIB), 0);
        }
        // Memory that is discarded in whole superpages stays on the pool.
        let start = filled(1);
        let before = on_pool();
        assert_eq!(libc::madvise(at(start, 2 * MIB), 4 * MIB, libc::MADV_DONTNEED), 0);
        fill(start, 8 * MIB, 2);
        assert_eq!(on_pool(), before);
        // The superpages around both edges leave the pool, and no others.
        assert_eq!(libc::mprotect(at(start, MIB), 4096, libc::PROT_READ), 0);
        assert_eq!(on_pool(), before - 2);
        // Both a page and a whole superpage are wiped in the child.
        for (from, length) in [(4 * MIB + 4096, 4096), (6 * MIB, 2 * MIB)] {
            assert_eq!(libc::madvise(at(start, from), length, libc::MADV_WIPEONFORK), 0);
            let status =
                in_child(|| is_zero(start.add(from), length) && holds(start, from - 4096, from, 2));
            assert_eq!(status, 0);
        }
        // Advice of the mapping is copied with it.
        let start = filled(3);
        assert_eq!(libc::madvise(start.cast(), 4 * MIB, libc::MADV_DONTFORK), 0);
        assert_eq!(libc::mprotect(at(start, MIB), 4096, libc::PROT_READ), 0);
        assert_eq!(in_child(|| !is_mapped(start) && !is_mapped(start.add(2 * MIB))), 0);
        // The mapping is enlarged across a part that was replaced.
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
        // The old range stays mapped, and is empty.
        let start = filled(5);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let moved = libc::mremap(start.cast(), 8 * MIB, 8 * MIB, flags);
        assert_ne!(moved, libc::MAP_FAILED);
        assert!(is_zero(start, 8 * MIB) && *moved.cast::<u64>() == start as u64 ^ 5);
        // System calls that bypass libc's functions.
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

/// Moves mappings of superpages, of copies and of base pages, in the process and in a child.
#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_moves() {
    let length = 8 * MIB + 8192;
    let is_moved = |start: *mut u8| {
        // SAFETY: a whole mapping that the test made.
        let moved =
            unsafe { libc::mremap(start.cast(), length, length + MIB, libc::MREMAP_MAYMOVE) };
        let at = |offset: usize| {
            // SAFETY: inside the moved mapping.
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
    // SAFETY: nothing uses the mapping again.
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
fn child_maps_small() {
    let before = hugetlb_mib();
    let small: Vec<*mut u8> = (0..40).map(|_| map(MIB)).collect();
    for (at, start) in small.iter().enumerate() {
        assert!(is_zero(*start, MIB), "fresh memory is zero");
        fill(*start, MIB, at as u64);
    }
    assert_eq!(hugetlb_mib(), before);
    // Unmapped memory is gone, and its address is free.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = small[20].cast::<c_void>();
    // SAFETY: mappings that the test owns, not used again.
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
#[ignore = "run by the tests above, as another process"]
fn child_maps_small_ones_with_thp() {
    // The library leaves the first 4 MiB alone.
    for _ in 0..40 {
        fill(map(MIB), MIB, 1);
    }
    assert!(kib_with_advice() >= 32 << 10, "{} KiB are advised", kib_with_advice());
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_calls_oddly() {
    let start = map(4 * MIB);
    fill(start, 4 * MIB, 1);
    let (at, rw) = (start.cast::<c_void>(), libc::PROT_READ | libc::PROT_WRITE);
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: mappings that this test owns, at and below `start`.
    unsafe {
        // A failed mapping (no such descriptor) leaves the old mapping in place.
        let failed = libc::mmap(at, 2 * MIB, rw, libc::MAP_PRIVATE | libc::MAP_FIXED, 9999, 0);
        assert_eq!(failed, libc::MAP_FAILED);
        assert!(holds(start, 0, 4 * MIB, 1));
        // Discards memory that may not be written.
        assert_eq!(libc::mprotect(at, 4 * MIB, libc::PROT_READ), 0);
        assert_eq!(libc::madvise(at.add(MIB), 8192, libc::MADV_DONTNEED), 0);
        assert!(is_zero(start.add(MIB), 8192) && holds(start, 0, MIB, 1));
        // Enlarges a mapping that may not even be read.
        assert_eq!(libc::mprotect(at, 4 * MIB, libc::PROT_NONE), 0);
        let grown = libc::mremap(at, 4 * MIB, 6 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(grown, libc::MAP_FAILED);
        assert!(!can_write(grown.cast()));
        assert_eq!(libc::munmap(grown, 6 * MIB), 0);
        // MAP_32BIT: the mapping is below 4 GiB.
        let low = libc::mmap(std::ptr::null_mut(), 4 * MIB, rw, anonymous | libc::MAP_32BIT, -1, 0);
        assert!(low == libc::MAP_FAILED || (low as usize) < 1 << 32);
        // The smallest objects are aligned as in glibc.
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
    // SAFETY: a mapping that this test owns.
    assert_eq!(unsafe { libc::madvise(start.cast(), 8 * MIB, libc::MADV_DONTNEED) }, 0);
    // Another process takes all remaining pages of the pool.
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

/// Writes through a system call, which fails where a direct write would kill the process.
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
