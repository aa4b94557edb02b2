//! Address spaces of the recorded processes, reconstructed from mmap records.

use std::collections::{BTreeMap, HashMap};

/// Maximum number of mappings in total, a limit for hostile files.
const MAX_MAPPINGS: usize = 1 << 20;

/// Names of mappings by process and address, after the last record processed.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    of_process: HashMap<i32, BTreeMap<u64, Mapping>>,
    mappings: usize,
}

#[derive(Clone, Debug)]
struct Mapping {
    end: u64,
    name: String,
}

/// The kernel's mappings are recorded as pid -1 and apply to all processes.
const KERNEL: i32 = -1;

impl Spaces {
    /// Maps `start..start+length` and cuts older mappings, as mmap(2) does.
    pub fn map(&mut self, pid: i32, start: u64, length: u64, name: &str) {
        let Some(end) = start.checked_add(length).filter(|end| *end > start) else { return };
        if self.mappings >= MAX_MAPPINGS {
            return;
        }
        let space = self.of_process.entry(pid).or_default();
        let before = space.len();
        let covered: Vec<u64> =
            space.range(..end).rev().take_while(|(_, m)| m.end > start).map(|(s, _)| *s).collect();
        for old_start in covered {
            let Some(old) = space.remove(&old_start) else { continue };
            if old.end > end {
                space.insert(end, old.clone());
            }
            if old_start < start {
                space.insert(old_start, Mapping { end: start, name: old.name });
            }
        }
        space.insert(start, Mapping { end, name: name.to_string() });
        self.mappings = (self.mappings + space.len()).saturating_sub(before);
    }

    /// Copies the parent's mappings to a child process. A new thread changes nothing.
    pub fn fork(&mut self, child: i32, parent: i32) {
        if child == parent || self.of_process.contains_key(&child) {
            return;
        }
        let Some(space) = self.of_process.get(&parent).cloned() else { return };
        if self.mappings + space.len() <= MAX_MAPPINGS {
            self.mappings += space.len();
            self.of_process.insert(child, space);
        }
    }

    /// Removes all mappings of a process, as exec does.
    pub fn exec(&mut self, pid: i32) {
        if let Some(space) = self.of_process.remove(&pid) {
            self.mappings -= space.len();
        }
    }

    /// Name of the mapping that contains an address.
    pub fn name(&self, pid: i32, address: u64) -> Option<&str> {
        [pid, KERNEL].iter().find_map(|pid| {
            let (_, mapping) = self.of_process.get(pid)?.range(..=address).next_back()?;
            (address < mapping.end).then_some(mapping.name.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn later_mappings_cut_earlier_ones() {
        let mut spaces = Spaces::default();
        spaces.map(1, 100, 100, "old");
        spaces.map(1, 120, 10, "new");
        let at = |address| spaces.name(1, address);
        assert_eq!(
            [99, 100, 119, 120, 129, 130, 199, 200].map(at),
            [
                None,
                Some("old"),
                Some("old"),
                Some("new"),
                Some("new"),
                Some("old"),
                Some("old"),
                None
            ]
        );
        spaces.fork(2, 1);
        spaces.exec(1);
        assert_eq!((spaces.name(1, 120), spaces.name(2, 120)), (None, Some("new")));
    }

    proptest! {
        /// Reference model: an array with one name per address.
        #[test]
        fn it_is_what_one_name_an_address_would_be(
            maps in prop::collection::vec((0u64..60, 0u64..30, 0u8..5), 0..30),
        ) {
            let mut spaces = Spaces::default();
            let mut slow: Vec<Option<String>> = vec![None; 100];
            for (start, length, name) in maps {
                let name = name.to_string();
                spaces.map(7, start, length, &name);
                for address in start..start + length {
                    slow[address as usize] = Some(name.clone());
                }
            }
            for (address, name) in slow.iter().enumerate() {
                prop_assert_eq!(spaces.name(7, address as u64), name.as_deref());
            }
            let held: usize = spaces.of_process.values().map(BTreeMap::len).sum();
            prop_assert_eq!(held, spaces.mappings);
        }
    }
}
