//! How far a pass over a stream is, for whoever waits for it.

use trace::{Block, Source};

/// How far a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Records of the stream that were handed out (a run of accesses to one page is one).
    pub records: u64,
    /// How many it has, about, if that is known before its end.
    pub of: Option<u64>,
}

/// A stream that tells how far it is before each of its pieces.
#[derive(Debug)]
pub struct Watched<S, F> {
    stream: S,
    pass: Pass,
    watch: F,
}

impl<S: Source, F: FnMut(Pass)> Watched<S, F> {
    /// A stream of about so many records.
    pub fn new(stream: S, of: Option<u64>, watch: F) -> Self {
        Self { stream, pass: Pass { records: 0, of }, watch }
    }
}

impl<S: Source, F: FnMut(Pass)> Source for Watched<S, F> {
    type Error = S::Error;

    fn next(&mut self, block: &mut Block) -> Result<bool, S::Error> {
        (self.watch)(self.pass);
        let more = self.stream.next(block)?;
        self.pass.records += block.accesses.len() as u64;
        Ok(more)
    }
}
