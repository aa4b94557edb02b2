//! A pool that is too small, shrinks, is contended or outlives its users: no process is killed, and no page leaks.
//!
//! Privileged tier: the tests set the pool's limit, so they need root and hold the machine's lock.

use crate::common;
use crate::common::*;
use std::os::unix::process::ExitStatusExt;

mod exclusive {
    use super::*;

    #[test]
    fn an_exhausted_pool_falls_back_at_every_point() {
        let Some(pool) = Pool::of(24) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        for fallback in ["base", "thp"] {
            for pages in 0..=24 {
                testkit::require!(pool.allow(pages), "{NEEDS_POOL}");
                let asked = Asked { fallback, ..HUGETLB };
                assert!(
                    succeeds(child_on_pool("pool_short::child_allocates_everything", asked)),
                    "{pages} pages"
                );
                assert!(pool.is_empty(), "{pages} pages, fallback {fallback}");
            }
        }
    }

    #[test]
    fn an_exhausted_pool_is_an_error_where_that_was_asked_for() {
        let Some(pool) = Pool::of(13) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        for pages in [0, 1, 5, 8, 13] {
            testkit::require!(pool.allow(pages), "{NEEDS_POOL}");
            let asked = Asked { fallback: "error", ..HUGETLB };
            assert!(
                succeeds(child_on_pool("pool_short::child_is_refused", asked)),
                "{pages} pages"
            );
            assert!(pool.is_empty(), "{pages} pages");
        }
    }

    #[test]
    fn programs_racing_for_the_last_pages_all_run_on() {
        let Some(pool) = Pool::of(20) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        for _ in 0..5 {
            let start = || {
                let mut child = child_on_pool("pool_short::child_allocates_everything", HUGETLB);
                let pipe = std::process::Stdio::piped;
                child.stdout(pipe()).stderr(pipe()).spawn().expect("it starts")
            };
            let racing: Vec<_> = (0..4).map(|_| start()).collect();
            for program in racing {
                let output = program.wait_with_output().expect("it ends");
                assert!(has_passed(&output), "{output:?}");
            }
            assert!(pool.is_empty());
        }
    }

    #[test]
    fn a_pool_shrunk_meanwhile_takes_nothing_that_was_promised() {
        let Some(pool) = Pool::of(32) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child_on_pool("pool_short::child_meets_a_shrunk_pool", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn a_killed_program_leaves_nothing_behind() {
        let Some(pool) = Pool::of(32) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let output =
            child_on_pool("pool_short::child_kills_itself", HUGETLB).output().expect("it starts");
        assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{output:?}");
        assert!(pool.is_empty());
    }

    #[test]
    fn many_short_lives_leak_nothing() {
        let Some(pool) = Pool::of(32) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child_on_pool("pool_short::child_forks_and_executes", HUGETLB)));
        assert!(pool.is_empty());
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_allocates_everything() {
    let mut objects: Vec<Vec<u8>> = Vec::new();
    let mut mappings = Vec::new();
    for round in 0..6 {
        let heap = vec![round as u8 + 1; 3 * MIB];
        let private = map(2 * MIB + 8192);
        let shared = map_as(2 * MIB, libc::MAP_SHARED);
        fill(private, 2 * MIB + 8192, round);
        fill(shared, 2 * MIB, round + 10);
        // SAFETY: a segment that is removed as soon as no process has it attached.
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, 2 * MIB, libc::IPC_CREAT | 0o600);
            assert!(id >= 0);
            let segment = libc::shmat(id, std::ptr::null(), 0);
            assert_eq!(libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()), 0);
            assert_ne!(segment as isize, -1);
            fill(segment.cast(), 2 * MIB, 7);
            assert!(holds(segment.cast(), 0, 2 * MIB, 7));
            assert_eq!(libc::shmdt(segment), 0);
        }
        objects.push(heap);
        mappings.push((private, shared));
    }
    for (round, (private, shared)) in mappings.iter().enumerate() {
        assert!(objects[round].iter().all(|byte| *byte == round as u8 + 1));
        assert!(holds(*private, 0, 2 * MIB + 8192, round as u64));
        assert!(holds(*shared, 0, 2 * MIB, round as u64 + 10));
        // SAFETY: nothing uses the mapping again.
        unsafe {
            assert_eq!(libc::munmap(private.cast(), 2 * MIB + 8192), 0);
            assert_eq!(libc::munmap(shared.cast(), 2 * MIB), 0);
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_is_refused() {
    let limit = read("nr_overcommit_hugepages");
    let mut got = 0;
    let mut mappings = Vec::new();
    while let Some(start) = try_map(2 * MIB, libc::MAP_PRIVATE) {
        fill(start, 2 * MIB, 1);
        mappings.push(start);
        got += 1;
        assert!(got <= limit, "more than the pool has");
    }
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
    assert!(try_map(2 * MIB, libc::MAP_SHARED).is_none());
    // SAFETY: null or fresh memory, which is freed.
    unsafe {
        let memory = std::hint::black_box(libc::malloc(12 * MIB));
        assert!(memory.is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
    }
    // Small requests never use the pool.
    assert!(try_map(MIB, libc::MAP_PRIVATE).is_some());
    assert!(mappings.iter().all(|start| holds(*start, 0, 2 * MIB, 1)));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_meets_a_shrunk_pool() {
    let start = map(32 * MIB);
    assert_eq!(read("resv_hugepages"), 16, "reserved when mapped");
    // All pages without a reservation are taken away.
    let others = common::of_others("nr_hugepages");
    for (file, pages) in [("nr_overcommit_hugepages", 0), ("nr_hugepages", others)] {
        std::fs::write(format!("{DIR}/{file}"), pages.to_string()).expect("root");
    }
    fill(start, 32 * MIB, 8);
    assert!(holds(start, 0, 32 * MIB, 8));
    assert_eq!(hugetlb_mib(), 32);
    let later = map(4 * MIB);
    fill(later, 4 * MIB, 9);
    assert_eq!(hugetlb_mib(), 32, "the later one fell back");
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_kills_itself() {
    let start = map(16 * MIB);
    fill(start, 8 * MIB, 1);
    let objects = vec![1u8; 20 * MIB];
    assert!(objects.iter().all(|byte| *byte == 1));
    assert!(hugetlb_mib() >= 8, "it has pages of the pool when it is killed");
    // SAFETY: our own process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks_and_executes() {
    let cycles = std::env::var("SUPERPAGE_TEST_CYCLES").ok().and_then(|text| text.parse().ok());
    let start = map(4 * MIB);
    fill(start, 4 * MIB, 1);
    let open = || std::fs::read_dir("/proc/self/fd").expect("our own").count();
    let before = open();
    for cycle in 0..cycles.unwrap_or(500) {
        let status = in_child(|| {
            let program = c"/bin/true";
            let arguments = [program.as_ptr(), std::ptr::null()];
            // SAFETY: a program and its arguments.
            unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
            false
        });
        assert_eq!(status, 0, "cycle {cycle}");
        if cycle % 100 == 0 {
            let pages = read("nr_hugepages");
            assert!(pages <= 4, "cycle {cycle}: {pages} pages");
            assert_eq!(open(), before, "cycle {cycle}: descriptors");
        }
    }
    assert!(holds(start, 0, 4 * MIB, 1));
}
