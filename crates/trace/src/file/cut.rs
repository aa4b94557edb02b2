//! A file without its end: what a writer that was killed had written. Chunks say how long they are and
//! each can be read by itself, so everything up to the first that is not whole is the stream's beginning.
//! Only the footer's checksums are missing.

use std::io::{self, Read, Seek, SeekFrom};

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{self, Chunk, Frame};
use super::column::Unpacker;
use super::foot::{ChunkInfo, Footer, MAX_CHUNK_BYTES, Runs};
use super::tally::Tally;
use super::{CHUNK, PAGES};
use crate::Block;

/// What the footer of the chunks from `begin` on would say, and where the last of them ends.
pub fn footer(
    input: &mut (impl Read + Seek),
    begin: u64,
    unpacker: &mut Unpacker,
) -> io::Result<(Footer, u64)> {
    let (mut tally, mut chunks) = (Tally::new(), Vec::new());
    let (mut chunk, mut block, mut bytes) = (Chunk::default(), Block::default(), Vec::new());
    let frame = Frame { regions: PAGES >> 9, shift: 0 };
    let mut at = begin;
    loop {
        let mut read = |bytes: &mut Vec<u8>, most: u64| {
            bytes.clear();
            input.seek(SeekFrom::Start(at))?;
            input.by_ref().take(most).read_to_end(bytes)
        };
        read(&mut bytes, chunk::MAX_HEAD as u64)?;
        let Some((length, records)) = chunk::extent(&bytes) else { break };
        if length > MAX_CHUNK_BYTES.into() || records as usize > CHUNK {
            break;
        }
        let is_whole = read(&mut bytes, length)? as u64 == length
            && chunk.load(&bytes, records, frame, unpacker).is_ok();
        if !is_whole {
            break;
        }
        let mut info = ChunkInfo {
            offset: at,
            length: length as u32,
            records,
            events: 0,
            accesses: 0,
            process: tally.regions.running(),
            checksum: xxh3_64(&bytes),
            before: tally.totals.records,
        };
        let before = tally.totals;
        let mut is_sound = true;
        while is_sound
            && let Ok(some) = chunk.emit(&mut block, frame).inspect_err(|_| is_sound = false)
        {
            if !some {
                break;
            }
            for (at, access) in block.accesses.iter().enumerate() {
                tally.record(*access, block.counts.get(at).copied().unwrap_or(1));
            }
            is_sound = block.events.iter().all(|(_, event)| tally.event(event));
        }
        if !is_sound {
            tally.totals = before;
            break;
        }
        tally.totals.records += u64::from(records);
        info.events = (tally.totals.events - before.events) as u32;
        info.accesses = tally.totals.accesses - before.accesses;
        chunks.push(info);
        at += length;
    }
    let Tally { totals, regions } = tally;
    Ok((Footer { chunks, totals, runs: Runs::Found(regions.runs), run: None }, at))
}
