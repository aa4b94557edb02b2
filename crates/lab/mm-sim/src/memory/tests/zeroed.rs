//! Zeroed free memory (docs/sources/policies.md 3.4 and 3.8).

use proptest::prelude::*;
use units::ByteSize;

use crate::memory::{Frame, Memory, Mobility, Shape};

#[test]
fn hawkeye_zeroes_blocks_of_order_ten() {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(64)));
    for block in 0..10 {
        let frame = memory.take_unzeroed(10).unwrap();
        assert_eq!(frame, Frame(block << 10));
        memory.put_zeroed(frame, 10);
    }
    assert_eq!(memory.zeroed_frames(), 10 * 1024);
    assert_eq!(memory.free_blocks(10), 16);
    memory.verify().unwrap();
    // A zeroed superpage is preferred to a lower one that is not zeroed; its buddy stays zeroed.
    assert!(memory.claim(Frame(0), 10));
    memory.free(Frame(0), 10);
    let got = memory.allocate(9, Mobility::Movable, 0, true).unwrap();
    assert_eq!((got.frame, got.zeroed), (Frame(1024), true));
    let got = memory.allocate(0, Mobility::Movable, 0, true).unwrap();
    assert_eq!((got.frame, got.zeroed), (Frame(1536), true));
    // Freed frames are dirty.
    memory.free(got.frame, 0);
    let again = memory.allocate(9, Mobility::Movable, 0, true).unwrap();
    assert_eq!((again.frame, again.zeroed), (Frame(2048), true));
    memory.verify().unwrap();
}

#[test]
fn scrubd_zeroes_small_orders_and_finds_an_end() {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(8)));
    let held = memory.allocate(0, Mobility::Movable, 0, false).unwrap();
    let mut blocks = 0;
    while let Some(frame) = memory.take_unzeroed(4) {
        memory.put_zeroed(frame, 4);
        blocks += 1;
    }
    // All but the block of 16 frames that contains the frame in use.
    assert_eq!(blocks, 2048 / 16 - 1);
    assert_eq!(memory.zeroed_frames(), 2048 - 16);
    memory.free(held.frame, 0);
    assert_eq!(memory.free_blocks(10), 2, "buddies merge whatever they hold");
    memory.verify().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A frame that counts as zeroed was zeroed after its last use.
    #[test]
    fn zeros_are_zeros(steps in prop::collection::vec((0u8..4, 0u8..11, any::<usize>()), 1..300)) {
        let mut memory = Memory::new(&Shape::simple(ByteSize::mib(12)));
        let mut zeros = vec![false; memory.frames() as usize];
        let mut held: Vec<(Frame, u8)> = Vec::new();
        for (what, order, which) in steps {
            match what {
                0 => {
                    if let Some(frame) = memory.take_unzeroed(order) {
                        let range = &mut zeros[frame.0 as usize..][..1 << order];
                        prop_assert!(range.contains(&false));
                        range.fill(true);
                        memory.put_zeroed(frame, order);
                    }
                }
                1 | 2 => {
                    if let Some(got) = memory.allocate(order, Mobility::Movable, 0, what == 1) {
                        let range = &mut zeros[got.frame.0 as usize..][..1 << order];
                        prop_assert_eq!(got.zeroed, !range.contains(&false));
                        range.fill(false);
                        held.push((got.frame, order));
                    }
                }
                _ if !held.is_empty() => {
                    let (frame, order) = held.swap_remove(which % held.len());
                    memory.free(frame, order);
                }
                _ => {}
            }
            memory.verify().map_err(TestCaseError::fail)?;
            prop_assert_eq!(memory.zeroed_frames(), zeros.iter().filter(|&&zero| zero).count() as u64);
        }
    }
}
