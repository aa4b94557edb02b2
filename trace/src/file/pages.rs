//! How a chunk keeps its accesses. Two ways, by how many different ones there are:
//!
//! - **Indexed**: at most 65,536 different (page, writes): a list of them in the order of their first
//!   use, and for each record an index of one or two bytes. Programs are like that, and decoding is one
//!   load from a small table.
//! - **Planes**: the page numbers' lowest bytes, then their second bytes, and so on as long as one is
//!   not zero, and a bit per record for "writes". Random accesses to much memory are like that: the
//!   low bytes are noise and are stored raw, the high ones compress.

use crate::Access;

/// The most different accesses of an indexed chunk.
pub const MOST: usize = 1 << 16;

/// Gives accesses their index: open addressing, linear probing, emptied for each chunk.
pub struct Indexer {
    keys: Vec<u32>,
    indices: Vec<u16>,
    /// The different accesses in the order of their first use.
    pub different: Vec<Access>,
}

/// No access: page 2^31 - 1 written, which [`Indexer`] refuses.
const EMPTY: u32 = u32::MAX;
/// Twice [`MOST`]: half full at worst.
const BITS: u32 = 17;

impl Indexer {
    /// An empty one.
    pub fn new() -> Self {
        let size = 1 << BITS;
        Self { keys: vec![EMPTY; size], indices: vec![0; size], different: Vec::new() }
    }

    /// Writes each access's index to `out`, two bytes each; `None` if there are too many.
    pub fn index(&mut self, accesses: &[Access], out: &mut Vec<u16>) -> Option<()> {
        self.keys.fill(EMPTY);
        self.different.clear();
        out.clear();
        out.reserve(accesses.len());
        for &access in accesses {
            out.push(self.one(access)?);
        }
        Some(())
    }

    fn one(&mut self, access: Access) -> Option<u16> {
        let key = access.0;
        if key == EMPTY {
            return None;
        }
        // Fibonacci hashing: neighbouring pages do not cluster.
        let mut at = (key.wrapping_mul(0x9e37_79b9) >> (32 - BITS)) as usize;
        while self.keys[at] != key {
            if self.keys[at] == EMPTY {
                if self.different.len() == MOST {
                    return None;
                }
                self.keys[at] = key;
                self.indices[at] = self.different.len() as u16;
                self.different.push(access);
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
