//! The preload library inside a real process. This test starts itself again under the library.
//!
//! Kernel tier: needs THP in mode `madvise` or `always`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{MIB, NEEDS_FREE, has_free_superpages, kib_with_advice, library, succeeds};

/// Returns a command that runs one of the ignored tests below in a new process under the library.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--ignored", "--exact", test, "--test-threads=1"]);
    command.env("LD_PRELOAD", library()).env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command.env("SUPERPAGE_PAGES", "thp");
    command
}

fn has_thp() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]"))
}

#[test]
fn large_and_small_mappings_get_superpages_and_stay_ordinary() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
    assert!(succeeds(child("preload::child_maps")));
}

#[test]
fn without_being_asked_the_library_is_inert() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    for word in [None, Some(""), Some("base")] {
        let mut command = child("preload::child_is_left_alone");
        // With this variable, glibc's malloc advises memory itself.
        command.env_remove("GLIBC_TUNABLES");
        match word {
            None => command.env_remove("SUPERPAGE_PAGES"),
            Some(word) => command.env("SUPERPAGE_PAGES", word),
        };
        assert!(succeeds(command), "superpages nobody asked for: {word:?}");
    }
}

#[test]
fn a_forked_child_and_many_threads_may_map_at_once() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    assert!(succeeds(child("preload::child_forks")));
}

#[test]
fn malloc_advises_every_time() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    // The byte that decides is random: without the remedy, 20 starts would all succeed once in 10^5 tries.
    for start in 0..20 {
        assert!(succeeds(child("preload::child_mallocs")), "start {start}");
    }
}

#[test]
fn malloc_advises_though_a_constructor_used_it_on_a_dirty_stack() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    let mut command = child("preload::child_mallocs");
    command.env(DIRTY, "");
    assert!(succeeds(command), "the library came too late");
}

#[test]
fn malloc_advises_in_a_c_plus_plus_program() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    let has_compiler = Command::new("g++").arg("--version").output().is_ok();
    testkit::require!(has_compiler, "no g++ to build a C++ program with");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("vector.cc"), dir.join("vector"));
    std::fs::write(&source, CXX).expect("written");
    let built = Command::new("g++").arg(&source).arg("-o").arg(&program).status();
    assert!(built.expect("it starts").success());
    // With lazy binding the stack contains leftovers of the loader, otherwise of the last caller.
    for (start, binding) in (0..20).flat_map(|start| [(start, ""), (start, "1")]) {
        let output = Command::new(&program)
            .env("LD_PRELOAD", library())
            .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
            .env("SUPERPAGE_PAGES", "thp")
            .env("LD_BIND_NOW", binding)
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let huge: u64 = text.trim().parse().expect("the program prints KiB");
        assert!(output.status.success() && huge >= 24 << 10, "start {start}: {huge} KiB");
    }
}

/// Fills a vector of 32 MiB, and prints how much of it is on superpages.
const CXX: &str = r#"
#include <fstream>
#include <iostream>
#include <string>
#include <vector>
int main() {
    std::vector<char> bytes(32 << 20, 1);
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string word; rollup >> word;)
        if (word == "AnonHugePages:" && rollup >> word) std::cout << word << std::endl;
    return bytes[1 << 20] - 1;
}
"#;

/// Set in a process of this test that is to act like a library with a constructor.
const DIRTY: &str = "SUPERPAGE_TEST_DIRTY";

/// Runs before the constructors of all libraries except those marked initfirst.
#[used]
#[unsafe(link_section = ".preinit_array")]
static EARLY: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = allocate_early;

extern "C" fn allocate_early(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    let mut next = environment;
    // SAFETY: the loader's list of C strings, which ends with a null pointer; malloc's own memory.
    unsafe {
        while !(*next).is_null() {
            if CStr::from_ptr(*next).to_bytes().starts_with(DIRTY.as_bytes()) {
                dirty_stack();
                libc::free(black_box(libc::malloc(black_box(10))));
            }
            next = next.add(1);
        }
    }
}

#[inline(never)]
fn dirty_stack() {
    black_box([0xaau8; 16 << 10]);
}

#[test]
fn reserved_and_populated_mappings_get_superpages() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    assert!(succeeds(child("preload::child_reserves_and_populates")));
}

#[test]
fn locking_all_memory_costs_no_extent() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    assert!(succeeds(child("preload::child_locks")));
}

fn map(length: usize) -> *mut u8 {
    map_as(length, libc::PROT_READ | libc::PROT_WRITE, 0)
}

fn map_as(length: usize, prot: c_int, flags: c_int) -> *mut u8 {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: with a null hint the call replaces no mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

/// Fills `length` bytes at `start` after checking that they were zero.
fn fill(start: *mut u8, length: usize, byte: u8) {
    // SAFETY: callers own a mapping of at least that length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start, length) };
    assert!(bytes.iter().all(|byte| *byte == 0), "fresh memory is zero");
    bytes.fill(byte);
}

fn holds(start: *const u8, length: usize, byte: u8) -> bool {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start, length) }.iter().all(|found| *found == byte)
}

fn huge_kib() -> u64 {
    kib("/proc/self/smaps_rollup", "AnonHugePages:")
}

