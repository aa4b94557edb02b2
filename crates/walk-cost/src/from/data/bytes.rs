//! Words of either byte order, and a stream of bytes that knows its place. Private to the reader.

use std::io::Read;
use std::path::Path;

use super::FromError;

/// The byte order of the machine that recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// By the magic number, `PERFILE2` as a word of the machine's.
    pub fn of_magic(head: &[u8]) -> Option<Self> {
        match head.get(..8)? {
            b"PERFILE2" => Some(Self::Little),
            b"2ELIFREP" => Some(Self::Big),
            _ => None,
        }
    }

    /// The 16-bit word at `at`, if the slice reaches that far.
    pub fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        let word = array(bytes, at)?;
        Some(if self == Self::Little { u16::from_le_bytes(word) } else { u16::from_be_bytes(word) })
    }

    /// The 32-bit word at `at`.
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        let word = array(bytes, at)?;
        Some(if self == Self::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) })
    }

    /// The 64-bit word at `at`.
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        let word = array(bytes, at)?;
        Some(if self == Self::Little { u64::from_le_bytes(word) } else { u64::from_be_bytes(word) })
    }

    /// A word of C bit fields, the first in bit 0: compilers of big-endian machines fill each byte
    /// from its high bit (`swap_bitfield` in tools/perf/util/session.c).
    pub fn bit_fields_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        let word: [u8; 8] = array(bytes, at)?;
        let reversed = word.map(u8::reverse_bits);
        Some(u64::from_le_bytes(if self == Self::Little { word } else { reversed }))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The text up to the first zero.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A stream of bytes, and how far it was read.
pub(super) struct Source<'a, R> {
    input: R,
    pub offset: u64,
    path: &'a Path,
}

impl<'a, R: Read> Source<'a, R> {
    pub fn new(input: R, path: &'a Path) -> Self {
        Self { input, offset: 0, path }
    }

    /// Fills `bytes`; `false` if the stream ended before the first of them.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, FromError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.broken("truncated record")),
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(FromError::Io { path: self.path.to_owned(), source }),
            }
        }
        self.offset += filled as u64;
        Ok(true)
    }

    /// Passes over `length` bytes.
    pub fn skip(&mut self, length: u64) -> Result<(), FromError> {
        let skipped = std::io::copy(&mut (&mut self.input).take(length), &mut std::io::sink());
        let skipped =
            skipped.map_err(|source| FromError::Io { path: self.path.to_owned(), source })?;
        self.offset += skipped;
        if skipped < length { Err(self.broken("truncated record")) } else { Ok(()) }
    }

    pub fn broken(&self, what: &'static str) -> FromError {
        FromError::Broken { path: self.path.to_owned(), offset: self.offset, what }
    }
}
