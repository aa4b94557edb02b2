//! Which hardware events tell what translation costs, by processor: their names, their encodings
//! and what they mean. Data only; [`crate::interpret`] reads meanings, [`crate::live`] encodings.
//!
//! Names and encodings are those of the manufacturers' lists as Linux carries them in
//! `tools/perf/pmu-events/arch` (manual), so that counts can be compared with `perf stat`.

mod amd;
mod arm;
mod generic;
mod intel;
mod name;

pub use name::{modifiers, normal};

use host::Cpu;

/// One event of one kind of processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name in lower case, as `perf list` prints it.
    pub name: &'static str,
    /// The event's number.
    pub select: u64,
    /// The unit mask; 0 where the processor has none.
    pub umask: u64,
    /// Counts cycles in which at least this many happened; 0 counts what happened.
    pub cmask: u64,
    /// What it says.
    pub says: Says,
}

/// What an event says of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Says {
    /// On whose behalf.
    pub side: Side,
    /// What of.
    pub meaning: Meaning,
}

/// On whose behalf an address was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Loads and stores, which this processor does not tell apart.
    Data,
    /// Instruction fetches.
    Fetch,
    /// The host's tables, walked for any of them.
    Nested,
}

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Cycles in which a walk was under way.
    Active,
    /// Walks under way, added up over cycles: two at once count twice.
    Outstanding,
    /// Walks: accesses that missed every level.
    Walks,
    /// Accesses that missed the first level and hit the second.
    SecondLevelHits,
    /// Accesses that missed the first level, whatever came then.
    FirstLevelMisses,
    /// Cycles in which nothing was issued because of the TLB: a lower bound of what it costs.
    Stalled,
    /// Walks for pages of one size; their sum is all walks, where those were not counted as such.
    WalksOfOneSize,
    /// Second-level hits for pages of one size.
    HitsOfOneSize,
    /// Shown beside the others, part of no sum.
    Beside,
}

/// The events of one kind of processor.
#[derive(Debug)]
pub struct Table {
    /// The processor's architecture.
    pub name: &'static str,
    /// Page walkers, where an event adds up what they do at once.
    pub walkers: u32,
    /// Events that are counted together, with the cycles, so that shares are of one interval. The
    /// first group is what the share is made of.
    pub groups: &'static [&'static [Event]],
    /// A trap of this processor's events that a reader must know.
    pub note: Option<&'static str>,
}

/// Every table there is.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    intel::TABLES.iter().chain(amd::TABLES).chain(std::iter::once(&arm::ARM_V8))
}

/// The table of this processor, if it is known.
pub fn table_of(cpu: &Cpu) -> Option<&'static Table> {
    table(cpu.vendor.as_deref()?, cpu.family, cpu.number)
}

/// The table of a processor by what cpuinfo, or a file's header, says of it.
pub fn table(vendor: &str, family: Option<u32>, number: Option<u32>) -> Option<&'static Table> {
    match vendor {
        "GenuineIntel" if family == Some(6) => intel::table(number?),
        "AuthenticAMD" | "HygonGenuine" => amd::table(family?, number?),
        // Arm's architects' codes are `0x41` and so on; the common events are architectural.
        code if code.starts_with("0x") => Some(&arm::ARM_V8),
        _ => None,
    }
}

/// What an event of this (normal) name says, in `table` if it is known whose it is, else in any
/// table or by the kernel's own name for it.
pub fn says(normal_name: &str, table: Option<&Table>) -> Option<Says> {
    let event_of = |table: &'static Table| table.groups.iter().copied().flatten();
    let own = table.map(|table| table.groups.iter().copied().flatten());
    let own = own.and_then(|mut events| events.find(|event| event.name == normal_name));
    let any = || tables().flat_map(event_of).find(|event| event.name == normal_name);
    own.or_else(any).map(|event| event.says).or_else(|| generic::says(normal_name))
}

/// For the tables: an event without a counter mask.
const fn event(name: &'static str, select: u64, umask: u64, side: Side, meaning: Meaning) -> Event {
    Event { name, select, umask, cmask: 0, says: Says { side, meaning } }
}

