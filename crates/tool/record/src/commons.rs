//! What all processes of a recording share: the dense numbers of regions, shared objects and files. Pure.

use std::collections::HashMap;

use trace::Backing;

use crate::numbers::Numbers;
use crate::parts::Kind;

/// More regions than can be numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// What all processes share.
pub struct Commons {
    /// Regions' numbers that no process has.
    pub numbers: Numbers,
    /// By object and the page of it that a mapping begins with; only looked up, so its order is nobody's.
    objects: HashMap<(u64, u64), u32>,
    files: HashMap<u64, u32>,
    nameless: u64,
}

impl Commons {
    /// At the beginning of a recording.
    pub fn new() -> Self {
        let (objects, files) = (HashMap::new(), HashMap::new());
        Self { numbers: Numbers::all(), objects, files, nameless: 0 }
    }

    /// A name for shared memory that has none. Files' are odd, these are even.
    pub fn nameless(&mut self) -> u64 {
        self.nameless += 2;
        self.nameless
    }

    /// What backs a mapping of that kind, in a stream's words. All mappings of a stream's object begin at the
    /// object's first page, so what begins elsewhere is another object.
    pub fn backing(&mut self, kind: Kind) -> Backing {
        match kind {
            Kind::Anonymous => Backing::Anonymous,
            Kind::Heap => Backing::Heap,
            Kind::Shared(object, offset) => {
                let next = self.objects.len() as u32;
                Backing::Shared(*self.objects.entry((object, offset)).or_insert(next))
            }
            // A program that runs again finds its files in the page cache.
            Kind::File(file) => {
                let next = self.files.len() as u32;
                Backing::File { file: *self.files.entry(file).or_insert(next), cached: true }
            }
        }
    }
}
