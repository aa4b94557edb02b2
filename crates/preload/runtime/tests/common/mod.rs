//! What the tests of the library share: they start themselves again under it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

pub const MIB: usize = 1 << 20;

/// Where cargo puts the library: beside the test, or one directory up.
/// Another one can be named, to run the same tests against it.
pub fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("SUPERPAGE_TEST_LIBRARY") {
        return path.into();
    }
    let exe = std::env::current_exe().expect("our own path");
    let deps = exe.parent().expect("a directory");
    let places = [deps.join("libsuperpage.so"), deps.join("../libsuperpage.so")];
    places.into_iter().find(|path| path.is_file()).expect("libsuperpage.so is built with its tests")
}

/// What a child process is asked to be.
#[derive(Clone, Copy)]
pub struct Asked {
    pub pages: &'static str,
    pub memory: &'static str,
    pub fallback: &'static str,
    pub children: &'static str,
}

pub const HUGETLB: Asked =
    Asked { pages: "hugetlb:2097152", memory: "heap,mmap,shm", fallback: "base", children: "base" };

/// One of the ignored tests of this binary, in a new process under the library.
pub fn child(test: &str, asked: Asked) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--ignored", "--exact", test, "--test-threads=1", "--nocapture"]);
    for (name, value) in [
        ("SUPERPAGE_PAGES", asked.pages),
        ("SUPERPAGE_MEMORY", asked.memory),
        ("SUPERPAGE_FALLBACK", asked.fallback),
        ("SUPERPAGE_CHILDREN", asked.children),
    ] {
        command.env(name, value);
    }
    command.env("LD_PRELOAD", library()).env_remove("GLIBC_TUNABLES");
    command
}

/// The same with all of the memory on the pool, also what cannot always be moved off it.
pub fn child_on_pool(test: &str, asked: Asked) -> Command {
    let mut command = child(test, asked);
    command.env("SUPERPAGE_POOL", "always");
    command
}