/// For the tables: cycles in which an event that counts walks under way counted any.
const fn active(name: &'static str, select: u64, umask: u64, side: Side) -> Event {
    Event { name, select, umask, cmask: 1, says: Says { side, meaning: Meaning::Active } }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn processors_find_their_tables() {
        for (vendor, family, number, name) in [
            ("GenuineIntel", Some(6), 0x2d, Some("Sandy Bridge")),
            ("GenuineIntel", Some(6), 0x3e, Some("Ivy Bridge")),
            ("GenuineIntel", Some(6), 0x3f, Some("Haswell")),
            ("GenuineIntel", Some(6), 0x4f, Some("Broadwell")),
            ("GenuineIntel", Some(6), 0x55, Some("Skylake")),
            ("GenuineIntel", Some(6), 0x6a, Some("Ice Lake")),
            ("GenuineIntel", Some(6), 0x8f, Some("Golden Cove")),
            ("GenuineIntel", Some(6), 0x1c, None),
            ("GenuineIntel", Some(15), 0x55, None),
            ("AuthenticAMD", Some(0x17), 0x01, Some("Zen 1")),
            ("AuthenticAMD", Some(0x17), 0x31, Some("Zen 2")),
            ("AuthenticAMD", Some(0x19), 0x11, Some("Zen 3 to 5")),
            ("AuthenticAMD", Some(0x1a), 0x02, Some("Zen 3 to 5")),
            ("AuthenticAMD", Some(0x10), 0x02, None),
            ("0x41", None, 0xd0c, Some("Armv8")),
            ("RiscVCore", None, 0, None),
        ] {
            let found = table(vendor, family, Some(number)).map(|table| table.name);
            assert_eq!(found, name, "{vendor} {family:?} {number:#x}");
        }
    }

    /// A name means one thing on all processors, unless a table is given: files name no processor.
    #[test]
    fn a_name_means_one_thing_but_for_broadwells_two_walkers() {
        let mut meanings: HashMap<&str, Says> = HashMap::new();
        for table in tables().filter(|table| table.name != "Broadwell") {
            for event in table.groups.iter().copied().flatten() {
                let before = *meanings.entry(event.name).or_insert(event.says);
                assert_eq!(before, event.says, "{} of {}", event.name, table.name);
            }
        }
    }

    /// Raw configurations put together from the manufacturers' lists: event, unit mask and counter
    /// mask from bits 0, 8 and 24 on.
    #[test]
    fn encodings_are_those_of_the_manuals() {
        for (table, name, config) in [
            ("Sandy Bridge", "dtlb_load_misses.walk_duration", 0x0408),
            ("Sandy Bridge", "itlb_misses.stlb_hit", 0x1085),
            ("Ivy Bridge", "dtlb_load_misses.walk_duration", 0x8408),
            ("Ivy Bridge", "dtlb_load_misses.stlb_hit", 0x045f),
            ("Haswell", "dtlb_store_misses.walk_completed", 0x0e49),
            ("Broadwell", "itlb_misses.walk_duration", 0x1085),
            ("Skylake", "dtlb_load_misses.walk_active", 0x0100_1008),
            ("Skylake", "dtlb_load_misses.walk_pending", 0x1008),
            ("Skylake", "ept.walk_pending", 0x104f),
            ("Ice Lake", "dtlb_store_misses.stlb_hit", 0x2049),
            ("Golden Cove", "dtlb_store_misses.walk_active", 0x0100_1013),
            ("Golden Cove", "itlb_misses.walk_completed", 0x0e11),
            ("Zen 1", "bp_l1_tlb_miss_l2_miss", 0x85),
            ("Zen 2", "bp_l1_tlb_miss_l2_tlb_miss", 0x0785),
            ("Zen 3 to 5", "ls_l1_d_tlb_miss.all_l2_miss", 0xf045),
            ("Zen 3 to 5", "bp_l1_tlb_miss_l2_tlb_miss.all", 0x0f85),
            ("Armv8", "dtlb_walk", 0x34),
        ] {
            let found = tables().find(|one| one.name == table).unwrap();
            let mut events = found.groups.iter().copied().flatten();
            let event = events.find(|event| event.name == name).unwrap();
            let encoded = event.select | event.umask << 8 | event.cmask << 24;
            assert_eq!(encoded, config, "{name} of {table}");
        }
    }

    #[test]
    fn groups_leave_a_counter_for_the_cycles() {
        for table in tables() {
            for group in table.groups {
                // Four programmable counters with SMT on Intel, where cycles have their own; six
                // on Zen and Neoverse (manual).
                assert!(!group.is_empty() && group.len() <= 4, "{}", table.name);
                let names: Vec<&str> = group.iter().map(|event| event.name).collect();
                assert!(names.iter().all(|name| normal(name) == **name), "{names:?}");
            }
            let first = table.groups[0].iter().map(|event| event.says.side);
            assert!(first.clone().any(|side| side == Side::Fetch), "{}", table.name);
            assert!(first.clone().any(|side| side != Side::Fetch), "{}", table.name);
        }
    }
}