fn kib(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("a file of /proc/self");
    let line = text.lines().find(|line| line.starts_with(field)).expect("the field");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps() {
    let large = map(8 * MIB + 4096);
    fill(large, 8 * MIB + 4096, 1);
    assert!(huge_kib() >= 6 << 10, "the large mapping: {} KiB", huge_kib());
    // Small mappings are not changed.
    for _ in 0..32 {
        map(MIB);
    }
    let pieces: Vec<*mut u8> = (0..64).map(|_| map(MIB)).collect();
    for (index, piece) in pieces.iter().enumerate() {
        fill(*piece, MIB, index as u8 + 1);
    }
    assert!(huge_kib() >= 50 << 10, "64 pieces of 1 MiB: {} KiB", huge_kib());
    // The program may do anything with part of a piece (unmap, protect, move) without affecting the other pieces.
    // SAFETY: every range lies inside a piece that no other code uses, and is not used afterwards.
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

/// Uses the same kinds of memory as the tests with superpages.
#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_is_left_alone() {
    // SAFETY: the pointer is to a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"superpage_version".as_ptr()) };
    assert!(!found.is_null(), "the library is not there");
    fill(map(8 * MIB + 4096), 8 * MIB + 4096, 1);
    for _ in 0..96 {
        fill(map(MIB), MIB, 1);
    }
    let mut bytes = vec![0u8; 32 * MIB];
    bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    assert_eq!(kib_with_advice(), 0, "superpages nobody asked for");
    if !testkit::thp_are_for_all() {
        assert_eq!(huge_kib(), 0, "superpages nobody asked for");
    }
    drop(black_box(bytes));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks() {
    let work = || {
        for _ in 0..200 {
            let piece = map(256 << 10);
            fill(piece, 256 << 10, 9);
            // SAFETY: this test owns the piece, and does not use it again.
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
                    // SAFETY: ends at once, without running any code of the parent.
                    unsafe { libc::_exit(0) };
                }
                pid => {
                    let mut status = 0;
                    // SAFETY: the pointer is to a live local variable.
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

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_reserves_and_populates() {
    let at_first = huge_kib();
    let reserved = map_as(16 * MIB, libc::PROT_NONE, libc::MAP_NORESERVE);
    // SAFETY: this test owns the mapping.
    let opened =
        unsafe { libc::mprotect(reserved.cast(), 8 * MIB, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(opened, 0);
    assert_eq!(huge_kib(), at_first, "a reservation costs nothing");
    fill(reserved, 8 * MIB, 1);
    let before = huge_kib();
    assert!(before >= at_first + (6 << 10), "the part made writable: {before} KiB");
    let populated = map_as(8 * MIB, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE);
    assert!(huge_kib() >= before + (6 << 10), "populated: {} KiB", huge_kib() - before);
    fill(populated, 8 * MIB, 1);
    // Memory that is not both anonymous and writable is not changed.
    map_as(8 * MIB, libc::PROT_READ, libc::MAP_POPULATE);
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_locks() {
    // Maps more than the library leaves alone at first, and fills the first extent.
    for _ in 0..6 {
        map(MIB);
    }
    // SAFETY: no pointers; the call locks what this process maps from now on.
    if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        testkit::skipped!("this process may not lock memory");
        return;
    }
    let before = kib("/proc/self/status", "VmLck:");
    for _ in 0..8 {
        fill(map(MIB), MIB, 1);
    }
    let locked = kib("/proc/self/status", "VmLck:") - before;
    assert_eq!(locked, 8 << 10, "what was asked for, and no extent");
}

#[test]
fn a_program_that_writes_its_title_over_the_environment_is_reported() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP are off on this machine");
    let directory = tempfile::tempdir().expect("a directory");
    let [report, log] = ["report", "log"].map(|name| directory.path().join(name));
    let mut command = child("preload::child_writes_its_title");
    command.env("SUPERPAGE_REPORT", format!("json:{}", report.display()));
    command.env("SUPERPAGE_POLICY_LOG", &log).current_dir(directory.path());
    assert!(succeeds(command));
    let text = std::fs::read_to_string(&report).expect("a report");
    assert!(text.starts_with("{\"schema\":\"superpage.report/1\""), "{text}");
    let names = std::fs::read_dir(directory.path()).expect("a directory").count();
    assert_eq!(names, 2, "and nothing else");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_writes_its_title() {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    let log = std::env::var_os("SUPERPAGE_POLICY_LOG").expect("set above");
    let logged = || std::fs::metadata(&log).expect("a log").len();
    // SAFETY: the strings with which the process was started; only this thread reads them.
    unsafe {
        let mut next = environ;
        while !(*next).is_null() {
            libc::memset((*next).cast(), c_int::from(b'x'), libc::strlen(*next));
            next = next.add(1);
        }
    }
    let before = logged();
    fill(map(32 * MIB), 32 * MIB, 1);
    assert!(logged() > before, "decisions are logged where they were");
}

#[test]
fn a_path_that_no_file_can_have_is_not_understood() {
    for name in ["SUPERPAGE_REPORT", "SUPERPAGE_POLICY_LOG"] {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", library()).env("SUPERPAGE_PAGES", "thp");
        command.env(name, format!("json:/{}", "x".repeat(5000)));
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("is not understood"), "{said}");
    }
}
