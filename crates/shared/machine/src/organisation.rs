//! Organisation of a page table, which determines what a walk reads. See docs/decisions/lab-model.md#11.

use crate::Footprint;
use crate::walk::LINE;

/// Organisation of a machine's page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Organisation {
    /// A radix tree; adjacent pages have adjacent entries (x86, Arm).
    #[default]
    Radix,
    /// A hash table; the entries of adjacent pages are spread (PowerPC, Itanium's long format).
    Hashed(Hashed),
    /// A linear table in virtual memory: a walk reads one entry, whose virtual address must itself be translated
    /// (Itanium's short format).
    Linear {
        /// Cycles, besides its loads, of the handler that walks the tree if the translation of the virtual address
        /// misses the TLB.
        handler_cycles: u16,
    },
}

/// A hashed page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed {
    /// Bytes of a group. One look-up reads one group.
    pub group: u16,
    /// Bytes of an entry.
    pub entry: u16,
    /// The table takes 1/`part` of memory, rounded down to a power of two.
    pub part: u16,
    /// Cycles of the software handler that finds an entry whose group was full; `None`: the CPU reads a second group
    /// itself.
    pub handler_cycles: Option<u16>,
}

/// Minimum number of groups: PowerPC's 2^11 (docs/sources/machines.md 1).
const MIN_GROUPS: u64 = 1 << 11;

impl Hashed {
    /// Number of groups in the table, for this many bytes of memory.
    pub fn groups(self, memory: u64) -> u64 {
        let groups = memory / u64::from(self.part) / u64::from(self.group);
        (1 << groups.max(1).ilog2()).max(MIN_GROUPS)
    }

    /// Number of bytes in cache lines that contain a used entry, if the hash spreads entries
    /// evenly.
    pub fn bytes_in_use(self, footprint: Footprint) -> u64 {
        let line = u64::from(self.group).max(LINE);
        let lines = (self.groups(footprint.memory) * u64::from(self.group) / line) as f64;
        let used = lines * -(-(footprint.entries as f64) / lines).exp_m1();
        used.ceil() as u64 * line
    }

    /// Share of the entries that do not fit in their group. The number of entries per group is Poisson distributed.
    pub fn overflow(self, footprint: Footprint) -> f64 {
        let mean = footprint.entries as f64 / self.groups(footprint.memory) as f64;
        if mean == 0.0 {
            return 0.0;
        }
        let places = self.group / self.entry;
        let mut chance = (-mean).exp();
        let mut placed = 0.0;
        let mut fewer = 0.0;
        for number in 0..places {
            placed += f64::from(number) * chance;
            fewer += chance;
            chance *= mean / f64::from(number + 1);
        }
        placed += f64::from(places) * (1.0 - fewer);
        (1.0 - placed / mean).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTEG: Hashed = Hashed { group: 128, entry: 16, part: 64, handler_cycles: None };

    fn with(entries: u64, memory: u64) -> Footprint {
        Footprint { entries, memory, ..Footprint::default() }
    }

    #[test]
    fn eight_gigabytes_have_a_table_of_128_megabytes() {
        assert_eq!(PTEG.groups(8 << 30), 1 << 20);
        assert_eq!(PTEG.groups(10 << 30), 1 << 20);
        assert_eq!(PTEG.groups(0), MIN_GROUPS);
    }

    /// 2^18 entries hashed into 2^20 groups: each group stays empty with probability e^-0.25.
    #[test]
    fn hardly_two_pages_share_a_line() {
        let bytes = PTEG.bytes_in_use(with(1 << 18, 8 << 30));
        let expected = (1.0 - (-0.25f64).exp()) * f64::from(1 << 20) * 128.0;
        assert!((bytes as f64 / expected - 1.0).abs() < 1e-5, "{bytes}, {expected}");
        assert_eq!(PTEG.bytes_in_use(with(1, 8 << 30)), 128);
    }

    #[test]
    fn what_finds_its_group_full() {
        assert_eq!(PTEG.overflow(with(0, 8 << 30)), 0.0);
        assert!(PTEG.overflow(with(1 << 18, 8 << 30)) < 1e-9);
        // One entry per group, as many entries as groups: 1/e of the groups are empty.
        let single = Hashed { group: 32, entry: 32, ..PTEG };
        let footprint = with(single.groups(1 << 30), 1 << 30);
        assert!((single.overflow(footprint) - (-1f64).exp()).abs() < 1e-9);
        // With twice as many entries as the table can hold, at least half of the entries overflow.
        assert!(PTEG.overflow(with(16 << 20, 8 << 30)) >= 0.5);
    }
}
