//! How long a core takes for a window of accesses, with given latencies.
//!
//! An out-of-order core in outline: accesses start when their addresses are known, as far ahead of the oldest
//! unfinished instruction as the reorder buffer reaches, and no faster one after the other than the memory system takes
//! independent accesses; instructions retire in order. A mispredicted branch holds back what follows until the access
//! that decides it has its data. (Karkhanis and Smith, ISCA 2004, call this the interval model.) See docs/decisions/advise.md#2.

use crate::code::Kind;

/// Instructions of the reorder buffer where the processor is not known.
const ANY: u32 = 256;

/// Number of instructions in flight in this processor: the size of its reorder buffer. (The makers' optimization
/// manuals.)
pub fn in_flight() -> u32 {
    let cpuid = raw_cpuid::CpuId::new();
    let (Some(vendor), Some(features)) = (cpuid.get_vendor_info(), cpuid.get_feature_info()) else {
        return ANY;
    };
    match (vendor.as_str(), features.family_id(), features.model_id()) {
        // Zen and Zen 2, Zen 3 and 4, Zen 5.
        ("AuthenticAMD", 0x17, 0x00..=0x2f) => 192,
        ("AuthenticAMD", 0x17, _) => 224,
        ("AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0xaf) => 320,
        ("AuthenticAMD", 0x19, _) => 256,
        ("AuthenticAMD", 0x1a, _) => 448,
        // Skylake to Cascade Lake, Ice Lake and its successors, Golden Cove and its.
        ("GenuineIntel", 6, 0x4e | 0x55 | 0x5e | 0x8e | 0x9e) => 224,
        ("GenuineIntel", 6, 0x6a | 0x6c | 0x7d | 0x7e | 0x8c | 0x8d) => 352,
        ("GenuineIntel", 6, 0x8f | 0x97 | 0x9a | 0xb7 | 0xba | 0xcf | 0xad) => 512,
        _ => ANY,
    }
}

/// Stores that wait for their lines before retirement stops.
const STORES: usize = 56;
/// Nanoseconds of an instruction besides waits: 3.5 a cycle at 3.2 GHz, as loops over memory reach (fitted to a sum over
/// an array: docs/decisions/advise.md#4).
const INSTRUCTION: f64 = 0.09;
/// Nanoseconds that a mispredicted branch costs besides its wait: 16 cycles.
const FLUSH: f64 = 5.0;

/// An access as the core sees it. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// What it does.
    pub kind: Kind,
    /// Number of instructions before it.
    pub after: u32,
    /// Index of the access that its address depends on.
    pub from: Option<u32>,
    /// Index of the access that the last branch before it depends on, and the chance that the branch is mispredicted.
    pub branch: Option<(u32, f64)>,
    /// Time from its start to its data.
    pub latency: f64,
    /// Time for which it occupies the memory system.
    pub spacing: f64,
}

/// The time from the access before to each access's retirement, in nanoseconds, and that of the whole window, on a core with
/// `in_flight` instructions in its reorder buffer.
pub fn waits(accesses: &[Timed], in_flight: u32) -> (Vec<f64>, f64) {
    let mut waits = Vec::with_capacity(accesses.len());
    let mut done: Vec<f64> = Vec::with_capacity(accesses.len());
    let mut retired: Vec<f64> = Vec::with_capacity(accesses.len());
    let mut drained: Vec<f64> = Vec::new();
    let (mut free, mut begin, mut last_branch) = (0.0f64, 0.0f64, None);
    let (mut time, mut instructions) = (0.0f64, 0);
    let mut tail = 0;
    for access in accesses {
        let passed = access.after.saturating_sub(instructions);
        instructions = access.after;
        let before = time;
        time += f64::from(passed) * INSTRUCTION;
        // The oldest access that must have retired before this one enters the reorder buffer.
        while tail < retired.len() && accesses[tail].after + in_flight <= access.after {
            begin = begin.max(retired[tail]);
            tail += 1;
        }
        let mut start = begin;
        if let Some(at) = access.from.and_then(|from| done.get(from as usize)) {
            start = start.max(*at);
        }
        // Each mispredicted branch holds back all later accesses; in the mean, by its chance.
        if let Some((on, chance)) = access.branch
            && last_branch != Some((on, access.after))
            && let Some(at) = done.get(on as usize)
        {
            let late = *at + FLUSH;
            if late > start {
                start += (late - start) * chance;
                begin = begin.max(start);
            }
            last_branch = Some((on, access.after));
        }
        let start = start.max(free);
        free = free.max(start) + access.spacing;
        let finished = start + access.latency;
        if access.kind == Kind::Store {
            // A store retires without its line, and waits in the store buffer.
            let at = drained.last().copied().unwrap_or(0.0f64).max(time) + access.spacing;
            if let Some(place) = drained.len().checked_sub(STORES) {
                time = time.max(drained[place]);
            }
            drained.push(at);
            done.push(time);
        } else {
            time = time.max(finished);
            done.push(finished);
        }
        retired.push(time);
        waits.push(time - before);
    }
    (waits, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(count: u32, every: u32, chained: bool, latency: f64) -> Vec<Timed> {
        (0..count)
            .map(|at| Timed {
                kind: Kind::Load,
                after: at * every,
                from: (chained && at > 0).then(|| at - 1),
                branch: None,
                latency,
                spacing: 5.0,
            })
            .collect()
    }

    #[test]
    fn a_chase_takes_every_latency_and_independent_loads_overlap() {
        let (waits_of, time) = waits(&loads(100, 4, true, 200.0), 224);
        assert!((time / (100.0 * 200.0) - 1.0).abs() < 0.01, "{time}");
        assert_eq!(waits_of.len(), 100);
        let (_, time) = waits(&loads(1000, 4, false, 200.0), 224);
        // 56 loads fit into the reorder buffer, so the memory system's rate decides: 5 ns each.
        assert!((time / (1000.0 * 5.0) - 1.0).abs() < 0.2, "{time}");
        // Loads further apart than the reorder buffer do not overlap.
        let (_, time) = waits(&loads(100, 300, false, 200.0), 224);
        assert!(time >= 100.0 * 199.0, "{time}");
    }

    #[test]
    fn an_unpredictable_branch_makes_loads_wait_for_each_other() {
        let chance = |chance: f64| {
            let mut all = loads(200, 6, false, 200.0);
            for at in 1..200u32 {
                all[at as usize].branch = Some((at - 1, chance));
            }
            waits(&all, 224).1
        };
        assert!(chance(1.0) > 200.0 * 200.0);
        assert!(chance(0.0) < 200.0 * 20.0);
        let half = chance(0.5);
        assert!(half > 1.5 * chance(0.0) && half < chance(1.0), "{half}");
    }

    #[test]
    fn stores_wait_only_when_the_store_buffer_is_full() {
        let stores = |count: u32| {
            let mut all = loads(count, 4, false, 200.0);
            all.iter_mut().for_each(|one| (one.kind, one.spacing) = (Kind::Store, 50.0));
            waits(&all, 224).1
        };
        assert!(stores(50) < 50.0, "{}", stores(50));
        assert!(stores(1000) > 900.0 * 49.0, "{}", stores(1000));
    }
}
