//! malloc and its relatives, as C programs use them, on ordinary memory, THP and the pool.

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::mpsc;

use crate::common::*;

const THP: Asked = Asked { pages: "thp", memory: "heap", fallback: "base", children: "base" };

/// Runs a test on THP, on THP with memory prepared ahead, and with the heap left to glibc.
fn off_the_pool(test: &str) {
    assert!(succeeds(child(test, THP)), "{test} on THP");
    let mut ahead = child(test, Asked { memory: "heap,mmap", ..THP });
    ahead.env("SUPERPAGE_PREZERO", "134217728,load=100000");
    ahead.env("SUPERPAGE_PREFAULT", "33554432");
    assert!(succeeds(ahead), "{test} on THP prepared ahead");
    let off = Asked { pages: "base", ..THP };
    assert!(succeeds(child(test, off)), "{test} with the heap left to glibc");
}

/// Runs a test on a pool with too few pages, and on a pool with plenty.
fn on_the_pool(test: &str) {
    let Some(pool) = Pool::of(7) else {
        return testkit::skipped!("{NEEDS_POOL}");
    };
    for pages in [7, 512] {
        testkit::require!(pool.allow(pages), "{NEEDS_POOL}");
        assert!(succeeds(child(test, HUGETLB)), "{test} on hugetlb with {pages} pages");
        assert!(pool.is_empty());
    }
}

#[test]
fn every_function_keeps_its_contract() {
    off_the_pool("heap::child_contracts");
}

#[test]
fn sizes_alignments_and_resizing_keep_contents() {
    off_the_pool("heap::child_sizes");
}

#[test]
fn threads_allocate_resize_and_free_each_others_memory() {
    off_the_pool("heap::child_threads");
}

#[test]
fn a_child_forked_amid_threads_can_allocate() {
    off_the_pool("heap::child_forks_amid_threads");
}

#[test]
fn cleared_memory_is_zero_however_often_it_was_used() {
    off_the_pool("heap::child_clears");
}

mod exclusive {
    use super::*;

    #[test]
    fn every_function_keeps_its_contract() {
        on_the_pool("heap::child_contracts");
    }

    #[test]
    fn sizes_alignments_and_resizing_keep_contents() {
        on_the_pool("heap::child_sizes");
    }

    #[test]
    fn threads_allocate_resize_and_free_each_others_memory() {
        on_the_pool("heap::child_threads");
    }

    #[test]
    fn a_child_forked_amid_threads_can_allocate() {
        on_the_pool("heap::child_forks_amid_threads");
    }

    #[test]
    fn cleared_memory_is_zero_however_often_it_was_used() {
        on_the_pool("heap::child_clears");
    }

    /// If all pages of the pool are surplus, memory that glibc discards loses its pages, and a later touch finds none.
    #[test]
    fn what_is_trimmed_can_be_touched_again_when_the_pool_is_gone() {
        let Some(pool) = Pool::of(60) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        for test in ["heap::child_trims", "heap::child_runs_out_and_goes_on"] {
            assert!(succeeds(child(test, HUGETLB)), "{test}");
            assert!(pool.is_empty());
        }
    }

    #[test]
    fn what_is_freed_goes_back() {
        let Some(pool) = Pool::of(512) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child_on_pool("heap::child_gives_back", HUGETLB)));
        assert!(pool.is_empty());
    }
}

#[test]
fn a_heap_with_little_address_space_works() {
    let mut command = std::process::Command::new("sh");
    let mut inner = child("heap::child_contracts", THP);
    inner.env("SUPERPAGE_PREZERO", "134217728,load=100000");
    command.arg("-c").arg("ulimit -v 1500000; exec \"$0\" \"$@\"").arg(inner.get_program());
    command.args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    assert!(succeeds(command));
}

#[test]
fn programs_it_executes_learn_of_it_unless_it_is_to_stay_alone() {
    for (children, told) in [("base", true), ("same", true), ("none", false)] {
        let asked = child("none", Asked { children, ..THP });
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "env; exit 3"]).env_clear().env("PATH", "/usr/bin:/bin");
        for (name, value) in asked.get_envs() {
            value.map(|value| command.env(name, value));
        }
        let output = command.output().expect("a shell");
        assert_eq!(output.status.code(), Some(3));
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.contains("SUPERPAGE_"), told, "{children}: {text}");
        assert_eq!(text.contains("libsuperpage.so"), told, "{children}: {text}");
        assert!(text.contains("PATH=/usr/bin:/bin"), "{text}");
    }
}

