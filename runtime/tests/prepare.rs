//! Superpages prepared before they are touched: what is handed out is zero, whatever became of it before,
//! and neither forks, threads, limits nor kills leave anything wrong or behind.
//!
//! The thread is told to work whatever else runs (`load=`): whether it gets a CPU is not what is tested.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::*;

const THP: Asked = Asked { pages: "thp", memory: "heap,mmap", fallback: "base", children: "base" };
const STOCK: usize = 96 * MIB;

/// A child that prepares memory.
fn preparing(test: &str) -> Command {
    let mut command = child(test, THP);
    command.env("SUPERPAGE_PREZERO", format!("{STOCK},load=100000"));
    command.env("SUPERPAGE_PREFAULT", (32 * MIB).to_string());
    command
}

/// Whether there are superpages of 2 MiB to prepare, on advice.
fn has_thp() -> bool {
    let dir = std::path::Path::new("/sys/kernel/mm/transparent_hugepage");
    let mode = std::fs::read_to_string(dir.join("enabled"));
    let size = std::fs::read_to_string(dir.join("hpage_pmd_size"));
    mode.is_ok_and(|mode| !mode.contains("[never]"))
        && size.is_ok_and(|size| size.trim() == "2097152")
}

macro_rules! in_child {
    ($($test:ident => $child:literal,)*) => { $(
        #[test]
        fn $test() {
            testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
            assert!(succeeds(preparing($child)));
        }
    )* };
}

in_child! {
    what_is_mapped_is_zero_amid_threads_however_it_was_used => "child_maps_amid_threads",
    what_a_program_does_to_parts_is_undone_by_nobody => "child_changes_parts",
    a_fork_with_a_full_stock_gives_the_child_nothing_of_it => "child_forks",
    a_thousand_threads_take_and_give_back => "child_of_many_threads",
    the_programs_descriptors_and_threads_are_its_own => "child_looks_at_itself",
    memory_filled_in_order_and_at_random_keeps_its_contents => "child_fills",
}

#[test]
fn what_is_to_be_ready_at_the_start_is_ready_before_it_is_asked_for() {
    testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
    let mut command = preparing("child_asks_for_nothing");
    command.env("SUPERPAGE_PREZERO", format!("{STOCK},load=100000,start={}", 16 * MIB));
    assert!(succeeds(command));
}

#[test]
fn what_comes_back_to_a_stock_that_has_been_filled_up_leaves_no_hole_in_it() {
    testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
    // Only what is mapped here comes out of the stock, and nothing is populated once it is given.
    let mut command = child("child_returns_in_turns", Asked { memory: "mmap", ..THP });
    command.env("SUPERPAGE_PREZERO", format!("{STOCK},load=100000,start={}", 32 * MIB));
    assert!(succeeds(command));
}

#[test]
fn without_being_asked_there_is_no_thread() {
    assert!(succeeds(child("child_is_alone", THP)));
}

#[test]
fn what_is_not_understood_is_said_and_turns_everything_off() {
    for bad in ["256M", "1,load=", "1,load=x", "1,2", "-1", "", "1,start=", "1,start=1M", "1,"] {
        let mut command = child("child_is_alone", THP);
        command.env("SUPERPAGE_PREZERO", bad);
        let output = output(command);
        assert!(output.status.success(), "{bad}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = format!("superpage: SUPERPAGE_PREZERO={bad} is not understood; superpage does");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
}

#[test]
fn what_a_killed_process_leaves_is_nothing() {
    testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
    let shared = || std::fs::read_dir("/dev/shm").map_or(0, |dir| dir.count());
    let before = shared();
    let mut command = preparing("child_waits_to_be_killed");
    let mut running = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(running.stdout.take().expect("a pipe"));
    while !line.contains("ready") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut out, &mut line).expect("text") > 0, "it ended");
    }
    running.kill().expect("it can be killed");
    running.wait().expect("it ends");
    assert!(shared() <= before, "files of other tests come and go; of this one none stays");
}

