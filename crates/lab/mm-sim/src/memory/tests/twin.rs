//! Reference model: a textbook buddy allocator with a set of free blocks per mobility and order, split and merge. It
//! has the same policy (smallest sufficient order, lowest address) and no optimisations.

use std::collections::BTreeSet;

use proptest::prelude::*;
use units::ByteSize;

use crate::memory::{Claiming, Frame, Memory, Mobility, NodeShape, Owner, Shape};

struct Twin {
    /// First frames of free blocks, by mobility and order.
    lists: [[BTreeSet<u32>; 11]; 3],
    mobility: Vec<Mobility>,
    rule: Claiming,
    /// Whether each frame holds a movable page.
    movable: Vec<bool>,
}

impl Twin {
    fn new(pageblocks: u32, rule: Claiming) -> Self {
        let mut lists: [[BTreeSet<u32>; 11]; 3] = Default::default();
        lists[0][10] = (0..pageblocks / 2).map(|pair| pair << 10).collect();
        let mobility = vec![Mobility::Movable; pageblocks as usize];
        Self { lists, mobility, rule, movable: vec![false; (pageblocks << 9) as usize] }
    }

    fn split(&mut self, start: u32, from: u8, to: u32, order: u8) {
        let list = self.mobility[(start >> 9) as usize] as usize;
        assert!(self.lists[list][from as usize].remove(&start));
        let (mut start, mut from) = (start, from);
        while from > order {
            from -= 1;
            let half = 1 << from;
            let (keep, rest) =
                if to & half == 0 { (start, start + half) } else { (start + half, start) };
            let list = self.mobility[(rest >> 9) as usize] as usize;
            self.lists[list][from as usize].insert(rest);
            start = keep;
        }
    }

    fn take(&mut self, list: usize, order: u8) -> Option<u32> {
        let (from, start) =
            (order..11).find_map(|from| Some((from, *self.lists[list][from as usize].first()?)))?;
        self.split(start, from, start, order);
        Some(start)
    }

    fn allocate(&mut self, mobility: Mobility, order: u8) -> Option<(u32, bool)> {
        if let Some(start) = self.take(mobility as usize, order) {
            return Some((start, false));
        }
        let others = match mobility {
            Mobility::Movable => [1, 2],
            Mobility::Reclaimable => [2, 0],
            Mobility::Unmovable => [1, 0],
        };
        let find = |from: u8, twin: &Self| {
            others
                .into_iter()
                .find_map(|list| Some((from, list, *twin.lists[list][from as usize].first()?)))
        };
        let (mut from, _, mut start) = (order..11).rev().find_map(|from| find(from, self))?;
        if from >= 9 {
            for block in 0..1 << (from - 9) {
                self.convert((start >> 9) + block, mobility);
            }
            return Some((self.take(mobility as usize, order)?, true));
        }
        if from >= 4 || mobility != Mobility::Movable {
            if self.alike(start >> 9, mobility) >= 256 {
                self.convert(start >> 9, mobility);
                return Some((self.take(mobility as usize, order)?, true));
            }
        } else if self.rule == Claiming::HalfCompatible {
            (from, _, start) = (order..11).find_map(|from| find(from, self))?;
        }
        self.split(start, from, start, order);
        Some((start, true))
    }

    fn alike(&self, block: u32, mobility: Mobility) -> u32 {
        let frames = block << 9..(block + 1) << 9;
        let free = frames.clone().filter(|&frame| self.is_free(frame)).count() as u32;
        let movable = frames.filter(|&frame| self.movable[frame as usize]).count() as u32;
        match (self.rule, mobility, self.mobility[block as usize]) {
            (Claiming::HalfFree, ..) => free,
            (_, Mobility::Movable, _) => free + movable,
            (_, _, Mobility::Movable) => 512 - movable,
            _ => free,
        }
    }

    fn convert(&mut self, block: u32, mobility: Mobility) {
        let old = self.mobility[block as usize] as usize;
        for order in 0..11 {
            let inside = |start: &u32| start >> 9 == block;
            let moved: Vec<u32> = self.lists[old][order].iter().copied().filter(inside).collect();
            for start in moved {
                self.lists[old][order].remove(&start);
                self.lists[mobility as usize][order].insert(start);
            }
        }
        self.mobility[block as usize] = mobility;
    }

    fn around(&self, frame: u32) -> Option<(u32, u8, usize)> {
        (0..11u8).find_map(|order| {
            let start = frame >> order << order;
            let list = (0..3).find(|&list| self.lists[list][order as usize].contains(&start))?;
            Some((start, order, list))
        })
    }

    fn is_free(&self, frame: u32) -> bool {
        self.around(frame).is_some()
    }

