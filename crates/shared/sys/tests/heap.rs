//! Which allocations are advised. The tests do not check whether the kernel follows the advice.

use std::alloc::{GlobalAlloc, Layout};

use superpage_sys::heap::Heap;

const MIB: usize = 1 << 20;

/// Returns whether the mapping that contains `address` is advised (flag `hg`, proc_pid_smaps(5)).
fn is_advised(address: usize) -> bool {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let range =
            range.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)));
        if let Some((Ok(start), Ok(end))) = range {
            inside = (start..end).contains(&address);
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split(' ').any(|flag| flag == "hg");
        }
    }
    panic!("{address:#x} is in no mapping");
}

/// Returns whether the middle of an allocation is advised that grew from `from` to `size` bytes.
fn allocated(heap: &Heap, from: usize, size: usize) -> bool {
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    // SAFETY: each block is freed once, with its current size.
    unsafe {
        let mut start = heap.alloc_zeroed(layout(from));
        if from != size {
            start = heap.realloc(start, layout(from), size);
        }
        assert!(!start.is_null());
        let advised = is_advised(start.addr() + size / 2);
        heap.dealloc(start, layout(size));
        advised
    }
}

#[test]
fn large_allocations_are_advised_once_that_was_asked_for() {
    testkit::require!(
        std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists(),
        "this kernel has no transparent superpages"
    );
    let heap = Heap::new();
    assert!(!allocated(&heap, 64 * MIB, 64 * MIB), "nobody asked");
    heap.advise();
    assert!(allocated(&heap, 64 * MIB, 64 * MIB), "large");
    assert!(allocated(&heap, 64 * MIB, 128 * MIB), "grown");
    assert!(allocated(&heap, MIB, 64 * MIB), "that began small");
    assert!(!allocated(&heap, MIB, MIB), "small");
}
