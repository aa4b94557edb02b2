//! Superpages prepared before they are touched. Memory that is handed out is zero, whatever it contained before; memory
//! that was unmapped is gone for the program; and forks, threads, locks, limits and sandboxes do not reveal that memory
//! is kept.

mod stock;

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::ControlGroup;

use crate::common::*;

const THP: Asked = Asked { pages: "thp", memory: "mmap", fallback: "base", children: "base" };

const STOCK: usize = 96 * MIB;

/// Returns a child that prepares memory.
fn preparing(test: &str) -> Command {
    let mut command = child(test, THP);
    command.env("SUPERPAGE_PREZERO", STOCK.to_string());
    command.env("SUPERPAGE_PREFAULT", (32 * MIB).to_string());
    command
}

/// Enough memory that a tenth of it is worth keeping. The tests allocate it first.
const BALLAST: usize = 400 * MIB;

fn grow_large() {
    let start = map(BALLAST);
    for at in (0..BALLAST).step_by(4096) {
        // SAFETY: memory of the mapping above.
        unsafe { start.add(at).write(1) };
    }
}

/// Returns whether advised memory can get superpages of 2 MiB.
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
    what_is_mapped_is_zero_amid_threads_however_it_was_used => "prepare::child_maps_amid_threads",
    what_a_program_does_to_parts_is_undone_by_nobody => "prepare::child_changes_parts",
    a_child_is_given_nothing_of_the_stock => "prepare::child_forks",
    a_thousand_threads_take_and_give_back => "prepare::child_of_many_threads",
    the_programs_descriptors_and_threads_are_its_own => "prepare::child_looks_at_itself",
    memory_filled_in_order_and_at_random_keeps_its_contents => "prepare::child_fills",
    what_is_unmapped_is_kept_elsewhere_and_is_not_there => "prepare::stock::child_maps_again",
    what_was_kept_comes_back_where_there_is_space => "prepare::stock::child_maps_in_between",
    what_is_kept_makes_way_for_who_names_its_address => "prepare::stock::child_maps_there",
    what_is_locked_is_not_kept => "prepare::stock::child_locks",
    a_small_process_keeps_nothing => "prepare::stock::child_is_small",
    a_small_program_that_a_large_one_starts_keeps_nothing => "prepare::stock::child_starts_a_small_one",
    what_was_resident_is_discarded_for_who_wants_small_pages => "prepare::stock::child_wants_small_pages",
    a_sandbox_is_entered_without_a_stock => "prepare::child_enters_a_sandbox",
    the_beginning_of_a_large_mapping_is_there => "prepare::child_maps_much",
}

