//! What mappings must be like: for tests, and once at the end of a run in debug builds.

use std::collections::BTreeMap;

use trace::{Backing, Page, Pages};

use super::Spaces;
use super::region::ZEROS;

impl Spaces {
    /// Mappings are neither empty nor overlapping, lie in regions of their process, and shared objects know
    /// where they are mapped.
    pub(crate) fn verify_mappings(&self) -> Result<(), String> {
        for (number, process) in &self.processes {
            let mut end = 0;
            for (&first, mapping) in &process.mappings {
                let name = format!("mapping {first}..{} of process {number}", mapping.end);
                if first < end || mapping.end <= first {
                    return Err(format!("{name} is empty or overlaps another"));
                }
                end = mapping.end;
                for region in (Pages { first: Page(first), count: end - first }).regions() {
                    let owner = self.regions.get(region).map(|at| at.process);
                    if owner != Some(*number) {
                        return Err(format!("{name}: {region:?} is of {owner:?}"));
                    }
                }
                let origin = mapping.origin;
                let known = |places: &Vec<u32>| places.contains(&origin);
                if let Backing::Shared(object) = mapping.backing
                    && !self.objects.get(&object).is_some_and(known)
                {
                    return Err(format!("{name}: object {object} does not know it"));
                }
            }
        }
        Ok(())
    }

    /// What is counted: of each process, and of the program, for which so many pages should be swapped out.
    pub(crate) fn verify_counts(&self, swapped: u64) -> Result<(), String> {
        let (mut resident, mut superpages, mut parts) = (0, 0, 0);
        let mut zeros = (0, 0);
        let mut by_process = BTreeMap::<u32, u64>::new();
        for (region, at) in self.regions() {
            if at.process >= self.first_process {
                resident += u64::from(at.resident);
            }
            if self.is_large(region) {
                superpages += u64::from(self.is_ours(at.process));
                parts += u64::from(self.is_ours(at.process) && self.is_part(region));
                if at.has(ZEROS) && self.is_ours(at.process) {
                    *(if self.is_part(region) { &mut zeros.1 } else { &mut zeros.0 }) += 1;
                }
                *by_process.entry(at.process).or_default() += 1;
            }
        }
        let kept = (self.resident, self.superpages, self.parts, self.swapped);
        if self.zeros != zeros {
            return Err(format!("{zeros:?} regions of zeros; kept {:?}", self.zeros));
        }
        if kept != (resident, superpages, parts, swapped) {
            return Err(format!(
                "{resident} resident, {superpages} superpages, {parts} of them parts, {swapped} swapped; kept {kept:?}"
            ));
        }
        for (number, process) in &self.processes {
            let counted = by_process.remove(number).unwrap_or(0);
            if process.superpages != counted {
                let kept = process.superpages;
                return Err(format!("process {number} has {counted} superpages, kept {kept}"));
            }
        }
        match by_process.into_keys().next() {
            Some(number) => Err(format!("process {number} is gone and has a superpage mapped")),
            None => Ok(()),
        }
    }
}
