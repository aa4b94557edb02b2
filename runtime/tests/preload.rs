//! The preload library inside a real process: this test starts itself again under it.
//!
//! Kernel ring: needs THP in mode `madvise` or `always`.

use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;

const MIB: usize = 1 << 20;

/// Where cargo puts the library: beside the test, or one directory up.
fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("our own path");
    let deps = exe.parent().expect("a directory");
    let places = [deps.join("libsuperpage.so"), deps.join("../libsuperpage.so")];
    places.into_iter().find(|path| path.is_file()).expect("libsuperpage.so is built with its tests")
}

/// Runs one of the ignored tests below in a new process under the library.
fn under_the_library(test: &str, asked: bool) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--ignored", "--exact", test, "--test-threads=1"]);
    command.env("LD_PRELOAD", library()).env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    if asked {
        command.env("SUPERPAGE_PAGES", "thp");
    }
    let output = command.output().expect("it starts");
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stdout));
    }
    output.status.success()
}

fn has_thp() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]"))
}

#[test]
fn large_and_small_mappings_get_superpages_and_stay_ordinary() {
    testkit::require!(has_thp(), "THP are off on this machine");
    assert!(under_the_library("child_maps", true));
}

#[test]
fn without_being_asked_the_library_is_inert() {
    testkit::require!(has_thp(), "THP are off on this machine");
    assert!(!under_the_library("child_maps", false), "superpages nobody asked for");
}

#[test]
fn a_forked_child_and_many_threads_may_map_at_once() {
    testkit::require!(has_thp(), "THP are off on this machine");
    assert!(under_the_library("child_forks", true));
}

#[test]
fn malloc_advises_every_time() {
    testkit::require!(has_thp(), "THP are off on this machine");
    // The byte that decides is random: 20 starts would all succeed by luck once in 10^5.
    for start in 0..20 {
        assert!(under_the_library("child_mallocs", true), "start {start}");
    }
}

fn map(length: usize) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a null hint replaces nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

/// Fills `length` bytes at `start` after checking that they were zero.
fn fill(start: *mut u8, length: usize, byte: u8) {
    // SAFETY: callers pass a mapping of theirs of at least that length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start, length) };
    assert!(bytes.iter().all(|byte| *byte == 0), "fresh memory is zero");
    bytes.fill(byte);
}

fn holds(start: *const u8, length: usize, byte: u8) -> bool {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start, length) }.iter().all(|found| *found == byte)
}

fn huge_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("smaps_rollup");
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:")).expect("the field");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps() {
    let large = map(8 * MIB + 4096);
    fill(large, 8 * MIB + 4096, 1);
    assert!(huge_kib() >= 6 << 10, "the large mapping: {} KiB", huge_kib());
    let pieces: Vec<*mut u8> = (0..64).map(|_| map(MIB)).collect();
    for (index, piece) in pieces.iter().enumerate() {
        fill(*piece, MIB, index as u8 + 1);
    }
    assert!(huge_kib() >= 50 << 10, "64 pieces of 1 MiB: {} KiB", huge_kib());
    // A piece is the program's own: part of it unmapped, protected, moved, the others untouched.
    // SAFETY: every range lies inside a piece that nothing else uses, and is not used afterwards.
    unsafe {
        let at = |index: usize, offset: usize| pieces[index].add(offset).cast::<c_void>();
        assert_eq!(libc::munmap(at(20, 0), MIB), 0);
        assert_eq!(libc::munmap(at(22, 4096), 8192), 0);
        assert_eq!(libc::mprotect(at(24, MIB / 2), 4096, libc::PROT_READ), 0);
        let moved = libc::mremap(at(26, 0), MIB, 4 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(moved, libc::MAP_FAILED);
        assert!(holds(moved.cast(), MIB, 27));
        assert!(holds(moved.cast::<u8>().add(MIB), 3 * MIB, 0));
        assert_eq!(libc::madvise(at(28, 0), MIB, libc::MADV_DONTNEED), 0);
        assert!(holds(pieces[28], MIB, 0));
    }
    for index in [19, 21, 23, 25, 27, 29] {
        assert!(holds(pieces[index], MIB, index as u8 + 1), "piece {index}");
    }
    assert!(holds(pieces[24], MIB, 25));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks() {
    let work = || {
        for _ in 0..200 {
            let piece = map(256 << 10);
            fill(piece, 256 << 10, 9);
            // SAFETY: the piece is ours and not used again.
            assert_eq!(unsafe { libc::munmap(piece.cast(), 256 << 10) }, 0);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        for _ in 0..20 {
            // SAFETY: the child only maps, touches and exits; it takes no lock of this process.
            match unsafe { libc::fork() } {
                0 => {
                    let piece = map(256 << 10);
                    fill(piece, 256 << 10, 3);
                    // SAFETY: leaves at once, without running anything of the parent's.
                    unsafe { libc::_exit(0) };
                }
                pid => {
                    let mut status = 0;
                    // SAFETY: a live local.
                    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                    assert_eq!(status, 0);
                }
            }
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_mallocs() {
    let mut bytes = vec![0u8; 32 * MIB];
    bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    assert!(huge_kib() >= 24 << 10, "{} KiB", huge_kib());
    drop(std::hint::black_box(bytes));
}