#[test]
fn what_is_not_understood_is_said_and_turns_everything_off() {
    for bad in ["256M", "1,load=", "1,load=x", "1,2", "-1", "", "1,start=", "1,start=1M", "1,"] {
        let mut command = child("prepare::child_is_alone", THP);
        command.env("SUPERPAGE_PREZERO", bad);
        let output = output(command);
        assert!(has_passed(&output), "{bad}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = format!("superpage: SUPERPAGE_PREZERO={bad} is not understood; superpage does");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
}

#[test]
fn a_limit_on_memory_is_the_programs_not_the_stocks() {
    testkit::require!(has_thp(), "needs transparent superpages of 2 MiB");
    let group = ControlGroup::of_memory(224 << 20, "prepare");
    let group = group.filter(|group| group.path().join("memory.oom_control").exists());
    testkit::require!(group.is_some(), "needs a memory cgroup of version 1 that root can make");
    let group = group.unwrap();
    let inner = preparing("prepare::child_needs_all_there_is");
    let mut command = Command::new("sh");
    group.join(&mut command).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        value.map(|value| command.env(name, value));
    }
    assert!(succeeds(command));
    let control = std::fs::read_to_string(group.path().join("memory.oom_control"));
    let control = control.expect("a file of the group");
    assert!(control.contains("oom_kill 0"), "{control}");
}

/// Returns the MiB of memory that the kernel may take at any time.
fn waiting_mib() -> u64 {
    kib("LazyFree:") >> 10
}

fn unmap(start: *mut u8, length: usize) {
    // SAFETY: callers map it and use it no more.
    assert_eq!(unsafe { libc::munmap(start.cast(), length) }, 0);
}

/// Returns reproducible numbers below `below`.
fn draw(state: &mut u64, below: u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % below) as usize
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_amid_threads() {
    grow_large();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            scope.spawn(move || {
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut kept: Vec<(*mut u8, usize, u64)> = Vec::new();
                while began.elapsed() < Duration::from_millis(2500) {
                    let odd = if seed % 2 == 0 { draw(&mut state, 40) * 4096 } else { 0 };
                    let length = (1 + draw(&mut state, 8)) * 2 * MIB - odd;
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
                    // calloc must not return memory with old contents, and need not clear prepared memory again.
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
    grow_large();
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
    grow_large();
    let length = 24 * MIB;
    let mine = map(length);
    fill(mine, length, 3);
    for round in 0..6u64 {
        let before = map(32 * MIB);
        fill(before, 32 * MIB, round);
        unmap(before, 32 * MIB);
        let status = in_child(|| {
            let inherits = holds(mine, 0, length, 3);
            let nothing_of_it = waiting_mib() == 0 && mapped_at(before).is_none();
            let start = map(32 * MIB);
            let fresh = is_zero(start, 32 * MIB);
            fill(start, 32 * MIB, round);
            let again = in_child(|| holds(start, 0, 32 * MIB, round)) == 0;
            unmap(start, 32 * MIB);
            inherits && nothing_of_it && fresh && again
        });
        assert_eq!(status, 0, "round {round}");
        // Memory that was handed out after a fork is inherited by the next child.
        let start = map(32 * MIB);
        assert!(is_zero(start, 32 * MIB));
        fill(start, 32 * MIB, round);
        assert_eq!(in_child(|| holds(start, 0, 32 * MIB, round)), 0);
        assert!(holds(start, 0, 32 * MIB, round) && holds(mine, 0, length, 3));
        unmap(start, 32 * MIB);
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
    let refused = threads.iter().filter(|thread| thread.is_err()).count();
    if refused > 0 {
        testkit::skipped!("{refused} of 1000 threads may not be started here");
    }
    for (seed, thread) in threads.into_iter().enumerate() {
        let Ok(thread) = thread else { continue };
        let sum = thread.join().expect("it ends well");
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
    grow_large();
    let before = tasks();
    let mut numbers = Vec::new();
    for round in 0..200 {
        let start = map(8 * MIB);
        fill(start, 8 * MIB, round);
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        numbers.push(std::os::fd::AsRawFd::as_raw_fd(&file));
        unmap(start, 8 * MIB);
    }
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    assert_eq!(tasks(), before);
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_enters_a_sandbox() {
    grow_large();
    let (_, start) = keep(16 * MIB);
    // SAFETY: all arguments are numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    assert_eq!((waiting_mib(), mapped_at(start)), (0, None));
    assert!(!keep(16 * MIB).0, "and nothing is kept from then on");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) }, 1);
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_maps_much() {
    let length = 256 * MIB;
    let before = kib("Rss:");
    let start = map(length);
    let grown = kib("Rss:").saturating_sub(before) >> 10;
    assert!(grown <= 33, "{grown} MiB");
    if grown < 24 {
        testkit::skipped!("no superpages here");
        return;
    }
    assert!(is_resident(start, 24 * MIB) && !is_present(start.wrapping_add(40 * MIB)));
    assert!(is_zero(start, 64 * MIB));
}

/// Returns whether the base page at `start` is in memory.
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
            // Touches in order, backwards, or at random.
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
fn child_needs_all_there_is() {
    // The library keeps a tenth of what is left under the limit...
    let mut start = map(100 * MIB);
    fill(start, 100 * MIB, 8);
    let (is_full, _) = keep(8 * MIB);
    // ...and the program gets it when it needs it.
    unmap(start, 100 * MIB);
    let waiting = waiting_mib();
    let length = 200 * MIB;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: with a null hint the call replaces no mapping. Memory for a stack does not come from the stock.
    start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) }.cast();
    assert_ne!(start.cast(), libc::MAP_FAILED);
    fill(start, length, 9);
    assert!(holds(start, 0, length, 9));
    assert!(waiting_mib() <= waiting, "{} MiB of {waiting} still wait", waiting_mib());
    if !is_full {
        testkit::skipped!("the stock was never full under the limit");
    }
}

/// Returns whether all pages of the range are in memory.
fn is_resident(start: *mut u8, length: usize) -> bool {
    (0..length).step_by(4096).all(|at| is_present(start.wrapping_add(at)))
}

/// Maps, fills and unmaps `length` bytes. Returns whether they are kept, and their address. On fragmented memory there
/// are no superpages to keep.
fn keep(length: usize) -> (bool, *mut u8) {
    let start = map(length);
    fill(start, length, 1);
    let before = waiting_mib();
    unmap(start, length);
    (waiting_mib() > before, start)
}

/// Returns the line of /proc/self/maps of the mapping there.
fn mapped_at(address: *const u8) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
    let is_there = |line: &&str| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&(address as usize))
    };
    maps.lines().find(is_there).map(str::to_owned)
}
