//! Nodes, the movable partition, watermarks and fragmentation indices.

use units::ByteSize;

use crate::memory::{Frame, Level, Memory, Mobility, NodeShape, Owner, Shape, ZoneKind};

fn two_nodes() -> Memory {
    let node = |movable| NodeShape { bytes: ByteSize::mib(16), movable_partition: movable };
    Memory::new(&Shape {
        nodes: vec![node(Some(ByteSize::mib(8))), node(None)],
        kernel: ByteSize::mib(4),
        ..Shape::simple(ByteSize(0))
    })
}

#[test]
fn a_request_falls_back_to_other_zones_and_nodes() {
    let mut memory = two_nodes();
    assert_eq!(memory.free_frames(), 8192 - 1024);
    assert_eq!(memory.owner(Frame(511)), Owner::Kernel);
    assert_eq!(memory.owner(Frame(4096)), Owner::Kernel);
    let kinds: Vec<_> = memory.buddyinfo().iter().map(|row| (row.node, row.kind)).collect();
    assert_eq!(kinds, [(0, ZoneKind::Normal), (0, ZoneKind::Movable), (1, ZoneKind::Normal)]);
    let mut take = |mobility| memory.allocate(9, mobility, 0, false).map(|got| got.frame.0 / 512);
    // Unmovable requests stay out of the partition. They fall back to movable lists, largest block first: the pair (2,
    // 3) before the single pageblock 1, then the same on the other node.
    assert_eq!(take(Mobility::Unmovable), Some(2));
    assert_eq!(take(Mobility::Movable), Some(4), "the partition first");
    let rest: Vec<_> = std::iter::from_fn(|| take(Mobility::Unmovable)).collect();
    assert_eq!(rest, [3, 1, 10, 11, 12, 13, 14, 15, 9]);
    let rest: Vec<_> = std::iter::from_fn(|| take(Mobility::Movable)).collect();
    assert_eq!(rest, [5, 6, 7]);
    memory.verify().unwrap();
}

#[test]
fn watermarks_are_those_of_linux() {
    // A machine of 16 GB: sqrt(16777216 * 16) = 16384 KB = 4096 frames; min/4 is less than 1/1000 of
    // 4,194,304 frames.
    let shape = Shape { raised_watermarks: false, ..Shape::simple(ByteSize::gib(16)) };
    let memory = Memory::new(&shape);
    let marks = memory.watermarks(0);
    assert_eq!((marks.min, marks.low, marks.high), (4096, 4096 + 4194, 4096 + 8388));
    // With raised watermarks: 11 pageblocks for the only zone.
    let memory = Memory::new(&Shape::simple(ByteSize::gib(16)));
    assert_eq!(memory.watermarks(0).min, 5632);
    assert!(memory.allows(Level::High, 9, Mobility::Movable, 0));
}

#[test]
fn the_indices_tell_fragmentation_from_lack() {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(64)));
    assert_eq!((memory.fragmentation_index(9), memory.unusable_index(9)), (-1000, 0));
    while memory.allocate(0, Mobility::Movable, 0, false).is_some() {}
    assert_eq!((memory.fragmentation_index(9), memory.unusable_index(9)), (0, 1000));
    // Every second frame free: 8192 blocks of one frame. 1000 - (1000 + 16000) / 8192.
    (0..memory.frames()).step_by(2).for_each(|frame| memory.free(Frame(frame), 0));
    assert_eq!((memory.fragmentation_index(9), memory.unusable_index(9)), (998, 1000));
    assert_eq!(memory.free_blocks(0), 8192);
    // The first pageblock becomes free: one superpage is available, so a request would succeed.
    (1..512).step_by(2).for_each(|frame| memory.free(Frame(frame), 0));
    assert_eq!((memory.fragmentation_index(9), memory.free_superpages()), (-1000, 1));
    assert_eq!(memory.unusable_index(9), (7936 * 1000 / 8448) as u32);
}
