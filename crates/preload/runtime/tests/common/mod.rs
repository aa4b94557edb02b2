//! Helpers of the library's tests, which start themselves again under the library.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

pub const MIB: usize = 1 << 20;

/// Returns the path of the library, beside the test program or one directory up. SUPERPAGE_TEST_LIBRARY names another
/// library for the same tests.
pub fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("SUPERPAGE_TEST_LIBRARY") {
        return path.into();
    }
    let exe = std::env::current_exe().expect("our own path");
    let deps = exe.parent().expect("a directory");
    let places = [deps.join("libsuperpage.so"), deps.join("../libsuperpage.so")];
    places.into_iter().find(|path| path.is_file()).expect("libsuperpage.so is built with its tests")
}

/// Settings of a child process.
#[derive(Clone, Copy)]
pub struct Asked {
    pub pages: &'static str,
    pub memory: &'static str,
    pub fallback: &'static str,
    pub children: &'static str,
}

pub const HUGETLB: Asked =
    Asked { pages: "hugetlb:2097152", memory: "heap,mmap,shm", fallback: "base", children: "base" };

/// Returns a command that runs one of the ignored tests of this program in a new process under the library.
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

/// The same with all memory on the pool, also memory that cannot always be moved off it.
pub fn child_on_pool(test: &str, asked: Asked) -> Command {
    let mut command = child(test, asked);
    command.env("SUPERPAGE_POOL", "always");
    command
}

/// Runs a command to its end; prints its output if it fails.
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

/// Counts the child's skips as skips of this test.
pub fn hand_on_skips(errors: &[u8]) {
    let errors = String::from_utf8_lossy(errors);
    for line in errors.lines().filter(|line| line.starts_with("skipped: ")) {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

pub fn succeeds(command: Command) -> bool {
    has_passed(&output(command))
}

/// Returns whether the child ran its test and the test passed: with a wrong name, the child would run no test.
pub fn has_passed(output: &Output) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed")
}

/// The machine's lock, and the pools as they were. Pages come from the overcommit limit, so pages that are not used are
/// not taken from memory.
pub struct Pool {
    // Declared first, so that it is dropped first: the pools are restored while the lock is held.
    found: testkit::PoolsAsFound,
    _lock: testkit::MachineLock,
}

pub const DIR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Why there may be no pool.
pub const NEEDS_POOL: &str =
    "needs root and hugetlb pages of 2 MiB: free memory for them, and none that others left free";

impl Pool {
    /// Takes the lock and allows this many pages. `None`: this machine cannot do that, or has free pages, which would
    /// be used instead of the allowed ones.
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

    /// Allows `pages` in all, not counting pages that others hold. Returns whether this machine's memory holds that number,
    /// by reserving them.
    #[must_use]
    pub fn allow(&self, pages: u64) -> bool {
        let limit = pages + of_others("surplus_hugepages");
        let is_set = std::fs::write(format!("{DIR}/nr_overcommit_hugepages"), limit.to_string());
        is_set.is_ok() && can_reserve(pages)
    }

    /// Returns whether no page is in use or reserved.
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

/// Files that show what other processes hold of the pool when the tests begin.
const OTHERS: [&str; 3] = ["nr_hugepages", "resv_hugepages", "surplus_hugepages"];

/// Name of the variable that passes these numbers to child processes.
fn variable(file: &str) -> String {
    format!("SUPERPAGE_TEST_OTHERS_{file}")
}

/// Returns how much of a counter of the pool belonged to others when the lock was taken.
pub fn of_others(file: &str) -> u64 {
    let others = std::env::var(variable(file)).ok().and_then(|text| text.parse().ok());
    others.unwrap_or(0)
}

/// Returns a counter of the pool, less what belonged to others when the lock was taken.
pub fn read(file: &str) -> u64 {
    read_all(file).saturating_sub(of_others(file))
}

fn read_all(file: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{DIR}/{file}")).expect("a pool");
    text.trim().parse().expect("a number")
}

/// Returns a field of smaps_rollup in KiB.
pub fn kib(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("a file of /proc/self");
    let line = text.lines().find(|line| line.starts_with(field)).expect("the field");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Returns whether the kernel can reserve this many pages of the pool. Frees them at once.
fn can_reserve(pages: u64) -> bool {
    // MAP_HUGE_2MB, of linux/mman.h.
    const SIZE: i32 = 21 << 26;
    let length = pages as usize * 2 * MIB;
    if length == 0 {
        return true;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | SIZE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: with a null hint the call replaces no mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping above, which no other code uses.
    unsafe { libc::munmap(start, length) == 0 }
}

/// Returns the KiB of this process's mappings that are advised (flag `hg` in smaps).
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

/// Why a test of THP may be skipped.
pub const NEEDS_FREE: &str = "memory is fragmented or full: too few superpages of THP are free";

/// Returns whether `mib` MiB are free in whole superpages, and a GiB more for other tests, so that the library advises
/// memory. Also tries whether advised memory gets superpages.
pub fn has_free_superpages(mib: usize) -> bool {
    let free = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    2 * free_superpages(&free) >= mib + 1024 && advice_gets_superpages()
}

/// Counts free blocks of 2 MiB, given base pages of 4 KiB: blocks of order 9, and of order 10 twice.
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
    // SAFETY: aligned superpages inside the mapping, which is unmapped at the end.
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

/// Returns the KiB on superpages of the mapping at an address.
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
    // SAFETY: with a null hint the call replaces no mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start.cast())
}

/// Fills memory with a pattern that depends on each word's address.
pub fn fill(start: *mut u8, length: usize, seed: u64) {
    // SAFETY: callers own the memory, which is at least as long, and aligned to 8.
    let words = unsafe { std::slice::from_raw_parts_mut(start.cast::<u64>(), length / 8) };
    for (at, word) in words.iter_mut().enumerate() {
        *word = (start as u64 + at as u64 * 8) ^ seed;
    }
}

/// Returns whether `[start + from, start + to)` still has the pattern of `fill(start, ..)`.
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

/// Returns whether the base page at `address` is mapped.
pub fn is_mapped(address: *const u8) -> bool {
    let mut present = 0u8;
    // SAFETY: only asks the kernel.
    unsafe { libc::mincore(address.cast_mut().cast(), 4096, &raw mut present) == 0 }
}

/// Forks. The child runs `work` and ends at once with its result. Returns the exit status.
pub fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only does what the test asks and leaves without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            let code = if work() { 0 } else { 1 };
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let mut status = -1;
            // SAFETY: the pointer is to a live local variable.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            status
        }
    }
}

/// Tells other threads to stop when it is dropped, also in a panic, because a scope waits for its threads.
pub struct Stop(pub std::sync::atomic::AtomicBool);

impl Stop {
    pub fn is_asked(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Runs `work`, and tells the threads to stop however `work` ends.
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
