//! State shared by all processes of a recording: dense numbers of regions, shared objects and files. Pure.

use std::collections::HashMap;

use trace::Backing;

use crate::numbers::Numbers;
use crate::parts::Kind;

/// Out of region numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// State shared by all processes.
pub struct SharedState {
    /// Free region numbers.
    pub numbers: Numbers,
    /// Object numbers by object and the object's page at which a mapping begins; only looked up, so the map's order
    /// does not matter.
    objects: HashMap<(u64, u64), u32>,
    files: HashMap<u64, u32>,
    anonymous_id: u64,
}

impl SharedState {
    /// The state at the beginning of a recording.
    pub fn new() -> Self {
        let (objects, files) = (HashMap::new(), HashMap::new());
        Self { numbers: Numbers::all(), objects, files, anonymous_id: 0 }
    }

    /// A new identity for anonymous shared memory: even, whereas those of files are odd.
    pub fn anonymous_id(&mut self) -> u64 {
        self.anonymous_id += 2;
        self.anonymous_id
    }

    /// The backing of a mapping in trace terms. In a trace all mappings of an object start at the object's first page,
    /// so a mapping with another offset counts as another object.
    pub fn backing(&mut self, kind: Kind) -> Backing {
        match kind {
            Kind::Anonymous => Backing::Anonymous,
            Kind::Heap => Backing::Heap,
            Kind::Shared(object, offset) => {
                let next = self.objects.len() as u32;
                Backing::Shared(*self.objects.entry((object, offset)).or_insert(next))
            }
            // Files count as cached: after an earlier run they are in the page cache.
            Kind::File(file) => {
                let next = self.files.len() as u32;
                Backing::File { file: *self.files.entry(file).or_insert(next), cached: true }
            }
        }
    }
}