#[test]
fn a_childs_child_prepares_as_well() {
    testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
    let inner = preparing("child_looks_at_itself");
    let mut command = Command::new("sh");
    command.args(["-c", "sh -c '\"$0\" \"$@\"; exit $?' \"$0\" \"$@\"; exit $?"]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        value.map(|value| command.env(name, value));
    }
    command.env_remove("GLIBC_TUNABLES");
    assert!(succeeds(command));
}

#[test]
fn a_limit_on_memory_is_the_programs_not_the_stocks() {
    testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
    let group = Group::limited_to(224 * MIB);
    testkit::require!(group.is_some(), "needs a memory cgroup of version 1 that root can make");
    let group = group.unwrap();
    let inner = preparing("child_needs_all_there_is");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.0));
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        value.map(|value| command.env(name, value));
    }
    assert!(succeeds(command));
    let control = std::fs::read_to_string(format!("{}/memory.oom_control", group.0));
    let control = control.expect("a file of the group");
    assert!(control.contains("oom_kill 0"), "{control}");
}

/// A memory cgroup; gone when this is.
struct Group(String);

impl Group {
    fn limited_to(bytes: usize) -> Option<Self> {
        let path = format!("/sys/fs/cgroup/memory/superpage-test-{}", std::process::id());
        std::fs::create_dir(&path).ok()?;
        let group = Self(path);
        let limit = format!("{}/memory.limit_in_bytes", group.0);
        std::fs::write(limit, bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel moves charges on after the last process has ended.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The KiB of memory that the kernel may take at any time.
fn waiting_mib() -> u64 {
    kib("LazyFree:") >> 10
}

/// Waits until the stock holds as much; `false` if it never does.
fn comes_to(mib: u64) -> bool {
    let began = Instant::now();
    while waiting_mib() < mib && began.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(5));
    }
    waiting_mib() >= mib
}

/// Asks for memory and gives it back until the stock holds as much; `false` if it never does.
fn fill_stock(mib: usize) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(15) {
        let start = map(mib * MIB);
        unmap(start, mib * MIB);
        for _ in 0..50 {
            if waiting_mib() as usize >= mib {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    false
}

fn unmap(start: *mut u8, length: usize) {
    // SAFETY: callers map it and use it no more.
    assert_eq!(unsafe { libc::munmap(start.cast(), length) }, 0);
}

/// Reproducible numbers below `below`.
fn draw(state: &mut u64, below: u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % below) as usize
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_amid_threads() {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            scope.spawn(move || {
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut kept: Vec<(*mut u8, usize, u64)> = Vec::new();
                while began.elapsed() < Duration::from_millis(2500) {
                    let length = (1 + draw(&mut state, 8)) * 2 * MIB - draw(&mut state, 40) * 4096;
                    let start = map(length);
                    assert!(is_zero(start, length), "{length} bytes at {start:?}");
                    fill(start, length, seed);
                    kept.push((start, length, seed));
                    if kept.len() > 4 {
                        let at = draw(&mut state, 4);
                        let (start, length, seed) = kept.swap_remove(at);
                        assert!(holds(start, 0, length, seed));
                        unmap(start, length);
                    }
                    // calloc, which must not hand out what others left, and need not clear it again.
                    let words = vec![0u64; draw(&mut state, 1 << 20)];
                    assert!(words.iter().all(|word| *word == 0));
                    std::hint::black_box(vec![seed as u8; draw(&mut state, 4 << 20)]);
                }
                assert!(kept.iter().all(|(start, length, seed)| holds(*start, 0, *length, *seed)));
            });
        }
    });
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_changes_parts() {
    for round in 0..40u64 {
        let length = 16 * MIB;
        let start = map(length);
        assert!(is_zero(start, length), "round {round}");
        fill(start, length, round);
        let at = |from: usize| -> *mut libc::c_void { start.wrapping_add(from).cast() };
        // SAFETY: parts of this test's own mapping.
        unsafe {
            match round % 8 {
                0 => assert_eq!(libc::munmap(at(3 * MIB), 2 * MIB), 0),
                1 => assert_eq!(libc::mprotect(at(3 * MIB), 4096, libc::PROT_READ), 0),
                2 => assert_eq!(libc::madvise(at(3 * MIB), 2 * MIB, libc::MADV_DONTNEED), 0),
                3 => {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                    let over = libc::mmap(at(3 * MIB), 2 * MIB, libc::PROT_READ, flags, -1, 0);
                    assert_eq!(over, at(3 * MIB));
                }
                4 => {
                    let to = libc::mremap(at(4 * MIB), 4 * MIB, 8 * MIB, libc::MREMAP_MAYMOVE);
                    assert_ne!(to, libc::MAP_FAILED);
                    let moved = to.cast::<u64>();
                    assert_eq!(*moved, (start as u64 + 4 * MIB as u64) ^ round);
                    assert!(is_zero(to.cast::<u8>().add(4 * MIB), 4 * MIB));
                    libc::munmap(to, 8 * MIB);
                }
                5 => assert_eq!(libc::madvise(at(0), length, libc::MADV_DONTFORK), 0),
                6 => assert_eq!(libc::munmap(at(0), 4096), 0),
                _ => assert_eq!(libc::mprotect(at(0), length, libc::PROT_NONE), 0),
            }
        }
        if round % 8 != 7 {
            assert!(holds(start, 12 * MIB, length, round), "round {round}");
        }
        if round % 8 != 6 {
            unmap(start, length);
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks() {
    let length = 24 * MIB;
    let mine = map(length);
    fill(mine, length, 3);
    let mut block = vec![7u8; 40 * MIB];
    let is_full = fill_stock(STOCK / MIB / 2);
    if !is_full {
        testkit::skipped!("the stock was not filled: no memory to spare here");
    }
    for round in 0..6u64 {
        // In this order: what is populated in between counts as ours.
        let waiting = waiting_mib();
        let parents = kib("Rss:");
        let status = in_child(|| {
            let inherits = holds(mine, 0, length, 3) && block.iter().all(|byte| *byte == 7);
            let nothing_of_it = waiting_mib() == 0 && kib("Rss:") <= parents - (waiting << 10);
            let start = map(32 * MIB);
            let fresh = is_zero(start, 32 * MIB);
            fill(start, 32 * MIB, round);
            let again = in_child(|| holds(start, 0, 32 * MIB, round)) == 0;
            unmap(start, 32 * MIB);
            let larger = vec![0u8; 20 * MIB].iter().all(|byte| *byte == 0);
            inherits && nothing_of_it && fresh && again && larger
        });
        assert_eq!(status, 0, "round {round}");
        // What was handed out after a fork is inherited by the next child.
        let start = map(16 * MIB);
        assert!(is_zero(start, 16 * MIB));
        fill(start, 16 * MIB, round);
        assert_eq!(in_child(|| holds(start, 0, 16 * MIB, round)), 0);
        assert!(holds(start, 0, 16 * MIB, round) && holds(mine, 0, length, 3));
        unmap(start, 16 * MIB);
        block[round as usize] = 7;
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_of_many_threads() {
    let threads: Vec<_> = (0..1000u64)
        .map(|seed| {
            std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
                let start = map(2 * MIB);
                assert!(is_zero(start, 64 << 10));
                fill(start, 64 << 10, seed);
                let block = vec![seed as u8; 10_000];
                std::thread::yield_now();
                assert!(holds(start, 0, 64 << 10, seed));
                unmap(start, 2 * MIB);
                block.iter().map(|byte| u64::from(*byte)).sum::<u64>()
            })
        })
        .collect();
    for (seed, thread) in threads.into_iter().enumerate() {
        let sum = thread.expect("a thread").join().expect("it ends well");
        assert_eq!(sum, 10_000 * (seed as u64 & 0xff));
    }
}

fn tasks() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("our tasks").flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect()
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_looks_at_itself() {
    let mut numbers = Vec::new();
    for round in 0..200 {
        let start = map(8 * MIB);
        fill(start, 4 * MIB, round);
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        numbers.push(std::os::fd::AsRawFd::as_raw_fd(&file));
        unmap(start, 8 * MIB);
    }
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    let ours = tasks().iter().filter(|name| name.trim() == "superpage-pool").count();
    assert_eq!(ours, 1, "{:?}", tasks());
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_asks_for_nothing() {
    // All that is asked for here is too small for a superpage.
    let is_full = comes_to(16);
    // It stops there, or did not begin for want of memory.
    let waiting = waiting_mib();
    assert!(waiting <= 16, "{waiting} MiB");
    if !is_full {
        testkit::skipped!("the stock was not filled: no memory to spare here");
    }
    let start = map(16 * MIB);
    assert!(is_zero(start, 16 * MIB));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_returns_in_turns() {
    let take = |mib: usize| {
        let start = map(mib * MIB);
        fill(start, mib * MIB, 3);
        start
    };
    let mut is_full = comes_to(32);
    let burst = take(26);
    // So much is gone that it is filled up again, behind what was there...
    is_full &= comes_to(32);
    // ...and of this so little that it is not. Of what is left no 26 MiB are in a row.
    take(8);
    std::thread::sleep(Duration::from_millis(50));
    let room = 32 - waiting_mib().min(32);
    unmap(burst, 26 * MIB);
    is_full &= comes_to(32);
    if !is_full || room != 8 {
        testkit::skipped!("the stock was not filled as it should be: no memory to spare here");
        return;
    }
    let start = map(26 * MIB);
    let is_ready = |at: &usize| is_present(start.wrapping_add(at * 2 * MIB));
    let ready: Vec<usize> = (0..13).filter(is_ready).collect();
    assert_eq!(ready.len(), 13, "{ready:?}");
    assert!(is_zero(start, 26 * MIB));
}

/// Whether the base page at `start` is in memory.
fn is_present(start: *mut u8) -> bool {
    let mut answer = 0u8;
    // SAFETY: asks about one byte, so about one page; the answer is one byte.
    assert_eq!(unsafe { libc::mincore(start.cast(), 1, &raw mut answer) }, 0);
    answer & 1 != 0
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_is_alone() {
    unmap(map(8 * MIB), 8 * MIB);
    assert!(!tasks().iter().any(|name| name.trim() == "superpage-pool"), "{:?}", tasks());
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_fills() {
    let length = 256 * MIB;
    for order in 0..3usize {
        let start = map(length);
        let count = length / (2 * MIB);
        for at in 0..count {
            // In order; backwards; at random.
            let at = [at, count - 1 - at, at * 77 % count][order];
            let from = start.wrapping_add(at * 2 * MIB);
            assert!(is_zero(from, 2 * MIB), "{at} in order {order}");
            fill(from, 2 * MIB, at as u64);
        }
        let whole = |at: &usize| holds(start.wrapping_add(at * 2 * MIB), 0, 2 * MIB, *at as u64);
        assert!((0..count).all(|at| whole(&at)), "order {order}");
        unmap(start, length);
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_waits_to_be_killed() {
    let start = map(32 * MIB);
    fill(start, 32 * MIB, 1);
    fill_stock(STOCK / MIB / 2);
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_needs_all_there_is() {
    // What the stock takes of the limit...
    let is_full = fill_stock(64);
    // ...the program gets when it wants it.
    let waiting = waiting_mib();
    let length = 200 * MIB;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a null hint replaces nothing. Memory for a stack does not come from the stock.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    fill(start.cast(), length, 9);
    assert!(holds(start.cast(), 0, length, 9));
    assert!(waiting_mib() < 24, "{} MiB of {waiting} still wait", waiting_mib());
    if !is_full {
        testkit::skipped!("the stock was never full under the limit");
    }
}
