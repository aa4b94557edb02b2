//! Leaf 2 of CPUID: what its one-byte descriptors mean, as far as they are about TLBs. Intel SDM volume 2A,
//! CPUID, table "Encoding of CPUID Leaf 2 Descriptors" (manual).

use super::TlbKind::{self, Data, Instruction, Unified};

/// One array behind a descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub code: u8,
    pub level: Level,
    pub kind: TlbKind,
    pub pages: &'static [u64],
    pub entries: u32,
    /// 0: fully associative; `None`: the table does not say.
    pub ways: Option<u32>,
}

/// The level of an array, which for some depends on the company it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// The first.
    First,
    /// The first, being a "DTLB0" or "uTLB": under it, [`Level::Under`] is the second.
    Micro,
    /// The second if there is a micro-TLB, otherwise the first ("DTLB1").
    Under,
    /// The second ("shared 2nd-level TLB").
    Second,
}

use Level::{First, Micro, Second, Under};

const K4: u64 = 4 << 10;
const M2: u64 = 2 << 20;
const M4: u64 = 4 << 20;
const G1: u64 = 1 << 30;

const fn row(
    code: u8,
    level: Level,
    kind: TlbKind,
    pages: &'static [u64],
    entries: u32,
    ways: Option<u32>,
) -> Row {
    Row { code, level, kind, pages, entries, ways }
}

/// Every descriptor of a TLB. Two have two arrays.
pub(super) const ROWS: &[Row] = &[
    row(0x01, First, Instruction, &[K4], 32, Some(4)),
    row(0x02, First, Instruction, &[M4], 2, Some(0)),
    row(0x03, First, Data, &[K4], 64, Some(4)),
    row(0x04, First, Data, &[M4], 8, Some(4)),
    row(0x05, Under, Data, &[M4], 32, Some(4)),
    row(0x0b, First, Instruction, &[M4], 4, Some(4)),
    row(0x4f, First, Instruction, &[K4], 32, None),
    row(0x50, First, Instruction, &[K4, M2, M4], 64, None),
    row(0x51, First, Instruction, &[K4, M2, M4], 128, None),
    row(0x52, First, Instruction, &[K4, M2, M4], 256, None),
    row(0x55, First, Instruction, &[M2, M4], 7, Some(0)),
    row(0x56, Micro, Data, &[M4], 16, Some(4)),
    row(0x57, Micro, Data, &[K4], 16, Some(4)),
    row(0x59, Micro, Data, &[K4], 16, Some(0)),
    // "DTLB0", but of Nehalem, which has no DTLB1 over it.
    row(0x5a, First, Data, &[M2, M4], 32, Some(4)),
    row(0x5b, First, Data, &[K4, M4], 64, None),
    row(0x5c, First, Data, &[K4, M4], 128, None),
    row(0x5d, First, Data, &[K4, M4], 256, None),
    row(0x61, First, Instruction, &[K4], 48, Some(0)),
    row(0x63, First, Data, &[M2, M4], 32, Some(4)),
    row(0x63, First, Data, &[G1], 4, Some(4)),
    row(0x64, First, Data, &[K4], 512, Some(4)),
    row(0x6a, Micro, Data, &[K4], 64, Some(8)),
    row(0x6b, Under, Data, &[K4], 256, Some(8)),
    row(0x6c, Under, Data, &[M2, M4], 128, Some(8)),
    row(0x6d, Under, Data, &[G1], 16, Some(0)),
    row(0x76, First, Instruction, &[M2, M4], 8, Some(0)),
    row(0xa0, First, Data, &[K4], 32, Some(0)),
    row(0xb0, First, Instruction, &[K4], 128, Some(4)),
    // Of 4 MiB pages it holds half as many.
    row(0xb1, First, Instruction, &[M2], 8, Some(4)),
    row(0xb2, First, Instruction, &[K4], 64, Some(4)),
    row(0xb3, First, Data, &[K4], 128, Some(4)),
    row(0xb4, Under, Data, &[K4], 256, Some(4)),
    row(0xb5, First, Instruction, &[K4], 64, Some(8)),
    row(0xb6, First, Instruction, &[K4], 128, Some(8)),
    row(0xba, Under, Data, &[K4], 64, Some(4)),
    row(0xc0, First, Data, &[K4, M4], 8, Some(4)),
    row(0xc1, Second, Unified, &[K4, M2], 1024, Some(8)),
    row(0xc2, First, Data, &[K4, M2], 16, Some(4)),
    row(0xc3, Second, Unified, &[K4, M2], 1536, Some(6)),
    row(0xc3, Second, Unified, &[G1], 16, Some(4)),
    row(0xc4, First, Data, &[M2, M4], 32, Some(4)),
    row(0xca, Second, Unified, &[K4], 512, Some(4)),
];
