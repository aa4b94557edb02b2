//! A part of a superpage is unmapped, protected or discarded while other threads use the superpage.

use super::can_write;
use crate::common::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod exclusive {
    use super::*;

    #[test]
    fn parts_of_superpages_are_unmapped_protected_and_emptied() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::split::child_parts", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn no_write_is_lost_while_a_superpage_is_split() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::split::child_writes_while_splitting", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn threads_may_split_the_same_superpage_and_map_what_others_unmap() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::split::child_splits_together", HUGETLB)));
        assert!(pool.is_empty());
    }
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
        // Unmap a hole in the second superpage.
        assert_eq!(libc::munmap(at(3 * MIB), 8192), 0);
        assert!(!is_mapped(start.add(3 * MIB)) && !is_mapped(start.add(3 * MIB + 4096)));
        assert!(holds(start, 0, 3 * MIB, 1) && holds(start, 3 * MIB + 8192, length, 1));
        // Protect a range with both ends inside superpages, the fourth and the fifth.
        assert_eq!(libc::mprotect(at(7 * MIB), 2 * MIB, libc::PROT_READ), 0);
        assert!(holds(start, 3 * MIB + 8192, length, 1));
        assert!(!can_write(start.add(7 * MIB)) && !can_write(start.add(9 * MIB - 4096)));
        assert!(can_write(start.add(7 * MIB - 4096)) && can_write(start.add(9 * MIB)));
        // Discard parts and whole superpages: these are zero, and nothing else is.
        assert_eq!(libc::madvise(at(9 * MIB), 4 * MIB, libc::MADV_DONTNEED), 0);
        for quarter in (9 * MIB..13 * MIB).step_by(MIB / 4) {
            assert!(is_zero(start.add(quarter), MIB / 4), "at {} KiB", quarter >> 10);
        }
        assert!(holds(start, 13 * MIB, length, 1));
        // Lazily freed memory has its old contents or is zero.
        assert_eq!(libc::madvise(at(14 * MIB), 4096, libc::MADV_FREE), 0);
        // Hints are accepted.
        assert_eq!(libc::madvise(at(14 * MIB), 4096, libc::MADV_HUGEPAGE), 0);
        assert_eq!(libc::madvise(at(14 * MIB + 4096), 4096, libc::MADV_DONTFORK), 0);
        // Map other memory over a part.
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
    // SAFETY: mappings that this function owns.
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
        // Shrink the mapping, not by whole superpages.
        let same = libc::mremap(new, 9 * MIB, 5 * MIB + 4096, 0);
        assert_eq!(same, new);
        assert!(!is_mapped(new.cast::<u8>().add(5 * MIB + 4096)));
        assert_eq!(*words.add(5 * MIB / 8), expected(5 * MIB / 8));
        assert_eq!(libc::munmap(new, 5 * MIB + 4096), 0);
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_writes_while_splitting() {
    const THREADS: usize = 3;
    let pages = 24;
    let start = map(pages * 2 * MIB) as usize;
    fill(start as *mut u8, pages * 2 * MIB, 3);
    let (stop, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (stop, begun) = (&stop, &begun);
                scope.spawn(move || {
                    // One word in each superpage that only this thread writes.
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
                        begun.fetch_add(u64::from(rounds == 1), Ordering::Relaxed);
                    }
                    rounds
                })
            })
            .collect();
        while begun.load(Ordering::Relaxed) < THREADS as u64 {
            assert!(!writers.iter().any(|it| it.is_finished()), "a writer failed");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
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
                        // SAFETY: each thread unmaps its own hole.
                        let split = unsafe {
                            match (thread + page) % 4 {
                                0 => libc::mprotect(hole, 4096, libc::PROT_READ),
                                1 => libc::madvise(hole, 4096, libc::MADV_DONTFORK),
                                _ => libc::munmap(hole, 4096),
                            }
                        };
                        assert_eq!(split, 0, "{}", std::io::Error::last_os_error());
                    }
                    // Another thread may get the addresses that one thread unmaps.
                    for _ in 0..20 {
                        let own = map(2 * MIB);
                        fill(own, 2 * MIB, 9);
                        let part = own.wrapping_add(MIB).cast::<c_void>();
                        // SAFETY: this thread owns the mapping.
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
        // SAFETY: the test owns the mapping.
        assert_eq!(unsafe { libc::munmap(start.cast(), 4 * MIB) }, 0);
    }
}
