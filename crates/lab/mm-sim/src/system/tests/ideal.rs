//! The ideal design gets superpages whatever is in the way, including its own reservations.

use super::*;
use trace::{Backing, Page, Pages, Region, SLOTS};

/// Superpages of the program. The fragmenters are told 8, and leave at most that many free.
const NEEDED: u32 = 40;

/// Frag-L keeps 16 pages of each superpage; the rest of each superpage stays reserved, and no frame is free.
#[test]
fn what_is_reserved_of_spoiled_superpages_is_to_be_had() {
    let design = design::designs::find("ideal").expect("a preset");
    for fragmentation in ["frag-25", "frag-50", "frag-100"] {
        let (memory, swap) = (ByteSize::mib(256), ByteSize(0));
        let conditions = Conditions {
            machine: "e3-1245v6",
            memory,
            fragmentation,
            swap,
            layout: Layout::default(),
        };
        let mut run = Run::new(&design, &conditions);
        let free = run.engine.system.memory.free_frames();
        assert!(free <= 8 * u64::from(SLOTS), "{fragmentation} left {free} frames free");
        let (region, process) = run.first;
        let pages = Pages { first: Region(region).first(), count: NEEDED * SLOTS };
        let map = Event::Map { pages, address: 1 << 34, backing: Backing::Anonymous };
        run.step(Some(Event::Spawn(Process(process))), &[]).expect("a process");
        run.step(Some(map), &[]).expect("a mapping");
        for region in (region..region + NEEDED).map(Region) {
            let touched = run.step(None, &[Access::write(region.first())]);
            assert_eq!(touched, Ok(()), "{region:?} after {fragmentation}");
            assert!(run.engine.system.spaces.is_large(region), "{region:?} after {fragmentation}");
        }
        assert!(run.engine.system.counters.broken > 0);
        run.end();
    }
}

/// A heap's superpage reaches past the heap's end. After a split, the pages there can be swapped out like others, and
/// are freed with the heap.
#[test]
fn what_is_swapped_out_past_the_end_of_a_heap_goes_with_it() {
    let design = design::designs::find("ideal").expect("a preset");
    let (memory, swap) = (ByteSize::mib(16), ByteSize::gib(1));
    let conditions = Conditions {
        machine: "e3-1245v6",
        memory,
        fragmentation: "none",
        swap,
        layout: Layout::default(),
    };
    let mut run = Run::new(&design, &conditions);
    let (region, process) = run.first;
    let heap = Pages { first: Region(region).first(), count: 21 };
    let copy = Pages { first: Region(region + 8).first(), count: 21 };
    let large = Pages { first: Region(region + 16).first(), count: 16 * SLOTS };
    let map = |pages, address, backing| Event::Map { pages, address, backing };
    let mut happens = |event, accesses: &[Access]| {
        run.step(Some(event), accesses).expect("swap is large");
    };
    happens(Event::Spawn(Process(process)), &[]);
    happens(map(heap, 1 << 34, Backing::Heap), &[Access::write(heap.first)]);
    happens(
        Event::Fork { child: Process(process + 1), offset: 8 * SLOTS },
        &[Access::write(Page(heap.first.0 + 10))],
    );
    happens(Event::Run(Process(process + 1)), &[]);
    happens(Event::Unmap(copy), &[]);
    let all: Vec<Access> =
        (0..large.count).map(|at| Access::write(Page(large.first.0 + at))).collect();
    happens(map(large, 1 << 36, Backing::Anonymous), &all);
    happens(Event::Run(Process(process)), &[]);
    let before = run.engine.system.spaces.swapped();
    run.step(Some(Event::Unmap(heap)), &[]).expect("nothing to run out of");
    assert_eq!(before - run.engine.system.spaces.swapped(), u64::from(SLOTS));
    run.end();
}
