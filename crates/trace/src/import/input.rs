//! What is imported: a file or standard input, unpacked if it is packed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::Format;
use crate::{Place, TraceError};

/// Memory that unpacking an .xz may take: `xz -9` needs 65 MiB, and its format allows gigabytes.
const XZ_MEMORY: u64 = 256 << 20;
/// Bytes read at once.
const BUFFER: usize = 256 << 10;

/// A packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Xz,
    Zstd,
}

/// An input.
pub struct Input {
    /// What errors call it.
    pub path: PathBuf,
    /// Its unpacked bytes.
    reader: BufReader<Box<dyn Read>>,
}

impl Input {
    /// Opens `path`; .gz, .xz and .zst are unpacked.
    ///
    /// # Errors
    /// [`TraceError`]: it is a directory, or cannot be read.
    pub fn open(path: &Path, format: Format) -> Result<Self, TraceError> {
        let io = TraceError::unreadable(path);
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(TraceError::NotAFile { path: path.to_path_buf(), what: "a directory" });
        }
        Self::new(Box::new(file), path, format)
    }

    /// Takes bytes from anywhere, which errors call `path`.
    ///
    /// # Errors
    /// [`TraceError::Io`]: its first bytes cannot be read.
    pub fn new(mut raw: Box<dyn Read>, path: &Path, format: Format) -> Result<Self, TraceError> {
        let io = TraceError::unreadable(path);
        let mut begin = Vec::new();
        raw.by_ref().take(6).read_to_end(&mut begin).map_err(io)?;
        let packing = packing(path, format, &begin);
        let raw = io::Cursor::new(begin).chain(raw);
        let reader: Box<dyn Read> = match packing {
            Packing::None => Box::new(raw),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(raw)),
            Packing::Xz => {
                let flags = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, flags);
                let stream = stream.map_err(|error| io(error.into()))?;
                Box::new(liblzma::read::XzDecoder::new_stream(raw, stream))
            }
            // zstd's own limit for a window stands: 128 MiB.
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(raw).map_err(io)?),
        };
        let reader = BufReader::with_capacity(BUFFER, reader);
        Ok(Self { path: path.to_path_buf(), reader })
    }

    /// Its bytes.
    pub(super) fn reader(&mut self) -> &mut BufReader<Box<dyn Read>> {
        &mut self.reader
    }

    /// An error at a place of it.
    pub(super) fn wrong(&self, place: Place, what: String, remedy: &'static str) -> TraceError {
        TraceError::Import { path: self.path.clone(), place, what, remedy }
    }

    /// That its bytes could not be had.
    pub(super) fn unreadable(&self, place: Place, error: &io::Error) -> TraceError {
        let remedy = "if it is packed (.gz, .xz, .zst), it is damaged: get it again";
        self.wrong(place, format!("cannot be read on: {error}"), remedy)
    }

    /// Fills `buffer`, less at the end of the input; `at` is the byte where that begins.
    pub(super) fn fill(&mut self, buffer: &mut [u8], at: u64) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(Place::Byte(at + filled as u64), &error)),
            }
        }
        Ok(filled)
    }
}

/// By the name, and by the first bytes where those cannot be data: raw addresses can be anything.
fn packing(path: &Path, format: Format, begin: &[u8]) -> Packing {
    match path.extension().and_then(OsStr::to_str) {
        Some("gz") => Packing::Gzip,
        Some("xz") => Packing::Xz,
        Some("zst") => Packing::Zstd,
        _ if format == Format::Raw => Packing::None,
        _ if begin.starts_with(&[0x1f, 0x8b, 8]) => Packing::Gzip,
        _ if begin.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) => Packing::Xz,
        _ if begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => Packing::Zstd,
        _ => Packing::None,
    }
}