unsafe extern "C" {
    fn reallocarray(memory: *mut c_void, count: usize, size: usize) -> *mut c_void;
    fn pvalloc(size: usize) -> *mut c_void;
    fn valloc(size: usize) -> *mut c_void;
}

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_contracts() {
    // SAFETY: C's own functions, each used within its contract.
    unsafe {
        libc::free(std::ptr::null_mut());
        let empty = libc::malloc(0);
        assert!(!empty.is_null());
        libc::free(empty);
        // A size that is too large gives an error, and the old block stays.
        let small = libc::malloc(100);
        small.cast::<u8>().write_bytes(7, 100);
        for size in [usize::MAX, isize::MAX as usize, 1 << 62] {
            assert!(black_box(libc::malloc(size)).is_null());
            assert_eq!(errno(), Some(libc::ENOMEM));
            assert!(black_box(libc::realloc(small, size)).is_null());
            assert!(black_box(libc::calloc(2, size)).is_null());
        }
        assert!(black_box(libc::calloc(usize::MAX / 2, 3)).is_null());
        assert!(reallocarray(small, usize::MAX / 2, 3).is_null());
        assert_eq!(errno(), Some(libc::ENOMEM));
        assert!((0..100).all(|at| *small.cast::<u8>().add(at) == 7));
        assert!(libc::malloc_usable_size(small) >= 100);
        assert_eq!(libc::malloc_usable_size(std::ptr::null_mut()), 0);
        // As in glibc, a size of 0 returns null and frees the block.
        assert!(libc::realloc(small, 0).is_null());
        let from_nothing = libc::realloc(std::ptr::null_mut(), 50);
        assert!(!from_nothing.is_null());
        libc::free(from_nothing);
        let mut result = std::ptr::null_mut();
        for bad in [0, 3, 4, 24] {
            assert_eq!(libc::posix_memalign(&mut result, bad, 10), libc::EINVAL, "{bad}");
        }
        assert_eq!(libc::posix_memalign(&mut result, 4096, usize::MAX / 2), libc::ENOMEM);
        for shift in 3..26 {
            let alignment = 1usize << shift;
            assert_eq!(libc::posix_memalign(&mut result, alignment, 1000), 0);
            assert_eq!(result as usize % alignment, 0);
            result.cast::<u8>().write_bytes(1, 1000);
            assert!(libc::malloc_usable_size(result) >= 1000);
            let grown = libc::realloc(result, 5000);
            assert!((0..1000).all(|at| *grown.cast::<u8>().add(at) == 1));
            libc::free(grown);
            let other = libc::aligned_alloc(alignment, alignment * 2);
            assert_eq!(other as usize % alignment, 0);
            libc::free(other);
        }
        let odd = libc::memalign(48, 10);
        assert_eq!(odd as usize % 64, 0, "the next power of two");
        libc::free(odd);
        for memory in [valloc(10), pvalloc(10)] {
            assert_eq!(memory as usize % 4096, 0);
            assert!(!memory.is_null());
            libc::free(memory);
        }
        assert!([0, 1].contains(&libc::malloc_trim(0)));
        assert!(libc::mallinfo2().arena > 0);
        assert_eq!(libc::mallopt(libc::M_ARENA_MAX, 4), 1);
    }
}

/// Reproducible numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a size, mostly small, sometimes large.
    fn size(&mut self) -> usize {
        let magnitude = self.next() % 100;
        let largest = match magnitude {
            0..70 => 512,
            70..90 => 16 << 10,
            90..97 => 512 << 10,
            97..99 => 6 << 20,
            _ => 24 << 20,
        };
        (self.next() % largest) as usize + 1
    }
}

/// A block with known contents at both ends and in the middle.
struct Block {
    memory: *mut u8,
    size: usize,
    mark: u8,
}
// SAFETY: plain memory, owned by the owner of the block.
unsafe impl Send for Block {}

