//! Traces (.spt): header, footer and every chunk.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use trace::{Block, Reader, Source};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::new(Cursor::new(data), Path::new("x.spt")) else { return };
    let mut block = Block::default();
    // A run of accesses is a few bytes and may stand for billions; blocks bound what is made of it.
    for _ in 0..64 {
        match reader.next(&mut block) {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
});
