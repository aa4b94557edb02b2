//! 64-bit little-endian addresses; one bit of each address may mark writes.

use super::Collector;
use super::Input;
use crate::{Place, TraceError};

/// Parses the input and passes all accesses to `to`.
pub fn parse(
    input: &mut Input,
    write_bit: Option<u8>,
    to: &mut Collector<'_>,
) -> Result<(), TraceError> {
    let mask = write_bit.map_or(0, |bit| 1u64.checked_shl(bit.into()).unwrap_or(0));
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0u64;
    loop {
        let filled = input.fill(&mut buffer, at)?;
        let (words, rest) = buffer[..filled].as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word);
            to.access(word & !mask, 1, word & mask != 0, Place::Byte(at))?;
            at += 8;
        }
        if !rest.is_empty() {
            let what = format!("{} bytes are left, and an address has 8", rest.len());
            return Err(input.wrong(Place::Byte(at), what, "it is truncated, or --from is wrong"));
        }
        if filled < buffer.len() {
            return Ok(());
        }
    }
}
