//! The pool's invariants, counted by definition.

use std::collections::BTreeMap;

use crate::memory::Frame;

use super::HugetlbPool;
use super::mapping::Backing;

impl HugetlbPool {
    /// All pages of the pool: the free ones, then those in use.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> + '_ {
        let free = self.store.nodes.iter().flat_map(|node| node.free.iter().copied());
        let used = self.pages.all.iter().filter(|page| page.users > 0).map(|page| page.frame);
        free.chain(used)
    }

    /// Compares everything that is kept twice. Slow; for tests and for debug builds at coarse points.
    ///
    /// # Errors
    /// What is wrong with the pool.
    pub fn verify(&self) -> Result<(), String> {
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        let mut promised = 0;
        for mapping in self.mappings.values() {
            let Backing::Private(private) = &mapping.kind else { continue };
            for &number in private.pages.iter().filter(|&&number| number != 0) {
                *users.entry(number).or_default() += 1;
            }
            if let Some(used) = &private.used {
                let live = mapping.live.within(0, mapping.length).flat_map(|(from, to)| from..to);
                promised += live.filter(|&index| !used.contains(index)).count() as u64;
            }
        }
        for object in self.objects.values() {
            let entries = object.reserved.within(0, u32::MAX).flat_map(|(from, to)| from..to);
            promised += entries.filter(|index| !object.pages.contains_key(index)).count() as u64;
            for (index, &number) in &object.pages {
                *users.entry(number).or_default() += 1;
                if !object.reserved.contains(*index) {
                    return Err(format!("page {index} of an object has no entry in its map"));
                }
            }
        }
        let counts = self.counts();
        if promised != counts.reserved {
            return Err(format!("{promised} promised, kept {}", counts.reserved));
        }
        if counts.free < counts.reserved {
            return Err(format!("{} free, but {} promised", counts.free, counts.reserved));
        }
        if counts.total != counts.free + users.len() as u64 {
            let used = users.len();
            return Err(format!("{} in all, {} free, {used} used", counts.total, counts.free));
        }
        for (&number, &count) in &users {
            let kept = self.pages.all[number as usize - 1].users;
            if kept != count {
                return Err(format!("page {number} has {count} users, kept {kept}"));
            }
        }
        for (at, node) in self.store.nodes.iter().enumerate() {
            let here =
                |&&number: &&u32| usize::from(self.pages.all[number as usize - 1].node) == at;
            let used = users.keys().filter(here).count() as u64;
            if node.total != node.free.len() as u64 + used || node.surplus > node.total {
                return Err(format!("node {at}: {node:?}, {used} used"));
            }
        }
        Ok(())
    }
}
