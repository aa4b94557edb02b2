//! The header: what a stream is of, and what was done to it.

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{Bytes, put_text};
use crate::SLOTS;
use crate::filter::{Filter, MruSets};

/// The first eight bytes. The first is no ASCII, and the line ends show a transfer as text.
pub const MAGIC: &[u8; 8] = b"\x89SPT\r\n\x1a\n";
/// Magic, version, length of the rest.
pub const FIXED: usize = 12;
/// The longest header: two texts and small change.
pub const MAX_HEADER: usize = 16 << 10;
/// The longest creator or workload that is kept, in bytes.
const MAX_TEXT: usize = 4 << 10;

/// How the mappings of a stream are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mappings {
    /// They are the program's own.
    Recorded,
    /// They were guessed from the touched pages: where more than `gap` bytes lie untouched, one ends
    /// and another begins.
    Inferred {
        /// That many bytes.
        gap: u64,
    },
}

/// What a stream is of, and what was done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a base page. A region is 512 of them.
    pub base_page: u32,
    /// Which accesses were left out.
    pub filter: Filter,
    /// How its mappings are known.
    pub mappings: Mappings,
    /// Who made it, and from what.
    pub creator: String,
    /// The program, or the workload, that it is of.
    pub workload: String,
}

impl Header {
    /// A header for 4 KiB pages, runs merged, mappings recorded.
    pub fn new(workload: &str) -> Self {
        Self {
            base_page: 4096,
            filter: Filter::SamePage,
            mappings: Mappings::Recorded,
            creator: concat!("superpage ", env!("CARGO_PKG_VERSION")).to_string(),
            workload: workload.to_string(),
        }
    }

    /// Whether a trace can have this header.
    ///
    /// # Errors
    /// A base page that is no power of two from 1 KiB to 1 MiB (the sizes of the architectures that Linux runs on lie
    /// within), or a count of sets that is no power of two.
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

    /// All of it as bytes.
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

    /// Reads it from all of its bytes, whose magic, version and length were looked at.
    ///
    /// # Errors
    /// Too short, with a wrong checksum, or with fields that no header has.
    pub fn decode(all: &[u8]) -> Result<Self, &'static str> {
        let Some((bytes, checksum)) = all.split_last_chunk::<8>() else {
            return Err("the header is too short");
        };
        if !super::is_sum(bytes, u64::from_le_bytes(*checksum)) {
            return Err("the header's checksum is wrong");
        }
        let header = Self::fields(&bytes[FIXED.min(bytes.len())..]);
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
