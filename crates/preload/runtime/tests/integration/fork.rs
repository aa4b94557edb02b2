//! Contents of pool memory in a forked child and its parent after a fork; and forks end whatever other threads do
//! (`programs/forks.c`).
//!
//! Privileged tier: the tests set the pool's limit, so they need root and hold the machine's lock.

use crate::programs;
use std::ffi::c_void;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;

/// Runs `programs/forks.c`, which checks itself.
fn forks(pages: &str, memory: &str, variables: &[(&str, &str)]) {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    let build = || programs::build("forks.c", "forks", "cc", &["-O1", "-pthread"]);
    let mut command = Command::new(BUILT.get_or_init(build));
    let count = testkit::cases(100);
    command.arg(count.to_string());
    command.envs(programs::under(pages, memory, "thp")).envs(variables.iter().copied());
    assert_eq!(programs::number(&programs::run(command), "forks"), count as u64);
}

#[test]
fn forks_amid_threads_end_on_thp() {
    testkit::require!(programs::has("cc"), "no C compiler");
    forks("thp", "mmap", &[]);
    forks("thp", "heap,mmap,stack=2097152", &[]);
    let prepared = [("SUPERPAGE_PREZERO", "67108864"), ("SUPERPAGE_PREFAULT", "33554432")];
    forks("thp", "heap,mmap", &prepared);
}

mod exclusive {
    use super::*;

    #[test]
    fn forks_amid_threads_end_on_the_pool_and_on_a_short_one() {
        testkit::require!(programs::has("cc"), "no C compiler");
        let Some(pool) = Pool::of(20) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        // The pool has more than enough pages, enough for the parent, or too few for it.
        for pages in [20, 40, 300].into_iter().take(testkit::cases(10).min(3)) {
            testkit::require!(pool.allow(pages), "{NEEDS_POOL}");
            forks("hugetlb", "mmap", &[]);
            forks("hugetlb", "heap,mmap", &[]);
            assert!(pool.is_empty(), "{pages} pages");
        }
    }

    #[test]
    fn a_forked_child_needs_no_page_of_the_pool() {
        // The pool has exactly the pages that the parent maps: 24, and 4 for its heap.
        let Some(pool) = Pool::of(28) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("fork::child_forks", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn a_child_that_shares_superpages_sees_the_parents_contents() {
        let Some(pool) = Pool::of(128) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("fork::child_forks", Asked { children: "same", ..HUGETLB })));
        assert!(pool.is_empty());
    }

