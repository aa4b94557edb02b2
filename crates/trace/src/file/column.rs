//! One column of a chunk: bytes, stored as they are or compressed. Called by `chunk` and `foot`.

use std::io;

use zstd::bulk::{Compressor, Decompressor};

use super::bytes::Bytes;

/// zstd's level: 3 gave the sizes and decoding speeds that the format was chosen by
/// (docs/sources/simulators.md 3.5); higher levels make recording slower and decoding no faster.
const LEVEL: i32 = 3;

/// Bytes of a column's head: codec, length, stored length.
pub const HEAD: usize = 9;

const RAW: u8 = 0;
const ZSTD: u8 = 1;

/// A compressor with its memory.
pub struct Packer {
    zstd: Compressor<'static>,
    packed: Vec<u8>,
}

impl Packer {
    /// A fresh one.
    pub fn new() -> io::Result<Self> {
        Ok(Self { zstd: Compressor::new(LEVEL)?, packed: Vec::new() })
    }

    /// Adds `column`'s head to `heads` and its bytes to `out`.
    pub fn put(&mut self, column: &[u8], heads: &mut Vec<u8>, out: &mut Vec<u8>) -> io::Result<()> {
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(column.len()));
        let length = self.zstd.compress_to_buffer(column, &mut self.packed)?;
        // What gains nothing costs no time when it is read.
        let (codec, stored) = if length < column.len() - column.len() / 32 {
            (ZSTD, &self.packed[..])
        } else {
            (RAW, column)
        };
        heads.push(codec);
        heads.extend((column.len() as u32).to_le_bytes());
        heads.extend((stored.len() as u32).to_le_bytes());
        out.extend_from_slice(stored);
        Ok(())
    }
}

/// A column's head.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    codec: u8,
    /// Its bytes.
    pub length: usize,
    /// Its bytes in the file.
    pub stored: usize,
}

impl Head {
    /// Reads it.
    pub fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let codec = bytes.u8()?;
        let length = bytes.u32()? as usize;
        let stored = bytes.u32()? as usize;
        Some(Self { codec, length, stored })
    }
}

/// A decompressor with its memory.
pub struct Unpacker(Decompressor<'static>);

impl Unpacker {
    /// A fresh one.
    pub fn new() -> io::Result<Self> {
        Decompressor::new().map(Self)
    }

    /// Replaces the contents of `out` by the column with this head that `bytes` begins with. The
    /// caller has bounded `head.length`.
    pub fn take(&mut self, head: Head, bytes: &mut Bytes<'_>, out: &mut Vec<u8>) -> Option<()> {
        let stored = bytes.take(head.stored)?;
        out.clear();
        match head.codec {
            RAW => out.extend_from_slice(stored),
            ZSTD => {
                out.reserve(head.length);
                self.0.decompress_to_buffer(stored, out).ok()?;
            }
            _ => return None,
        }
        (out.len() == head.length).then_some(())
    }
}
