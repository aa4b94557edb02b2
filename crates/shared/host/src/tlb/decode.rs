//! Decodes CPUID registers into TLB arrays: without I/O, so that registers of any CPU can be
//! decoded.

use units::PageSize;

use super::TlbKind::{Data, Instruction, Stores, Unified};
use super::{Leaves, TlbArray, TlbKind};
use super::{Level, ROWS, Row};

const K4: u64 = 4 << 10;
const M2: u64 = 2 << 20;
const M4: u64 = 4 << 20;
const G1: u64 = 1 << 30;

/// Unit of AMD's second-level entries where L2TlbSizeX32 is set (leaf 0x8000_0021, EAX bit 14; Zen 5's 4,096 entries
/// do not fit the 12 bits of their field).
pub const AMD_UNIT: u32 = 32;

/// Decodes the arrays that the leaves describe, first level first. Uses leaf 2 only if leaf 0x18 is empty: descriptor
/// 0xFE in leaf 2 refers to leaf 0x18.
pub fn arrays(leaves: &Leaves) -> Vec<TlbArray> {
    let mut arrays = amd(leaves);
    arrays.extend(leaves.translation.iter().filter_map(translation));
    if arrays.is_empty() {
        arrays = leaves.descriptors.map(descriptors).unwrap_or_default();
    }
    arrays.retain(|array| array.entries > 0 && !array.page_sizes.is_empty());
    arrays.sort_by_key(|array| array.level);
    arrays
}

fn array(level: u32, kind: TlbKind, pages: &[u64], entries: u32, ways: Option<u32>) -> TlbArray {
    let page_sizes = pages.iter().filter_map(|bytes| PageSize::new(*bytes).ok()).collect();
    TlbArray { level, kind, page_sizes, entries, ways }
}

/// Decodes leaf 2. The lowest byte of EAX is an unused count; a register with its highest bit set is invalid.
fn descriptors(registers: [u32; 4]) -> Vec<TlbArray> {
    let valid = registers.into_iter().filter(|register| register >> 31 == 0);
    let bytes: Vec<u8> = valid
        .enumerate()
        .flat_map(|(index, register)| {
            let bytes = register.to_le_bytes();
            let count = index == 0 && register == registers[0];
            bytes.into_iter().skip(usize::from(count))
        })
        .collect();
    let rows = |code: &u8| {
        let code = *code;
        ROWS.iter().filter(move |row| row.code == code)
    };
    let found: Vec<&Row> = bytes.iter().flat_map(rows).collect();
    let micro = found.iter().any(|row| row.level == Level::Micro);
    let level = |row: &Row| match row.level {
        Level::First | Level::Micro => 1,
        Level::Under => 1 + u32::from(micro),
        Level::Second => 2,
    };
    let one = |row: &&Row| {
        let ways = row.ways.map(|ways| if ways == 0 { row.entries } else { ways });
        array(level(row), row.kind, row.pages, row.entries, ways)
    };
    found.iter().map(one).collect()
}

/// Decodes one subleaf of leaf 0x18.
fn translation(&[_, ebx, ecx, edx]: &[u32; 4]) -> Option<TlbArray> {
    let kind = match edx & 0x1f {
        1 | 4 => Data,
        2 => Instruction,
        3 => Unified,
        5 => Stores,
        _ => return None,
    };
    let sizes = [(1, K4), (2, M2), (4, M4), (8, G1)];
    let pages: Vec<u64> =
        sizes.into_iter().filter(|(bit, _)| ebx & bit != 0).map(|(_, size)| size).collect();
    let ways = ebx >> 16;
    let entries = ways.saturating_mul(ecx);
    let full = edx >> 8 & 1 == 1;
    Some(array(edx >> 5 & 7, kind, &pages, entries, Some(if full { entries } else { ways })))
}

/// Decodes AMD's leaves (APM volume 3, appendix E.4, manual).
fn amd(leaves: &Leaves) -> Vec<TlbArray> {
    let mut arrays = Vec::new();
    if let Some([eax, ebx, ..]) = leaves.amd_first {
        for (register, page) in [(ebx, K4), (eax, M2)] {
            let [i_entries, i_ways, d_entries, d_ways] = register.to_le_bytes();
            for (kind, entries, ways) in
                [(Data, d_entries, d_ways), (Instruction, i_entries, i_ways)]
            {
                let entries = u32::from(entries);
                let ways = match ways {
                    0 => None,
                    0xff => Some(entries),
                    ways => Some(u32::from(ways)),
                };
                arrays.push(array(1, kind, &[page], entries, ways));
            }
        }
    }
    let is_in_units = leaves.amd_features.is_some_and(|[eax, ..]| eax >> 14 & 1 == 1);
    let unit = if is_in_units { AMD_UNIT } else { 1 };
    if let Some([eax, ebx, ..]) = leaves.amd_giant {
        arrays.extend(halves(1, eax, G1, 1));
        arrays.extend(halves(2, ebx, G1, unit));
    }
    if let Some([eax, ebx, ..]) = leaves.amd_second {
        arrays.extend(halves(2, ebx, K4, unit));
        arrays.extend(halves(2, eax, M2, unit));
    }
    arrays
}

