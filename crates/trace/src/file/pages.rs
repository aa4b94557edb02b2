//! How a chunk keeps its records. Two ways, by how many different ones there are:
//!
//! - **Indexed**: at most 65,536 different (page, writes, count): a list of them in the order of their
//!   first use, and for each record an index of one or two bytes. Programs are like that, and decoding
//!   is one column to unpack and two loads from small tables.
//! - **Planes**: the page numbers' lowest bytes, then their second bytes, and so on as long as one is
//!   not zero; a bit per record for "writes"; the counts. Random accesses to much memory are like that:
//!   the low bytes are noise and are stored raw, the high ones compress.

use crate::Access;

/// The most different records of an indexed chunk.
pub const MAX_DIFFERENT: usize = 1 << 16;

/// Gives records their index: open addressing, linear probing, emptied for each chunk.
pub struct Indexer {
    /// Access and count of a slot; 0 while it is empty, since no record counts nothing.
    keys: Vec<u64>,
    indices: Vec<u16>,
    /// The different records in the order of their first use.
    pub different: Vec<(Access, u32)>,
}

/// Twice [`MAX_DIFFERENT`]: half full at worst.
const BITS: u32 = 17;

impl Indexer {
    /// An empty one.
    pub fn new() -> Self {
        let size = 1 << BITS;
        Self { keys: vec![0; size], indices: vec![0; size], different: Vec::new() }
    }

    /// Replaces the contents of `out` by each record's index; `None` if there are too many.
    pub fn index(&mut self, accesses: &[Access], counts: &[u32], out: &mut Vec<u16>) -> Option<()> {
        self.keys.fill(0);
        self.different.clear();
        out.clear();
        out.reserve(accesses.len());
        for (&access, &count) in accesses.iter().zip(counts) {
            out.push(self.one(access, count)?);
        }
        Some(())
    }

    fn one(&mut self, access: Access, count: u32) -> Option<u16> {
        let key = u64::from(count) << 32 | u64::from(access.0);
        // Fibonacci hashing: neighbouring pages do not cluster.
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize;
        while self.keys[at] != key {
            if self.keys[at] == 0 {
                if self.different.len() == MAX_DIFFERENT {
                    return None;
                }
                self.keys[at] = key;
                self.indices[at] = self.different.len() as u16;
                self.different.push((access, count));
                break;
            }
            at = (at + 1) & ((1 << BITS) - 1);
        }
        Some(self.indices[at])
    }
}

/// Bytes that the highest page number needs, at least one.
pub fn planes_of(accesses: &[Access]) -> usize {
    let all = accesses.iter().fold(0, |all, access| all | access.page().0);
    (4 - all.leading_zeros() as usize / 8).max(1)
}

/// Replaces the contents of `out` by byte `number` of each page number.
pub fn plane(accesses: &[Access], number: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend(accesses.iter().map(|access| (access.page().0 >> (8 * number)) as u8));
}

/// Replaces the contents of `out` by one bit per record, the lowest first.
pub fn writes(accesses: &[Access], out: &mut Vec<u8>) {
    out.clear();
    let byte = |eight: &[Access]| {
        eight.iter().rev().fold(0, |bits, access| bits << 1 | u8::from(access.writes()))
    };
    out.extend(accesses.chunks(8).map(byte));
}
