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
    /// Object number for each pair of an object and the page of the object at which a mapping begins. The map is never
    /// iterated, so its order does not matter.
    objects: HashMap<(u64, u64), u32>,
    files: HashMap<u64, u32>,
    anonymous_id: u64,
}

impl SharedState {
    /// Makes the state at the beginning of a recording.
    pub fn new() -> Self {
        let (objects, files) = (HashMap::new(), HashMap::new());
        Self { numbers: Numbers::all(), objects, files, anonymous_id: 0 }
    }

    /// Returns a new identity for anonymous shared memory. It is even; identities of files are odd.
    pub fn anonymous_id(&mut self) -> u64 {
        self.anonymous_id += 2;
        self.anonymous_id
    }

    /// Returns the backing of a mapping as the trace describes it. In a trace all mappings of an object start at the
    /// object's first page, so a mapping with another offset counts as another object.
    pub fn backing(&mut self, kind: Kind) -> Backing {
        match kind {
            Kind::Anonymous => Backing::Anonymous,
            Kind::Heap => Backing::Heap,
            Kind::Shared(object, offset) => {
                let next = self.objects.len() as u32;
                Backing::Shared(*self.objects.entry((object, offset)).or_insert(next))
            }
            // Treat files as cached, because after an earlier run they are in the page cache.
            Kind::File(file) => {
                let next = self.files.len() as u32;
                Backing::File { file: *self.files.entry(file).or_insert(next), cached: true }
            }
        }
    }
}