/// Decodes a register with 12 bits for the number of entries and 4 bits for the associativity: instructions in the
/// lower half, data in the upper half.
fn halves(level: u32, register: u32, page: u64, unit: u32) -> [TlbArray; 2] {
    let half = |bits: u32, kind| {
        let entries = (bits & 0xfff) * unit;
        let ways = match bits >> 12 & 0xf {
            1 => Some(1),
            2 => Some(2),
            3 => Some(3),
            4 => Some(4),
            5 => Some(6),
            6 => Some(8),
            8 => Some(16),
            0xa => Some(32),
            0xb => Some(48),
            0xc => Some(64),
            0xd => Some(96),
            0xe => Some(128),
            0xf => Some(entries),
            _ => None,
        };
        array(level, kind, &[page], entries, ways)
    };
    [half(register >> 16, Data), half(register & 0xffff, Instruction)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Level, kind, page sizes in bytes, entries, ways.
    type Short = (u32, TlbKind, Vec<u64>, u32, Option<u32>);

    fn short(leaves: &Leaves) -> Vec<Short> {
        let short = |array: TlbArray| {
            let pages = array.page_sizes.iter().map(|page| page.bytes()).collect();
            (array.level, array.kind, pages, array.entries, array.ways)
        };
        arrays(leaves).into_iter().map(short).collect()
    }

    fn data(leaves: &Leaves) -> Vec<Short> {
        short(leaves).into_iter().filter(|array| matches!(array.1, Data | Unified)).collect()
    }

    #[test]
    fn cascade_lake_has_descriptors_only() {
        // Registers of a Cascade Lake guest (docs/sources/kernel_facts.md 9); leaf 0x18 was zero.
        let leaves = Leaves {
            descriptors: Some([0x7603_6301, 0x00f0_b5ff, 0, 0x00c3_0000]),
            translation: vec![[0; 4]],
            ..Leaves::default()
        };
        let expected: Vec<Short> = vec![
            (1, Data, vec![M2, M4], 32, Some(4)),
            (1, Data, vec![G1], 4, Some(4)),
            (1, Data, vec![K4], 64, Some(4)),
            (1, Instruction, vec![M2, M4], 8, Some(8)),
            (1, Instruction, vec![K4], 64, Some(8)),
            (2, Unified, vec![K4, M2], 1536, Some(6)),
            (2, Unified, vec![G1], 16, Some(4)),
        ];
        assert_eq!(short(&leaves), expected);
    }

    #[test]
    fn ice_lake_has_leaf_18() {
        // (assumed) Registers that a Sunny Cove core would report; the decoded values are its published geometry.
        let leaves = Leaves {
            descriptors: Some([0x00fe_ff01, 0x0000_00f0, 0, 0]),
            translation: vec![
                [8, 0, 0, 0],
                [0, 0x0008_0001, 0x10, 0x4022],
                [0, 0x0010_0006, 1, 0x4122],
                [0, 0x0010_000f, 1, 0x4125],
                [0, 0x0004_0001, 0x10, 0x4024],
                [0, 0x0004_0006, 0x08, 0x4024],
                [0, 0x0008_0008, 1, 0x4124],
                [0, 0x0008_0007, 0x80, 0x4043],
                [0, 0x0008_0009, 0x80, 0x4043],
            ],
            ..Leaves::default()
        };
        let expected: Vec<Short> = vec![
            (1, Data, vec![K4], 64, Some(4)),
            (1, Data, vec![M2, M4], 32, Some(4)),
            (1, Data, vec![G1], 8, Some(8)),
            (2, Unified, vec![K4, M2, M4], 1024, Some(8)),
            (2, Unified, vec![K4, G1], 1024, Some(8)),
        ];
        assert_eq!(data(&leaves), expected);
        assert!(short(&leaves).contains(&(1, Stores, vec![K4, M2, M4, G1], 16, Some(16))));
    }

    #[test]
    fn zen_4_as_this_project_was_built_on() {
        // (measured) Registers of an EPYC 9R14 guest.
        let leaves = Leaves {
            amd_first: Some([0xff48_ff40, 0xff48_ff40, 0x2008_0140, 0x2008_0140]),
            amd_second: Some([0x5c00_2200, 0x6c00_4200, 0x0400_6140, 0x0a00_9140]),
            amd_giant: Some([0; 4]),
            ..Leaves::default()
        };
        let expected: Vec<Short> = vec![
            (1, Data, vec![K4], 72, Some(72)),
            (1, Data, vec![M2], 72, Some(72)),
            (2, Data, vec![K4], 3072, Some(8)),
            (2, Data, vec![M2], 3072, Some(6)),
        ];
        assert_eq!(data(&leaves), expected);
    }

    #[test]
    fn zen_2_tells_of_giant_pages_too() {
        // (assumed) Registers that an EPYC 7742 would report.
        let leaves = Leaves {
            amd_first: Some([0xff40_ff40, 0xff40_ff40, 0x2008_0140, 0x2008_0140]),
            amd_second: Some([0x5800_2200, 0x6800_4200, 0x0200_6140, 0x0200_9140]),
            amd_giant: Some([0xf040_f040, 0, 0, 0]),
            ..Leaves::default()
        };
        let expected: Vec<Short> = vec![
            (1, Data, vec![K4], 64, Some(64)),
            (1, Data, vec![M2], 64, Some(64)),
            (1, Data, vec![G1], 64, Some(64)),
            (2, Data, vec![K4], 2048, Some(8)),
            (2, Data, vec![M2], 2048, Some(6)),
        ];
        assert_eq!(data(&leaves), expected);
    }

    #[test]
    fn zen_5_counts_its_second_level_in_units_where_it_says_so() {
        // (measured) Registers of an EPYC guest of family 26. The hypervisor hides the bit of leaf 0x8000_0021.
        let hidden = Leaves {
            amd_first: Some([0xff60_ff40, 0xff60_ff40, 0x300c_0140, 0x2008_0140]),
            amd_second: Some([0x4080_2040, 0x6080_4040, 0x0400_8140, 0x0c00_9140]),
            amd_giant: Some([0; 4]),
            amd_features: Some([0x0204, 0, 0x86, 0]),
            ..Leaves::default()
        };
        let second = |leaves: &Leaves| -> Vec<Short> {
            data(leaves).into_iter().filter(|array| array.0 == 2).collect()
        };
        let expected = |entries| -> Vec<Short> {
            vec![(2, Data, vec![K4], entries, Some(8)), (2, Data, vec![M2], entries, Some(4))]
        };
        assert_eq!(second(&hidden), expected(128));
        let shown = Leaves { amd_features: Some([0x4204, 0, 0x86, 0]), ..hidden.clone() };
        assert_eq!(second(&shown), expected(4096));
        assert!(
            data(&shown).contains(&(1, Data, vec![K4], 96, Some(96))),
            "the first is as it was"
        );
    }

    #[test]
    fn core_2_has_a_small_level_under_its_own_name() {
        // Descriptors of a Core 2 (manual, example): 57 and 56 are DTLB0, B4 and 05 are DTLB1.
        let leaves = Leaves {
            descriptors: Some([0x05b0_b101, 0x0056_57f0, 0, 0x2cb4_3049]),
            ..Leaves::default()
        };
        let expected: Vec<Short> = vec![
            (1, Data, vec![K4], 16, Some(4)),
            (1, Data, vec![M4], 16, Some(4)),
            (2, Data, vec![M4], 32, Some(4)),
            (2, Data, vec![K4], 256, Some(4)),
        ];
        assert_eq!(data(&leaves), expected);
    }

    #[test]
    fn a_register_with_its_highest_bit_set_says_nothing() {
        let leaves =
            Leaves { descriptors: Some([0x8000_0303, 0x8000_0003, 0, 0]), ..Leaves::default() };
        assert_eq!(short(&leaves), []);
    }

    proptest! {
        #[test]
        fn whatever_is_said_makes_sense(
            descriptors: [u32; 4], first: [u32; 4], second: [u32; 4], giant: [u32; 4], features: [u32; 4],
            translation in prop::collection::vec(any::<[u32; 4]>(), 0..5), amd: bool,
        ) {
            let amd = |registers| amd.then_some(registers);
            let leaves = Leaves {
                descriptors: Some(descriptors),
                translation,
                amd_first: amd(first),
                amd_second: amd(second),
                amd_giant: amd(giant),
                amd_features: amd(features),
            };
            let arrays = arrays(&leaves);
            prop_assert!(arrays.iter().all(|array| array.entries > 0));
            prop_assert!(arrays.windows(2).all(|pair| pair[0].level <= pair[1].level));
        }
    }
}
