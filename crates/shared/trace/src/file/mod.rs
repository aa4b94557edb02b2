//! The `.spt` file: recorded streams. `FORMAT.md` in this crate describes every byte.
//!
//! `Writer` and `Reader` are the interface; the other modules work on bytes, not files.

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

/// Whether `checksum` is the checksum of `bytes`. Always true under a fuzzer, which cannot guess
/// checksums.
fn is_sum(bytes: &[u8], checksum: u64) -> bool {
    cfg!(fuzzing) || xxhash_rust::xxh3::xxh3_64(bytes) == checksum
}

/// Version of the format.
pub const VERSION: u16 = 1;

/// Maximum number of records in a chunk: 2^20, so that its columns (3 to 4 MB) fit in a cache. Parallel readers can
/// divide a file by chunks.
pub const CHUNK: usize = 1 << 20;

/// Number of page numbers: [`crate::Access`] needs one of 32 bits for writes.
pub const PAGES: u32 = 1 << 31;