    #[test]
    fn without_privilege_a_fork_disturbs_no_system_call() {
        let Some(pool) = Pool::of(128) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("fork::child_reads_while_forking", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn a_fork_amid_threads_finds_libcs_files_off_an_empty_pool() {
        let Some(pool) = Pool::of(24) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("fork::child_forks_with_files", HUGETLB)));
        assert!(pool.is_empty());
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks() {
    let length = 48 * MIB;
    let start = map(length);
    // The last superpages are not touched.
    let touched = 40 * MIB;
    fill(start, touched, 4);
    let shared = map_as(2 * MIB, libc::MAP_SHARED);
    let mut heap = vec![5u8; 3 * MIB];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another thread keeps the allocator busy while the process forks.
        let busy = scope.spawn(|| {
            let mut kept: Vec<Vec<u8>> = Vec::new();
            let mut round = 0usize;
            while !stop.load(Ordering::Relaxed) {
                kept.push(vec![round as u8; 100 + round % 5000]);
                if kept.len() > 200 {
                    kept.clear();
                }
                round += 1;
            }
        });
        for round in 0..12u64 {
            let status = in_child(|| {
                let intact = holds(start, 0, touched, 4 ^ round) && heap.iter().all(|b| *b == 5);
                let fresh = is_zero(start.wrapping_add(touched), length - touched);
                fill(start, length, 99);
                heap.fill(6);
                let grown: Vec<Vec<u8>> = (0..500).map(|size| vec![7; size * 40]).collect();
                // SAFETY: shared memory of one word for this.
                unsafe { shared.cast::<u64>().write_volatile(round + 1) };
                intact && fresh && holds(start, 0, length, 99) && grown.len() == 500
            });
            assert_eq!(status, 0, "round {round}");
            // SAFETY: as above.
            assert_eq!(unsafe { shared.cast::<u64>().read_volatile() }, round + 1);
            assert!(holds(start, 0, touched, 4 ^ round), "the child wrote to the parent");
            assert!(heap.iter().all(|byte| *byte == 5));
            fill(start, touched, 4 ^ (round + 1));
        }
        stop.store(true, Ordering::Relaxed);
        busy.join().expect("no panic");
    });
    heap.clear();
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_reads_while_forking() {
    const NOBODY: u32 = 65534;
    let length = 64 * MIB;
    let start = map(length) as usize;
    fill(start as *mut u8, length, 1);
    // SAFETY: only numbers; this process does not need its privileges any more.
    assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
    let stop = Stop(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // SAFETY: a path and flags.
            let zeroes = unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY) };
            let mut page = 0;
            while !stop.is_asked() {
                let at = start + page * 2 * MIB + MIB;
                // SAFETY: the second half of each superpage is this thread's.
                let got = unsafe { libc::read(zeroes, at as *mut c_void, 4096) };
                assert_eq!(got, 4096, "{}", std::io::Error::last_os_error());
                page = (page + 1) % (length / (2 * MIB));
            }
        });
        stop.after(|| {
            for round in 0..10 {
                let first_halves = |page| holds_part(start, page * 2 * MIB, MIB);
                let status = in_child(|| (0..length / (2 * MIB)).all(first_halves));
                assert_eq!(status, 0, "round {round}");
            }
        });
        reader.join().expect("no system call failed");
    });
}

/// Returns whether `length` bytes from `offset` hold the pattern that `fill(start, .., 1)` left.
fn holds_part(start: usize, offset: usize, length: usize) -> bool {
    holds(start as *const u8, offset, offset + length, 1)
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks_with_files() {
    // Allocates more than the part of the heap that stays on base pages.
    let _heap: Vec<Vec<u8>> = (0..600).map(|_| vec![1u8; 20_000]).collect();
    // SAFETY: C's own functions, used within their contracts; the files stay open.
    unsafe {
        let files: Vec<_> =
            (0..8).map(|_| libc::fopen(c"/dev/null".as_ptr(), c"w".as_ptr())).collect();
        assert!(files.iter().all(|file| !file.is_null()));
        // libc's name services keep separate state.
        assert!(!libc::getpwnam(c"root".as_ptr()).is_null());
    }
    let read_only = map(2 * MIB);
    fill(read_only, 2 * MIB, 6);
    // SAFETY: the test's own.
    assert_eq!(unsafe { libc::mprotect(read_only.cast(), 2 * MIB, libc::PROT_READ) }, 0);
    let stop = Stop(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.is_asked() {
                drop(vec![3u8; 50_000]);
            }
        });
        stop.after(|| {
            // From now on the pool has no page left for anybody.
            std::fs::write(format!("{DIR}/nr_overcommit_hugepages"), "0").expect("root");
            for round in 0..10 {
                let status = in_child(|| {
                    // SAFETY: a number; then the test's own memory.
                    unsafe {
                        libc::alarm(90);
                        let prot = libc::PROT_READ | libc::PROT_WRITE;
                        let opened = libc::mprotect(read_only.cast(), 2 * MIB, prot) == 0;
                        opened && holds(read_only, 0, 2 * MIB, 6) && {
                            fill(read_only, 2 * MIB, 7);
                            libc::fopen(c"/dev/null".as_ptr(), c"w".as_ptr()) as usize != 0
                        }
                    }
                });
                assert_eq!(status, 0, "round {round}");
            }
        });
    });
    assert!(holds(read_only, 0, 2 * MIB, 6));
}