    fn claim(&mut self, frame: u32, order: u8) -> bool {
        let Some((start, within, _)) = self.around(frame) else { return false };
        if within >= order {
            self.split(start, within, frame, order);
        }
        within >= order
    }

    fn free(&mut self, start: u32, order: u8) {
        self.movable[start as usize..][..1 << order].fill(false);
        let (mut start, mut order) = (start, order);
        let mobility = self.mobility[(start >> 9) as usize];
        while order < 10 {
            let buddy = start ^ 1 << order;
            let list = self.mobility[(buddy >> 9) as usize];
            if !self.lists[list as usize][order as usize].remove(&buddy) {
                break;
            }
            self.mobility[(buddy >> 9) as usize] = mobility;
            start &= buddy;
            order += 1;
        }
        self.lists[mobility as usize][order as usize].insert(start);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u8, Mobility),
    /// Frees the n-th held block, or a part of it of this order.
    Free(usize, u8),
    Claim(u32, u8),
}

fn step(frames: u32) -> impl Strategy<Value = Step> {
    let order = prop_oneof![6 => Just(0u8), 3 => 0u8..5, 2 => 0u8..11];
    let mobility = prop::sample::select(vec![
        Mobility::Movable,
        Mobility::Movable,
        Mobility::Reclaimable,
        Mobility::Unmovable,
    ]);
    prop_oneof![
        4 => (order.clone(), mobility).prop_map(|(order, mobility)| Step::Allocate(order, mobility)),
        4 => (any::<usize>(), 0u8..11).prop_map(|(which, order)| Step::Free(which, order)),
        1 => (0..frames, order).prop_map(|(frame, order)| Step::Claim(frame >> order << order, order)),
    ]
}

fn agree(memory: &Memory, twin: &Twin) -> Result<(), TestCaseError> {
    memory.verify().map_err(TestCaseError::fail)?;
    let info = &memory.buddyinfo()[0];
    for (list, orders) in twin.lists.iter().enumerate() {
        for (order, starts) in orders.iter().enumerate() {
            prop_assert_eq!(info.blocks[list][order] as usize, starts.len());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Long mixed histories on a small machine that starts empty or nearly full, so that every kind of fallback
    /// happens.
    #[test]
    fn agree_on_every_step(
        pairs in 1u32..4,
        fill in any::<bool>(),
        later in any::<bool>(),
        steps in prop::collection::vec(step(3 << 10), 1..600),
    ) {
        let rule = if later { Claiming::HalfCompatible } else { Claiming::HalfFree };
        let bytes = ByteSize::mib(4 * u64::from(pairs));
        let node = NodeShape { bytes, movable_partition: None };
        let mut memory = Memory::new(&Shape { nodes: vec![node], claiming: rule, ..Shape::simple(bytes) });
        let mut twin = Twin::new(pairs * 2, rule);
        let mut held: Vec<(u32, u8)> = Vec::new();
        let take = |memory: &mut Memory, twin: &mut Twin, order, mobility| {
            let got = memory.allocate(order, mobility, 0, false);
            let got = got.map(|got| (got.frame.0, got.stolen));
            assert_eq!(got, twin.allocate(mobility, order));
            let (frame, _) = got?;
            if mobility == Mobility::Movable {
                memory.set_pages(Frame(frame), 1 << order, trace::Page(frame));
                twin.movable[frame as usize..][..1 << order].fill(true);
            }
            Some((frame, order))
        };
        if fill {
            while let Some(block) = take(&mut memory, &mut twin, 3, Mobility::Movable) {
                held.push(block);
            }
        }
        for step in steps {
            match step {
                Step::Allocate(order, mobility) => {
                    held.extend(take(&mut memory, &mut twin, order, mobility));
                }
                Step::Claim(frame, order) if frame < pairs << 10 => {
                    let claimed = memory.claim(Frame(frame), order);
                    prop_assert_eq!(claimed, twin.claim(frame, order));
                    if claimed {
                        memory.set_owner(Frame(frame), Owner::Kernel);
                        held.push((frame, order));
                    }
                }
                Step::Free(which, part) if !held.is_empty() => {
                    let (frame, order) = held.swap_remove(which % held.len());
                    let freed = part.min(order);
                    memory.free(Frame(frame), freed);
                    twin.free(frame, freed);
                    held.extend((freed..order).map(|order| (frame + (1 << order), order)));
                }
                _ => {}
            }
        }
        agree(&memory, &twin)?;
        for (frame, order) in held {
            memory.free(Frame(frame), order);
            twin.free(frame, order);
        }
        agree(&memory, &twin)?;
        prop_assert_eq!(memory.free_blocks(10), u64::from(pairs));
    }
}
