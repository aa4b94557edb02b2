//! Code that times single accesses and requests must not allocate while it does so, because the allocator is part of
//! the measurement. The test counts allocations of the working thread.
//!
//! # Safety
//! This allocator passes every call on to the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use superpage_workload::{Options, Settings, Workload};
use units::ByteSize;

struct Counting;

thread_local! {
    /// Allocations of this thread; threads of the test harness do not count.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Lists grow while results are reported, but no block may be resized here. SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls(workload: Workload, size: ByteSize, options: Options) -> u64 {
    let settings = Settings { size, options, ..Settings::new(workload) };
    let before = CALLS.get();
    workload.run(&settings).unwrap();
    CALLS.get() - before
}

#[test]
fn a_request_allocates_its_block_and_a_touch_nothing() {
    let requests = |count| {
        let options = Options { operations: Some(count), ..Options::default() };
        calls(Workload::Requests, ByteSize::mib(1), options)
    };
    let touch = |mib| {
        let options = Options { latency: true, repeat: Some(1), ..Options::default() };
        calls(Workload::Touch, ByteSize::mib(mib), options)
    };
    requests(10);
    assert_eq!(requests(900) - requests(300), 600);
    assert_eq!(touch(16), touch(4));
}