impl Block {
    fn new(size: usize, mark: u8) -> Self {
        // SAFETY: any size.
        let memory: *mut u8 = unsafe { libc::malloc(size) }.cast();
        assert!(!memory.is_null(), "{size} bytes");
        let block = Self { memory, size, mark };
        block.write();
        block
    }

    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let size = self.size;
        (0..size.min(64)).chain([size / 2]).chain(size.saturating_sub(64)..size)
    }

    fn write(&self) {
        // SAFETY: places inside the block.
        self.places().for_each(|at| unsafe { *self.memory.add(at) = self.mark });
    }

    fn check(&self, up_to: usize) {
        // SAFETY: as above.
        let holds = |at: usize| unsafe { *self.memory.add(at) == self.mark };
        assert!(self.places().filter(|at| *at < up_to).all(holds), "{} bytes", self.size);
    }

    fn resize(&mut self, size: usize) {
        // SAFETY: the old block is not used again.
        let memory = unsafe { libc::realloc(self.memory.cast(), size) }.cast();
        let old = std::mem::replace(&mut self.memory, memory);
        assert!(!self.memory.is_null(), "{old:?} to {size} bytes");
        // The contents are kept up to the smaller of both sizes.
        self.check(self.size.min(size).min(64));
        self.size = size;
        self.write();
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check(self.size);
        }
        // SAFETY: this block's memory, not used again.
        unsafe { libc::free(self.memory.cast()) };
    }
}

