//! Measures accesses to memory that is far larger than the caches, on base pages and superpages. Saved machine files
//! contain these costs, because simulated programs access memory of that size. See docs/decisions/tlb.md#9.

use experiment::prices::FarAccesses;
use host::Snapshot;
use tlb_probe::{Accesses, OnPages};
use units::ByteSize;

use crate::progress::Progress;
use operations::facts;

/// Maximum memory per page size; larger footprints are rare in programs.
const MOST: ByteSize = ByteSize::gib(1);
/// Minimum memory: no known cache holds half of it.
pub const LEAST: ByteSize = ByteSize::mib(256);

/// Smaller sizes that are measured too: programs are often smaller, and their page tables stay in the caches.
const NEARER: [ByteSize; 3] = [ByteSize::mib(32), ByteSize::mib(64), ByteSize::mib(256)];

/// Measures the costs over sizes of memory, ascending. If one fails, larger ones are not tried; also returns why.
pub fn measure(snapshot: &Snapshot, quiet: bool) -> (Vec<Accesses>, Option<String>) {
    let mut all = Vec::new();
    let failed = add_sizes(&mut all, snapshot, quiet).err();
    (all, failed)
}

fn add_sizes(all: &mut Vec<Accesses>, snapshot: &Snapshot, quiet: bool) -> Result<(), String> {
    let memory = facts::measurement_memory(MOST);
    if memory < LEAST {
        let needed = ByteSize(facts::MEMORY_DIVISOR * LEAST.bytes());
        return Err(format!("{needed} of available memory are needed"));
    }
    let nearer = NEARER.into_iter().filter(|size| *size < memory);
    for memory in nearer.chain([memory]) {
        all.push(over(memory, snapshot, quiet)?);
    }
    Ok(())
}

fn over(memory: ByteSize, snapshot: &Snapshot, quiet: bool) -> Result<Accesses, String> {
    let what = "accesses far beyond the caches";
    let mut progress = Progress::new(quiet, what);
    let far = FarAccesses::measure(memory, facts::superpage(snapshot), |done, of| {
        progress.tell(done as u64, Some(of as u64), || what.to_string());
        true
    });
    progress.clear();
    let far = far.map_err(|error| error.to_string())?;
    let on = |[base_ns, superpage_ns]: [f64; 2]| OnPages { base_ns, superpage_ns };
    let (dependent, independent) = (on(far.dependent), on(far.independent));
    Ok(Accesses { bytes: far.memory.bytes(), dependent, independent })
}
