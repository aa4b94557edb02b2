//! The header: origin and properties of a stream.

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{Bytes, put_text};
use crate::SLOTS;
use crate::filter::{Filter, MruSets};

/// The first eight bytes. The first byte is not ASCII, and the line ends reveal a transfer in text mode.
pub const MAGIC: &[u8; 8] = b"\x89SPT\r\n\x1a\n";
/// Number of bytes of magic, version and the length field.
pub const HEAD_BYTES: usize = 12;
/// Maximum size of a header in bytes: two strings and a few numbers.
pub const MAX_HEADER: usize = 16 << 10;
/// Maximum length in bytes of the creator's and the workload's name.
const MAX_TEXT: usize = 4 << 10;

/// Origin of the mappings of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mappings {
    /// The program's own mappings.
    Recorded,
    /// Inferred from the touched pages: more than `gap` untouched bytes separate two mappings.
    Inferred {
        /// Maximum gap inside a mapping, in bytes.
        gap: u64,
    },
}

/// Origin and properties of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Base page size in bytes. A region has 512 base pages.
    pub base_page: u32,
    /// Which accesses were omitted.
    pub filter: Filter,
    /// Origin of the mappings.
    pub mappings: Mappings,
    /// The program that made the stream, and the source of its data.
    pub creator: String,
    /// The recorded program or workload.
    pub workload: String,
}

impl Header {
    /// Makes a header for 4 KiB pages, same-page filter and recorded mappings.
    pub fn new(workload: &str) -> Self {
        Self {
            base_page: 4096,
            filter: Filter::SamePage,
            mappings: Mappings::Recorded,
            creator: concat!("superpage ", env!("CARGO_PKG_VERSION")).to_string(),
            workload: workload.to_string(),
        }
    }

    /// Checks that the header is valid.
    ///
    /// # Errors
    /// The base page is not a power of two from 1 KiB to 1 MiB (Linux supports no other sizes), or a number of sets is
    /// not a power of two.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.base_page.is_power_of_two() || !(1 << 10..=1 << 20).contains(&self.base_page) {
            return Err("a base page is a power of two from 1 KiB to 1 MiB");
        }
        match self.filter {
            Filter::SetMru(sets) if !sets.is_valid() => {
                Err("sets of the set-MRU filter are powers of two up to 4096")
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes of the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.base_page.to_le_bytes());
        body.extend(SLOTS.to_le_bytes());
        let (level, sets) = match self.filter {
            Filter::None => (0u8, MruSets { base: 0, superpage: 0 }),
            Filter::SamePage => (1, MruSets { base: 0, superpage: 0 }),
            Filter::SetMru(sets) => (2, sets),
        };
        body.push(level);
        body.extend(sets.base.to_le_bytes());
        body.extend(sets.superpage.to_le_bytes());
        let (inferred, gap) = match self.mappings {
            Mappings::Recorded => (0u8, 0),
            Mappings::Inferred { gap } => (1, gap),
        };
        body.push(inferred);
        body.extend(gap.to_le_bytes());
        put_text(&mut body, &self.creator, MAX_TEXT);
        put_text(&mut body, &self.workload, MAX_TEXT);

        let mut out = MAGIC.to_vec();
        out.extend(super::VERSION.to_le_bytes());
        out.extend((body.len() as u16).to_le_bytes());
        out.extend(body);
        out.extend(xxh3_64(&out).to_le_bytes());
        out
    }

    /// Parses a header; the caller must have checked magic, version and length.
    ///
    /// # Errors
    /// The header is too short, its checksum is wrong, or its fields are invalid.
    pub fn decode(all: &[u8]) -> Result<Self, &'static str> {
        let Some((bytes, checksum)) = all.split_last_chunk::<8>() else {
            return Err("the header is too short");
        };
        if !super::is_sum(bytes, u64::from_le_bytes(*checksum)) {
            return Err("the header's checksum is wrong");
        }
        let header = Self::fields(&bytes[HEAD_BYTES.min(bytes.len())..]);
        let header = header.ok_or("the header's fields make no sense")?;
        header.check().map(|()| header)
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let base_page = bytes.u32()?;
        if bytes.u32()? != SLOTS {
            return None;
        }
        let level = bytes.u8()?;
        let sets = MruSets { base: bytes.u32()?, superpage: bytes.u32()? };
        let filter = match level {
            0 => Filter::None,
            1 => Filter::SamePage,
            2 => Filter::SetMru(sets),
            _ => return None,
        };
        let inferred = bytes.u8()?;
        let gap = bytes.u64()?;
        let mappings = match inferred {
            0 => Mappings::Recorded,
            1 => Mappings::Inferred { gap },
            _ => return None,
        };
        let creator = bytes.text()?;
        let workload = bytes.text()?;
        let header = Self { base_page, filter, mappings, creator, workload };
        bytes.0.is_empty().then_some(header)
    }
}
