//! The rules of mobility fallback, case by case (docs/sources/policies.md 3.1, "Mobility fallback").

use units::ByteSize;

use crate::memory::{Claiming, Frame, Memory, Mobility, Owner, Shape};

/// Creates a pair of pageblocks on the movable lists. `free` blocks lie in the first; the first `movable` frames are
/// page cache, the rest is the kernel's.
fn memory(rule: Claiming, free: &[(u32, u8)], movable: u32) -> Memory {
    let mut memory = Memory::new(&Shape { claiming: rule, ..Shape::simple(ByteSize::mib(4)) });
    let _ = memory.allocate(10, Mobility::Movable, 0, false);
    for frame in (0..1024).map(Frame) {
        let owner = if frame.0 < movable { Owner::Cache(frame.0) } else { Owner::Kernel };
        memory.set_owner(frame, owner);
    }
    for &(frame, order) in free {
        (frame..frame + (1 << order)).for_each(|frame| memory.set_owner(Frame(frame), Owner::None));
        memory.free(Frame(frame), order);
    }
    memory
}

#[test]
fn a_pageblock_is_claimed_when_half_of_it_is_alike() {
    use Claiming::{HalfCompatible, HalfFree};
    use Mobility::{Reclaimable, Unmovable};
    type Case<'a> = (Claiming, Mobility, &'a [(u32, u8)], u32, u8, bool);
    // (rule, requester, free blocks, frames used by movable pages, order, claimed)
    let table: &[Case<'_>] = &[
        (HalfFree, Unmovable, &[(256, 8)], 0, 0, true),
        (HalfFree, Unmovable, &[(256, 7), (384, 6)], 0, 0, false),
        (HalfFree, Reclaimable, &[(256, 8)], 0, 3, true),
        (HalfFree, Reclaimable, &[(256, 7)], 256, 3, false),
        // 128 free and 384 kernel frames match an unmovable request, but not a movable one.
        (HalfCompatible, Unmovable, &[(256, 7)], 0, 0, true),
        // 128 free frames; the others are movable.
        (HalfCompatible, Unmovable, &[(256, 7)], 512, 0, false),
        (HalfCompatible, Unmovable, &[(0, 0)], 256, 0, true),
        (HalfCompatible, Unmovable, &[(0, 0)], 258, 0, false),
    ];
    for &(rule, mobility, free, movable, order, claimed) in table {
        let mut memory = memory(rule, free, movable);
        let got = memory.allocate(order, mobility, 0, false).unwrap();
        assert!(got.stolen);
        assert_eq!(got.frame.0, free[0].0);
        let now = if claimed { mobility } else { Mobility::Movable };
        assert_eq!(memory.mobility(got.frame), now, "{rule:?} {mobility:?} {free:?} {movable}");
        memory.verify().unwrap();
    }
}

#[test]
fn a_whole_pageblock_is_claimed_with_its_neighbour_when_both_are_free() {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(8)));
    let got = memory.allocate(0, Mobility::Unmovable, 0, false).unwrap();
    assert_eq!((got.frame, got.stolen), (Frame(0), true));
    assert_eq!(memory.pageblocks(), [2, 0, 2]);
    assert!(!memory.allocate(9, Mobility::Unmovable, 0, false).unwrap().stolen);
}

#[test]
fn a_movable_request_that_cannot_claim_takes_the_smallest_block_since_4_12() {
    for (rule, frame) in [(Claiming::HalfFree, 8), (Claiming::HalfCompatible, 100)] {
        let mut memory = memory(rule, &[], 0);
        // The first pageblock becomes unmovable, then frees a block of order 3 and one of order 0.
        memory.free(Frame(0), 9);
        let mut memory_frames = Vec::new();
        for _ in 0..512 {
            let got = memory.allocate(0, Mobility::Unmovable, 0, false).unwrap();
            memory.set_owner(got.frame, Owner::Kernel);
            memory_frames.push(got.frame);
        }
        memory.free(Frame(8), 3);
        memory.free(Frame(100), 0);
        let got = memory.allocate(0, Mobility::Movable, 0, false).unwrap();
        assert_eq!((got.frame.0, got.stolen), (frame, true), "{rule:?}");
        assert_eq!(memory.mobility(got.frame), Mobility::Unmovable);
        memory.verify().unwrap();
    }
}

#[test]
fn types_are_asked_in_order() {
    use Mobility::{Movable, Reclaimable, Unmovable};
    // For each requester, the first fallback type when both others have a block of the same order.
    for (requester, first) in
        [(Movable, Reclaimable), (Reclaimable, Unmovable), (Unmovable, Reclaimable)]
    {
        let mut memory = Memory::new(&Shape::simple(ByteSize::mib(8)));
        let others = Mobility::ALL.into_iter().filter(|&other| other != requester);
        for mobility in others {
            // Each type gets its own pair of pageblocks, wholly free again.
            let got = memory.allocate(10, Mobility::Movable, 0, false).unwrap();
            let zone = &mut memory.zones[0];
            let block = zone.block_of(got.frame);
            zone.set_mobility(block, mobility);
            zone.set_mobility(block + 1, mobility);
        }
        memory.free(Frame(0), 10);
        memory.free(Frame(1024), 10);
        let got = memory.allocate(0, requester, 0, false).unwrap();
        let lowest_is_first =
            Mobility::ALL.into_iter().find(|&other| other != requester) == Some(first);
        assert_eq!(got.frame.0 < 1024, lowest_is_first, "{requester:?}");
    }
}
