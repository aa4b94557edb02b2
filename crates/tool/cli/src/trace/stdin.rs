//! Standard input that ^C interrupts. A plain blocking read of a terminal or pipe would not notice our signal flag.

use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use operations::signals::Interruption;

const PIECE: usize = 256 << 10;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Standard input, read by a separate thread.
pub struct Stdin {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
    asked: Interruption,
}

impl Stdin {
    /// Starts reading; reads end once `asked` reports a signal.
    pub fn new(asked: Interruption) -> io::Result<Self> {
        let (to, pieces) = sync_channel(4);
        // The thread is never joined: a blocking read cannot be cancelled.
        let read = move || {
            loop {
                let mut piece = vec![0; PIECE];
                let read = io::stdin().read(&mut piece).map(|read| {
                    piece.truncate(read);
                    piece
                });
                let last = read.as_ref().map_or(true, Vec::is_empty);
                if to.send(read).is_err() || last {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(read)?;
        Ok(Self { pieces, piece: Vec::new(), at: 0, asked })
    }
}

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            if self.asked.load(Ordering::SeqCst) != 0 {
                return Err(io::Error::other("stopped"));
            }
            match self.pieces.recv_timeout(POLL_INTERVAL) {
                Ok(piece) => (self.piece, self.at) = (piece?, 0),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
            if self.piece.is_empty() {
                return Ok(0);
            }
        }
        let read = (&self.piece[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}
