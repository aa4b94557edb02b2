//! Tables of PMU events about address translation, by CPU: names, encodings and meanings. [`crate::interpret`] uses the
//! meanings, [`crate::live`] the encodings.
//!
//! Names and encodings are those of the vendors' event lists as Linux carries them in `tools/perf/pmu-events/arch`
//! (manual), so that counts can be compared with `perf stat`.

mod amd;
mod arm;
mod generic;
mod intel;
mod name;

pub use name::{modifiers, normal};

use host::Cpu;

/// One PMU event of one microarchitecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name in lower case, as `perf list` prints it.
    pub name: &'static str,
    /// Event select code.
    pub select: u64,
    /// Unit mask; 0 if the architecture has none.
    pub umask: u64,
    /// Counter mask. If nonzero, counts cycles with at least this many occurrences; 0 counts
    /// occurrences.
    pub cmask: u64,
    /// Its meaning.
    pub meaning: EventMeaning,
}

/// The meaning of an event for address translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMeaning {
    /// Kind of access.
    pub side: Side,
    /// The quantity counted.
    pub meaning: Meaning,
}

/// Kind of access that needed a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Loads and stores together, on CPUs that do not separate them.
    Data,
    /// Instruction fetches.
    Fetch,
    /// Walks of the host's page tables (nested paging), for any access.
    Nested,
}

/// The quantity that an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Number of cycles with at least one walk in progress.
    Active,
    /// Number of walks in progress, summed over cycles: a cycle with two walks counts twice.
    Outstanding,
    /// Page walks: accesses that missed all TLB levels.
    Walks,
    /// First-level misses that hit in the second level.
    SecondLevelHits,
    /// First-level misses, whether or not they hit in the second level.
    FirstLevelMisses,
    /// The kernel's generic events: walks on Intel, first-level misses on AMD and Arm.
    GenericMisses,
    /// Cycles in which the TLB stalled the issue of instructions: a lower bound of the cost.
    Stalled,
    /// Walks for pages of one size, which are added up if no event counts all walks.
    WalksOfOneSize,
    /// Second-level hits for pages of one size.
    HitsOfOneSize,
    /// A count that is printed but not part of any sum.
    PrintedOnly,
}

/// The events of one microarchitecture.
#[derive(Debug)]
pub struct Table {
    /// Name of the microarchitecture.
    pub name: &'static str,
    /// Number of page walkers whose walks [`Meaning::Outstanding`] adds up.
    pub walkers: u32,
    /// Groups of events. The events of a group are counted together with cycles, so that their shares cover the same
    /// time. The first group determines the share.
    pub groups: &'static [&'static [Event]],
    /// A known flaw of the events that the reader must know.
    pub note: Option<&'static str>,
}

/// All tables.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    intel::TABLES.iter().chain(amd::TABLES).chain(std::iter::once(&arm::ARM_V8))
}

/// Returns the table for this CPU, if known.
pub fn table_of(cpu: &Cpu) -> Option<&'static Table> {
    table(cpu.vendor.as_deref()?, cpu.family, cpu.number)
}

/// Returns the table for a CPU by the ids in cpuinfo or in a file's header.
pub fn table(vendor: &str, family: Option<u32>, number: Option<u32>) -> Option<&'static Table> {
    match vendor {
        "GenuineIntel" if family == Some(6) => intel::table(number?),
        "AuthenticAMD" | "HygonGenuine" => amd::table(family?, number?),
        // Arm's implementer codes are `0x41` and so on; the common events are architectural.
        code if code.starts_with("0x") => Some(&arm::ARM_V8),
        _ => None,
    }
}

/// Returns the meaning of the event with this normalized name. Looks in `table` if the CPU is known, otherwise in all
/// tables and the generic events.
pub fn meaning_of(normal_name: &str, table: Option<&Table>) -> Option<EventMeaning> {
    let event_of = |table: &'static Table| table.groups.iter().copied().flatten();
    let own = table.map(|table| table.groups.iter().copied().flatten());
    let own = own.and_then(|mut events| events.find(|event| event.name == normal_name));
    let any = || tables().flat_map(event_of).find(|event| event.name == normal_name);
    own.or_else(any).map(|event| event.meaning).or_else(|| generic::meaning_of(normal_name))
}

/// Makes an event without a counter mask.
const fn event(name: &'static str, select: u64, umask: u64, side: Side, meaning: Meaning) -> Event {
    Event { name, select, umask, cmask: 0, meaning: EventMeaning { side, meaning } }
}

/// Makes an event that counts the cycles with at least one walk in progress.
const fn active(name: &'static str, select: u64, umask: u64, side: Side) -> Event {
    Event {
        name,
        select,
        umask,
        cmask: 1,
        meaning: EventMeaning { side, meaning: Meaning::Active },
    }
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

    /// Without a table, a name must mean the same on all CPUs, because files do not always name the
    /// CPU.
    #[test]
    fn a_name_means_one_thing_but_for_broadwells_two_walkers() {
        let mut meanings: HashMap<&str, EventMeaning> = HashMap::new();
        for table in tables().filter(|table| table.name != "Broadwell") {
            for event in table.groups.iter().copied().flatten() {
                let before = *meanings.entry(event.name).or_insert(event.meaning);
                assert_eq!(before, event.meaning, "{} of {}", event.name, table.name);
            }
        }
    }

    /// Raw encodings composed from the vendors' lists: event select, unit mask and counter mask from bits 0, 8 and 24
    /// on.
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
                // Intel has four programmable counters with SMT, besides a fixed one for cycles; Zen and Neoverse have
                // six (manual).
                assert!(!group.is_empty() && group.len() <= 4, "{}", table.name);
                let names: Vec<&str> = group.iter().map(|event| event.name).collect();
                assert!(names.iter().all(|name| normal(name) == **name), "{names:?}");
            }
            let first = table.groups[0].iter().map(|event| event.meaning.side);
            assert!(first.clone().any(|side| side == Side::Fetch), "{}", table.name);
            assert!(first.clone().any(|side| side != Side::Fetch), "{}", table.name);
        }
    }
}
