//! What a process under the library reports about its own memory. This test reads the records that a child wrote.
//!
//! Kernel tier: looks need PAGEMAP_SCAN (Linux 6.7). The test does not check whether memory is on superpages.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;

use abi::looks::{self, FIELDS, Field, RECORDS, Why};

use crate::common::{Asked, MIB, child};

const THP: Asked = Asked { pages: "thp", memory: "heap,mmap", fallback: "base", children: "base" };
const HELD: u64 = 64 * MIB as u64;

/// Returns whether this kernel has the call by which the library reads page tables.
fn can_look() -> bool {
    // `_IOWR('f', 16, struct pm_scan_arg)` with an empty address range (`include/uapi/linux/fs.h`).
    let mut argument = [0u64; 12];
    argument[0] = size_of_val(&argument) as u64;
    let Ok(file) = File::open("/proc/self/pagemap") else { return false };
    // SAFETY: an argument of the size that it states.
    unsafe { libc::ioctl(file.as_raw_fd(), 0xc060_6610, argument.as_mut_ptr()) == 0 }
}

const NEEDS_SCAN: &str = "this kernel has no PAGEMAP_SCAN";

/// Runs one of the children below with counters that request looks or do not. Checks how the child ended, and returns
/// its complete records.
fn records(test: &str, wants: bool, ends_with: i32) -> Vec<[u64; FIELDS]> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, &abi::empty()).expect("space for counters");
    file.as_file().write_all_at(&u64::from(wants).to_ne_bytes(), looks::WANTED as u64 * 8).unwrap();
    let inode = file.as_file().metadata().expect("a file").ino();
    let mut command = child(test, THP);
    command.env(abi::environment::COUNTERS, format!("{}:{inode}", file.path().display()));
    let output = command.output().expect("it starts");
    let ended = output.status.code().or(output.status.signal());
    assert_eq!(ended, Some(ends_with), "{}", String::from_utf8_lossy(&output.stdout));
    let word = |at: usize| {
        let mut bytes = [0; 8];
        file.as_file().read_exact_at(&mut bytes, at as u64 * 8).expect("counters");
        u64::from_ne_bytes(bytes)
    };
    let head = word(looks::HEAD);
    assert!(head <= RECORDS as u64, "{head} records");
    let numbers = (0..head).filter(|number| word(looks::word(*number, Field::Stamp)) == number + 1);
    let records = numbers.map(|number| Field::ALL.map(|field| word(looks::word(number, field))));
    let mut records = records.collect::<Vec<_>>();
    assert!(!records.is_empty() && of(&records[0], Field::Why) == Why::Begins as u64);
    records.split_off(1)
}

fn of(record: &[u64; FIELDS], field: Field) -> u64 {
    record[field as usize]
}

fn anonymous(record: &[u64; FIELDS]) -> u64 {
    of(record, Field::AnonBase) + of(record, Field::AnonThp)
}

fn is_end(record: &[u64; FIELDS]) -> bool {
    of(record, Field::Why) == Why::Ends as u64
}

#[test]
fn a_process_that_ends_tells_what_it_held_whichever_way_it_ends() {
    testkit::require!(can_look(), "{NEEDS_SCAN}");
    for (test, code) in [("looks::child_exits", 3), ("looks::child_ends_at_once", 4)] {
        let records = records(test, true, code);
        let last = records.last().expect("a record");
        assert!(is_end(last) && anonymous(last) >= HELD, "{test}: {records:?}");
        assert!(of(last, Field::HighWater) >= HELD, "{test}: {records:?}");
        let eligible = of(last, Field::EligibleBase) + of(last, Field::AnonThp);
        assert!((HELD..=anonymous(last)).contains(&eligible), "{test}: {records:?}");
        assert!(of(last, Field::FileBase) >= MIB as u64, "its program and libraries: {records:?}");
    }
}

#[test]
fn a_process_looks_before_it_gives_memory_back_and_not_after() {
    testkit::require!(can_look(), "{NEEDS_SCAN}");
    for test in ["looks::child_unmaps", "looks::child_frees"] {
        let records = records(test, true, 3);
        let held = records.iter().filter(|record| !is_end(record)).map(anonymous).max();
        assert!(held.is_some_and(|held| held >= HELD), "{test}: {records:?}");
        assert!(anonymous(records.last().expect("a record")) < HELD, "{test}: {records:?}");
    }
}

#[test]
fn without_a_command_that_wants_it_no_memory_is_read() {
    let records = records("looks::child_unmaps", false, 3);
    let [last] = records.as_slice() else { panic!("{records:?}") };
    assert!(is_end(last) && anonymous(last) == 0, "{records:?}");
    assert!(of(last, Field::HighWater) >= HELD, "{records:?}");
}

/// Touches memory, and waits until a look is within the budget.
fn touch(memory: *mut u8) {
    for at in (0..HELD as usize).step_by(4096) {
        // SAFETY: memory of that size, which the caller owns.
        unsafe { memory.add(at).write_volatile(1) };
    }
    let cpu = || {
        // SAFETY: a place for the answer; all zeros is a valid value.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage.ru_utime.tv_sec * 1_000_000 + usage.ru_utime.tv_usec
        }
    };
    while cpu() < 100_000 {
        std::hint::black_box(0);
    }
}

fn map() -> *mut u8 {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: no address is fixed.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), HELD as usize, rights, kind, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    touch(memory.cast());
    memory.cast()
}

#[test]
#[ignore = "run by the tests above, as another process"]
fn child_exits() {
    map();
    // SAFETY: handlers of the C library and of this test.
    unsafe { libc::exit(3) };
}

#[test]
#[ignore = "run by the tests above, as another process"]
fn child_ends_at_once() {
    map();
    // SAFETY: no destructor has to run.
    unsafe { libc::_exit(4) };
}

#[test]
#[ignore = "run by the tests above, as another process"]
fn child_unmaps() {
    // SAFETY: not used after this.
    unsafe { libc::munmap(map().cast(), HELD as usize) };
    // SAFETY: as above.
    unsafe { libc::exit(3) };
}

#[test]
#[ignore = "run by the tests above, as another process"]
fn child_frees() {
    // SAFETY: memory that is not used after this.
    unsafe {
        let memory = libc::malloc(HELD as usize);
        touch(memory.cast());
        libc::free(memory);
        libc::exit(3)
    };
}
