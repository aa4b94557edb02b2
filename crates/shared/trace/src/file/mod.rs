//! The `.spt` file: recorded streams. `FORMAT.md` beside this crate describes every byte.
//!
//! `Writer` and `Reader` are what others use; the parts below know nothing of files but bytes.

mod chunk;
mod events;
mod foot;
mod head;
mod reader;
mod writer;

pub use foot::{ChunkInfo, RegionRun, Run, Totals};
pub use head::{Header, Mappings};
pub use reader::{Info, Placement, Reader};
pub use writer::Writer;

pub(crate) use writer::Output;

/// Whether `checksum` is that of `bytes`. A fuzzer never guesses one, and is to see what lies behind.
fn is_sum(bytes: &[u8], checksum: u64) -> bool {
    cfg!(fuzzing) || xxhash_rust::xxh3::xxh3_64(bytes) == checksum
}

/// The version of the format.
pub const VERSION: u16 = 1;

/// Records in a chunk at most: 2^20, so that a chunk's columns (3 to 4 MB) fit in a cache and a file
/// of any length can be cut for parallel readers.
pub const CHUNK: usize = 1 << 20;

/// Pages that can be numbered: [`crate::Access`] keeps one bit for "writes".
pub const PAGES: u32 = 1 << 31;
