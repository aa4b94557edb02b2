//! ChampSim's traces: one record of 64 bytes per instruction. Fields (inc/trace_instruction.h, `input_instr`):
//! instruction pointer (8 bytes); is branch, branch taken (1 byte each); 2 destination and 4 source registers (1 byte
//! each); 2 destination and 4 source addresses (8 bytes each, 0 for none). The importer puts the loads of a record
//! before its stores.

use super::Collector;
use super::Input;
use crate::{Place, TraceError};

const RECORD: usize = 64;
const STORES: usize = 16;
const LOADS: usize = 32;

/// Parses the input and passes all accesses to `to`.
pub fn parse(
    input: &mut Input,
    instructions: bool,
    to: &mut Collector<'_>,
) -> Result<(), TraceError> {
    let mut buffer = vec![0; 1024 * RECORD];
    let mut at = 0u64;
    loop {
        let filled = input.fill(&mut buffer, at)?;
        let (records, rest) = buffer[..filled].as_chunks::<RECORD>();
        for record in records {
            let place = Place::Byte(at);
            if record[8] > 1 || record[9] > 1 {
                let what = "no ChampSim record: whether it branches is neither 0 nor 1".to_string();
                let remedy = "is it a trace of ChampSim, with 64-byte records (not CloudSuite's)?";
                return Err(input.wrong(place, what, remedy));
            }
            let (words, _) = record.as_chunks::<8>();
            let words: [u64; RECORD / 8] = std::array::from_fn(|n| u64::from_le_bytes(words[n]));
            if instructions {
                to.access(words[0], 1, false, place)?;
            }
            for &address in words[LOADS / 8..].iter().filter(|&&address| address != 0) {
                to.access(address, 1, false, place)?;
            }
            for &address in words[STORES / 8..LOADS / 8].iter().filter(|&&address| address != 0) {
                to.access(address, 1, true, place)?;
            }
            at += RECORD as u64;
        }
        if !rest.is_empty() {
            let what = format!("{} bytes are left, and a record has {RECORD}", rest.len());
            return Err(input.wrong(Place::Byte(at), what, "it is truncated, or --from is wrong"));
        }
        if filled < buffer.len() {
            return Ok(());
        }
    }
}