/// Runs it; what it printed is shown if it fails.
pub fn output(mut command: Command) -> Output {
    let output = command.output().expect("it starts");
    hand_on_skips(&output.stderr);
    if !output.status.success() {
        println!("{:?}", output.status);
        println!("{}", String::from_utf8_lossy(&output.stdout));
        println!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output
}

/// What a child left out is counted as what this test leaves out.
pub fn hand_on_skips(errors: &[u8]) {
    let errors = String::from_utf8_lossy(errors);
    for line in errors.lines().filter(|line| line.starts_with("skipped: ")) {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

pub fn succeeds(command: Command) -> bool {
    has_passed(&output(command))
}

/// Whether a child ran its test, and it passed: a test of another name would be none.
pub fn has_passed(output: &Output) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed")
}

/// The machine's lock and its pools as they were found; `None` if pools cannot be changed here.
/// Pages come from the overcommit limit, so nothing is taken that is not used.
pub struct Pool {
    // Dropped first: put back while the lock is held.
    found: testkit::PoolsAsFound,
    _lock: testkit::MachineLock,
}

pub const DIR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Why there may be none.
pub const NEEDS_POOL: &str =
    "needs root and hugetlb pages of 2 MiB: free memory for them, and none that others left free";

impl Pool {
    /// With so many pages allowed. `None`: this machine cannot, or has free pages, which would serve instead of those allowed.
    pub fn of(pages: u64) -> Option<Self> {
        if !testkit::is_root() || !std::path::Path::new(DIR).exists() {
            return None;
        }
        let lock = testkit::machine_lock()?;
        let pool = Self { found: testkit::PoolsAsFound::note(), _lock: lock };
        for file in OTHERS {
            // SAFETY: tests read and set these variables under the machine's lock.
            unsafe { std::env::set_var(variable(file), read_all(file).to_string()) };
        }
        let is_taken = read_all("free_hugepages") == read_all("resv_hugepages");
        (is_taken && pool.allow(pages)).then_some(pool)
    }

    /// Allows `pages` in all, beside what others hold. Whether so many can be had of this machine's memory, which is tried.
    #[must_use]
    pub fn allow(&self, pages: u64) -> bool {
        let limit = pages + of_others("surplus_hugepages");
        let is_set = std::fs::write(format!("{DIR}/nr_overcommit_hugepages"), limit.to_string());
        is_set.is_ok() && can_reserve(pages)
    }

    /// Whether no page is in use or reserved.
    pub fn is_empty(&self) -> bool {
        let used = read("nr_hugepages") + read("resv_hugepages") + read("surplus_hugepages");
        if used != 0 {
            println!(
                "left behind: {} pages, {} reserved, {} surplus",
                read("nr_hugepages"),
                read("resv_hugepages"),
                read("surplus_hugepages")
            );
        }
        used == 0
    }
}

/// What of the pool others may have when the tests begin: these files tell it.
const OTHERS: [&str; 3] = ["nr_hugepages", "resv_hugepages", "surplus_hugepages"];

/// The variable by which child processes learn of it.
fn variable(file: &str) -> String {
    format!("SUPERPAGE_TEST_OTHERS_{file}")
}

/// What others had of a number of the pool when its lock was taken.
pub fn of_others(file: &str) -> u64 {
    let others = std::env::var(variable(file)).ok().and_then(|text| text.parse().ok());
    others.unwrap_or(0)
}

/// A number of the pool, less what others had when its lock was taken.
pub fn read(file: &str) -> u64 {
    read_all(file).saturating_sub(of_others(file))
}

fn read_all(file: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{DIR}/{file}")).expect("a pool");
    text.trim().parse().expect("a number")
}

/// The KiB a field of smaps_rollup names.
pub fn kib(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("a file of /proc/self");
    let line = text.lines().find(|line| line.starts_with(field)).expect("the field");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Whether the kernel reserves so many pages of the pool. They go at once.
fn can_reserve(pages: u64) -> bool {
    // MAP_HUGE_2MB, of linux/mman.h.
    const SIZE: i32 = 21 << 26;
    let length = pages as usize * 2 * MIB;
    if length == 0 {
        return true;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | SIZE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a null hint replaces nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping above, which nobody uses.
    unsafe { libc::munmap(start, length) == 0 }
}

/// KiB of this process's mappings that are advised (`hg`), as the kernel has it.
pub fn kib_with_advice() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("a file of /proc/self");
    let (mut length, mut advised) = (0, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Size:") => length = words.next().and_then(|it| it.parse().ok()).expect("KiB"),
            Some("VmFlags:") if words.any(|flag| flag == "hg") => advised += length,
            _ => {}
        }
    }
    advised
}

/// Why a test of THP may be left out.
pub const NEEDS_FREE: &str = "memory is fragmented or full: too few superpages of THP are free";

/// Whether `mib` MiB lie free in whole superpages, with a GiB beside for other tests, so that the library advises them;
/// and whether advice gets superpages, which is tried.
pub fn has_free_superpages(mib: usize) -> bool {
    let free = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    2 * free_superpages(&free) >= mib + 1024 && advice_gets_superpages()
}

/// Free blocks of 2 MiB, of base pages of 4 KiB: order 9, and order 10 twice.
fn free_superpages(buddyinfo: &str) -> usize {
    let blocks = |line: &str| -> usize {
        // "Node 0, zone Normal", and the numbers by order.
        let orders = line.split_whitespace().skip(4 + 9).enumerate();
        orders.filter_map(|(more, count)| Some(count.parse::<usize>().ok()? << more)).sum()
    };
    buddyinfo.lines().map(blocks).sum()
}

fn advice_gets_superpages() -> bool {
    const LENGTH: usize = 8 * MIB;
    let Some(start) = try_map(LENGTH + 2 * MIB, libc::MAP_PRIVATE) else { return false };
    let first = (start as usize).next_multiple_of(2 * MIB);
    // SAFETY: aligned superpages inside the mapping, which goes at the end.
    unsafe {
        libc::madvise(first as *mut libc::c_void, LENGTH, libc::MADV_HUGEPAGE);
        for at in (first..first + LENGTH).step_by(2 * MIB) {
            (at as *mut u8).write_volatile(1);
        }
        let got = huge_kib_at(first);
        libc::munmap(start.cast(), LENGTH + 2 * MIB);
        got >= LENGTH as u64 >> 10
    }
}

/// The KiB on superpages of the mapping at an address.
fn huge_kib_at(address: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("a file of /proc/self");
    let number = |text| usize::from_str_radix(text, 16).ok();
    let mut is_there = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or("");
        if let Some((from, to)) = first.split_once('-') {
            let range = number(from).zip(number(to));
            is_there = range.is_some_and(|(from, to)| (from..to).contains(&address));
        } else if is_there && first == "AnonHugePages:" {
            return words.next().and_then(|kib| kib.parse().ok()).expect("KiB");
        }
    }
    0
}

pub fn hugetlb_mib() -> u64 {
    (kib("Private_Hugetlb:") + kib("Shared_Hugetlb:")) >> 10
}

pub fn map(length: usize) -> *mut u8 {
    map_as(length, libc::MAP_PRIVATE)
}

pub fn map_as(length: usize, sharing: i32) -> *mut u8 {
    try_map(length, sharing).expect("memory")
}

pub fn try_map(length: usize, sharing: i32) -> Option<*mut u8> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
    // SAFETY: a null hint replaces nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start.cast())
}

/// Fills memory with a pattern that names each place.
pub fn fill(start: *mut u8, length: usize, seed: u64) {
    // SAFETY: callers pass memory of theirs, at least as long, aligned to 8.
    let words = unsafe { std::slice::from_raw_parts_mut(start.cast::<u64>(), length / 8) };
    for (at, word) in words.iter_mut().enumerate() {
        *word = (start as u64 + at as u64 * 8) ^ seed;
    }
}

/// Whether `[start + from, start + to)` still holds the pattern of `fill(start, ..)`.
pub fn holds(start: *const u8, from: usize, to: usize, seed: u64) -> bool {
    (from / 8..to / 8).all(|at| {
        // SAFETY: as above.
        let word = unsafe { *start.cast::<u64>().add(at) };
        word == (start as u64 + at as u64 * 8) ^ seed
    })
}

pub fn is_zero(start: *const u8, length: usize) -> bool {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start, length) }.iter().all(|byte| *byte == 0)
}

/// Whether the base page at `address` is mapped.
pub fn is_mapped(address: *const u8) -> bool {
    let mut present = 0u8;
    // SAFETY: asks only.
    unsafe { libc::mincore(address.cast_mut().cast(), 4096, &raw mut present) == 0 }
}

/// Forks; the child runs `work` and ends at once with its answer. The status is returned.
pub fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only does what the test asks and leaves without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            let code = if work() { 0 } else { 1 };
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let mut status = -1;
            // SAFETY: a live local.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            status
        }
    }
}

/// Tells other threads to stop when it goes, also in a panic: a scope waits for them.
pub struct Stop(pub std::sync::atomic::AtomicBool);

impl Stop {
    pub fn is_asked(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Runs `work`, and asks for the stop however it ends.
    pub fn after<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Guard<'a>(&'a Stop);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let _guard = Guard(self);
        work()
    }
}
