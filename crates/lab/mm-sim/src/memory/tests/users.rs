//! Users of memory for the tests: each page's frame, and the pages that refuse to move.

use std::collections::BTreeSet;

use trace::Page;
use units::ByteSize;

use crate::memory::{Eviction, Frame, Memory, Mobility, Owner, Residents, Shape};

/// Pages with their frames, indexed by page number.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) frames: Vec<Option<Frame>>,
    pub(super) refuse: BTreeSet<u32>,
    pub(super) referenced: BTreeSet<u32>,
}

impl Users {
    /// Adds a page in an allocated frame.
    pub(super) fn page(&mut self, memory: &mut Memory, frame: Frame) -> u32 {
        let number = self.frames.len() as u32;
        memory.set_owner(frame, Owner::Page(Page(number)));
        self.frames.push(Some(frame));
        number
    }

    /// Checks that every page is in its recorded frame.
    pub(super) fn check(&self, memory: &Memory) {
        memory.verify().unwrap();
        let mut pages = 0;
        for (number, frame) in self.frames.iter().enumerate() {
            let Some(frame) = frame else { continue };
            assert_eq!(memory.owner(*frame), Owner::Page(Page(number as u32)));
            pages += 1;
        }
        let owned = (0..memory.frames())
            .filter(|&frame| matches!(memory.owner(Frame(frame)), Owner::Page(_)));
        assert_eq!(owned.count(), pages);
    }
}

impl Residents for Users {
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool {
        let Owner::Page(page) = owner else { return true };
        if self.refuse.contains(&page.0) {
            return false;
        }
        assert_eq!(self.frames[page.0 as usize], Some(from));
        self.frames[page.0 as usize] = Some(to);
        true
    }

    fn referenced(&mut self, owner: Owner, _: Frame) -> bool {
        let Owner::Page(page) = owner else { return false };
        self.referenced.remove(&page.0)
    }

    fn evicted(&mut self, owner: Owner, frame: Frame) -> Eviction {
        let Owner::Page(page) = owner else { return Eviction::Freed };
        if self.refuse.contains(&page.0) {
            return Eviction::Refused;
        }
        assert_eq!(self.frames[page.0 as usize].take(), Some(frame));
        Eviction::Swapped
    }
}

/// Creates fragmented memory: every pageblock has a page at each of `slots`, and an unmovable page at each slot in
/// `kernel`.
pub(super) fn fragmented(megabytes: u64, slots: &[u32], kernel: &[u32]) -> (Memory, Users) {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(megabytes)));
    let mut users = Users::default();
    while memory.allocate(0, Mobility::Movable, 0, false).is_some() {}
    for frame in (0..memory.frames()).map(Frame) {
        if kernel.contains(&frame.slot()) {
            memory.set_owner(frame, Owner::Kernel);
        } else if slots.contains(&frame.slot()) {
            users.page(&mut memory, frame);
        } else {
            memory.free(frame, 0);
        }
    }
    (memory, users)
}
