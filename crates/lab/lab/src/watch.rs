//! How far a pass over a stream is, for whoever waits for it, and may stop it.

use std::ops::ControlFlow;

use trace::{Block, Source};

/// How far a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Records of the stream that were handed out (a run of accesses to one page is one).
    pub records: u64,
    /// How many it has, about, if that is known before its end.
    pub of: Option<u64>,
}

/// Asked before each piece of a simulation whether to go on. Where it breaks, the simulation fails.
pub type Going<'a> = &'a (dyn Fn() -> ControlFlow<()> + Sync);

/// Nobody stops it.
pub const TO_THE_END: Going<'static> = &|| ControlFlow::Continue(());

/// Why a watched stream could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unread<E> {
    /// Who watches it stopped it.
    #[error("stopped")]
    Stopped,
    /// It is unreadable itself.
    #[error(transparent)]
    Source(#[from] E),
}

/// A stream that tells how far it is before each of its pieces, and ends with an error where its watcher stops it.
#[derive(Debug)]
pub struct Watched<S, F> {
    stream: S,
    pass: Pass,
    watch: F,
}

impl<S: Source, F: FnMut(Pass) -> ControlFlow<()>> Watched<S, F> {
    /// A stream of about so many records.
    pub fn new(stream: S, of: Option<u64>, watch: F) -> Self {
        Self { stream, pass: Pass { records: 0, of }, watch }
    }
}

impl<S: Source, F: FnMut(Pass) -> ControlFlow<()>> Source for Watched<S, F> {
    type Error = Unread<S::Error>;

    fn next(&mut self, block: &mut Block) -> Result<bool, Self::Error> {
        if (self.watch)(self.pass).is_break() {
            return Err(Unread::Stopped);
        }
        let more = self.stream.next(block)?;
        self.pass.records += block.accesses.len() as u64;
        Ok(more)
    }
}