fn churn(seed: u64, rounds: usize, keep: usize) {
    let mut numbers = Numbers(seed);
    let mut blocks: Vec<Block> = Vec::new();
    for round in 0..rounds {
        match numbers.next() % 4 {
            0 if !blocks.is_empty() => {
                let at = numbers.next() as usize % blocks.len();
                blocks.swap_remove(at);
            }
            1 if !blocks.is_empty() => {
                let at = numbers.next() as usize % blocks.len();
                let size = numbers.size();
                blocks[at].resize(size);
            }
            _ => blocks.push(Block::new(numbers.size(), round as u8)),
        }
        if blocks.len() > keep {
            blocks.truncate(keep / 2);
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_sizes() {
    churn(0x9e37_79b9, 20_000, 100);
    // All sizes near the boundaries between size classes and kinds of memory.
    for shift in 3..27 {
        for difference in [-9i64, -1, 0, 1, 9] {
            let size = (1i64 << shift) + difference;
            if size > 0 {
                Block::new(size as usize, 3);
            }
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_threads() {
    let (send, receive) = mpsc::channel::<Block>();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let send = send.clone();
            scope.spawn(move || {
                let mut numbers = Numbers(thread + 77);
                for round in 0..3000 {
                    // Another thread frees this block.
                    send.send(Block::new(numbers.size() / 8 + 1, round as u8)).expect("open");
                }
                churn(thread + 1, 3000, 40);
            });
        }
        drop(send);
        let mut kept = Vec::new();
        for mut block in receive {
            if block.mark % 3 == 0 {
                let size = block.size + 100;
                block.resize(size);
                kept.push(block);
            }
            if kept.len() > 300 {
                kept.clear();
            }
        }
    });
    // Threads come and go, and other threads use the blocks they leave.
    let mut left: Vec<Block> = Vec::new();
    for round in 0..200 {
        let made = std::thread::spawn(move || {
            (0..20).map(|at| Block::new(at * 300 + 1, round as u8)).collect::<Vec<_>>()
        });
        left.extend(made.join().expect("no panic"));
        if left.len() > 400 {
            left.drain(..300);
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_forks_amid_threads() {
    let stop = Stop(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let stop = &stop;
            scope.spawn(move || {
                let mut round = 0;
                while !stop.is_asked() {
                    churn(thread * 1000 + round + 1, 300, 30);
                    // New threads take malloc's locks, and get arenas.
                    std::thread::spawn(|| Block::new(100, 1)).join().expect("no panic");
                    round += 1;
                }
            });
        }
        stop.after(|| {
            let kept: Vec<Block> = (1..500).map(|size| Block::new(size * 20, size as u8)).collect();
            for round in 0..60u64 {
                let status = in_child(|| {
                    // A child that hangs is killed by the alarm. SAFETY: a number.
                    unsafe { libc::alarm(90) };
                    churn(round + 5, 200, 30);
                    kept.iter().for_each(|block| block.check(block.size));
                    is_allocated_by_a_new_thread()
                });
                assert_eq!(status, 0, "round {round}");
            }
        });
    });
}

/// Uses `pthread_create`, because a thread of std takes a lock of std when it starts, and no fork waits for that lock.
/// In a child that was forked while another thread held it, std's next thread would hang, with and without the library.
fn is_allocated_by_a_new_thread() -> bool {
    extern "C" fn allocate(_: *mut c_void) -> *mut c_void {
        // SAFETY: memory of that size, freed once.
        unsafe {
            let memory = libc::malloc(5000);
            if !memory.is_null() {
                memory.write_bytes(1, 5000);
            }
            libc::free(memory);
            memory
        }
    }
    let (mut thread, mut allocated) = (0, std::ptr::null_mut());
    // SAFETY: live locals; the thread is joined before they are dropped.
    let joined = unsafe {
        libc::pthread_create(&raw mut thread, std::ptr::null(), allocate, std::ptr::null_mut()) == 0
            && libc::pthread_join(thread, &raw mut allocated) == 0
    };
    joined && !allocated.is_null()
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_clears() {
    let mut numbers = Numbers(5);
    let sink = AtomicPtr::new(std::ptr::null_mut());
    for _ in 0..400 {
        let size = numbers.size();
        // SAFETY: memory of that size, freed once.
        unsafe {
            let memory: *mut u8 = libc::calloc(1, size).cast();
            assert!(is_zero(memory, size), "{size} bytes");
            memory.write_bytes(0xff, size);
            sink.store(memory, Ordering::Relaxed);
            libc::free(memory.cast());
        }
        if size > 4 << 20 {
            // SAFETY: returns free memory to the kernel, so that it is allocated anew.
            unsafe { libc::malloc_trim(0) };
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_gives_back() {
    let large = Block::new(200 << 20, 1);
    let many: Vec<Block> = (0..6000).map(|_| Block::new(16 << 10, 2)).collect();
    let at_most = read("nr_hugepages");
    assert!(at_most >= 140, "{at_most} pages");
    drop(large);
    drop(many);
    // SAFETY: no argument is a pointer.
    unsafe { libc::malloc_trim(0) };
    let left = read("nr_hugepages");
    assert!(left <= 12, "{left} of {at_most} pages");
}

/// Discards free memory of the heap by `discard`, takes all remaining pages of the pool, and uses the heap again.
fn uses_the_heap_again_after(discard: impl FnOnce()) {
    let mut objects: Vec<Option<Block>> =
        (0..3000).map(|_| Some(Block::new(16 << 10, 3))).collect();
    assert!(hugetlb_mib() >= 30, "{} MiB are on the pool", hugetlb_mib());
    objects.iter_mut().enumerate().filter(|(at, _)| at % 500 != 0).for_each(|(_, it)| *it = None);
    discard();
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | 21 << libc::MAP_HUGE_SHIFT;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: fresh memory; it stays until the process ends.
    let taken = std::iter::repeat_with(|| unsafe {
        libc::syscall(libc::SYS_mmap, 0, 2 * MIB, protection, flags, -1, 0)
    });
    let taken = taken.take(100).take_while(|at| *at != -1).count();
    assert!(taken < 100, "the pool has no end");
    objects.extend((0..3000).map(|_| Some(Block::new(16 << 10, 4))));
}

#[test]
#[ignore = "run by the tests above, as another process"]
fn child_trims() {
    uses_the_heap_again_after(|| {
        // SAFETY: no argument is a pointer.
        unsafe { libc::malloc_trim(0) };
    });
}

#[test]
#[ignore = "run by the tests above, as another process"]
fn child_runs_out_and_goes_on() {
    uses_the_heap_again_after(|| {
        // SAFETY: no object is that large.
        let memory = black_box(unsafe { libc::malloc(black_box(1 << 60)) });
        assert!(memory.is_null());
    });
}
