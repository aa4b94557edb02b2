//! `jumps`: the kernel behind `superpage tlb`'s instruction side: a cycle of jumps through places that the caller
//! chooses.
//!
//! # Safety
//! Bytes are written and then executed. [`Jumps::link`] checks that the places lie inside the memory, do not overlap
//! and are within a jump's 32-bit distance, and writes a complete jump at each place (at the first place, a function
//! that contains a jump). Then it reads all of them back: if one physical page is mapped at two addresses and one place
//! overwrote another, the result is an error. From then on the memory is borrowed exclusively and not writable, so
//! execution follows exactly these jumps until the function at the first place has counted the laps and returns.

use sys::SysError;
use sys::code::Code;

use crate::chase::swaps;
use crate::latency::ticks;

/// Code of the first place: `dec rdi; jz +5; jmp next; ret`, a function whose argument is the number of laps plus one.
const FUNCTION: [u8; 11] = [0x48, 0xff, 0xcf, 0x74, 0x05, 0xe9, 0, 0, 0, 0, 0xc3];
/// Offset in bytes of the jump in [`FUNCTION`].
const JUMP_AT: usize = 5;
/// Number of bytes of a jump: E9, and the distance from the jump's end.
const JUMP: usize = 5;

/// Why a cycle of jumps could not be made.
#[derive(Debug, thiserror::Error)]
pub enum JumpsError {
    /// The encoding of jumps is implemented for x86-64 only.
    #[error("how jumps are written is known for x86-64 only")]
    UnknownProcessor,
    /// An invalid place for a jump.
    #[error("place {0} of the memory lies outside, too near another or too far from it")]
    BadPlace(usize),
    /// The bytes read back at a place differ from those written.
    #[error("place {0} of the memory shows what was written to another")]
    ReadBack(usize),
    /// The protection of the memory cannot be changed.
    #[error(transparent)]
    System(#[from] SysError),
}

/// A cycle of jumps through places of a mapping.
#[derive(Debug)]
pub struct Jumps<'a> {
    /// The code, executable while this value lives.
    code: &'a mut Code,
    first: usize,
}

impl<'a> Jumps<'a> {
    /// Writes a jump at each of the `places` (offsets in bytes), and links them in one cycle in a random order from
    /// `seed` (Sattolo's shuffle).
    ///
    /// # Errors
    /// The places are invalid, or the memory cannot be made executable.
    pub fn link(code: &'a mut Code, places: &[usize], seed: u64) -> Result<Self, JumpsError> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(JumpsError::UnknownProcessor);
        }
        check(code.size(), places)?;
        let mut next = places.to_vec();
        for (i, j) in swaps(places.len() as u64, seed) {
            next.swap(i as usize, j as usize);
        }
        let bytes = code.writable()?.bytes_mut();
        let words = |index: usize| instructions(index == 0, places[index], next[index]);
        for (index, place) in places.iter().enumerate() {
            let (words, length) = words(index);
            bytes[*place..place + length].copy_from_slice(&words[..length]);
        }
        let bytes = code.executable()?.bytes();
        for (index, place) in places.iter().enumerate() {
            let (words, length) = words(index);
            if bytes[*place..place + length] != words[..length] {
                return Err(JumpsError::ReadBack(*place));
            }
        }
        Ok(Self { code, first: places[0] })
    }

    /// Runs the cycle `laps` times; returns the number of elapsed ticks.
    ///
    /// # Errors
    /// It does not fail after `link`, because the memory is already executable.
    pub fn ticks(&mut self, laps: u64) -> Result<u64, JumpsError> {
        let address = self.code.executable()?.address() + self.first as u64;
        let start = ticks();
        run(address, laps + 1);
        Ok(ticks().wrapping_sub(start))
    }
}

#[cfg(target_arch = "x86_64")]
fn run(address: u64, laps_and_one: u64) {
    // SAFETY: `link` wrote this function and all jumps and read them back; the memory is executable and borrowed
    // exclusively. The code changes only RDI and flags, which the ABI allows.
    unsafe {
        let function: extern "sysv64" fn(u64) = std::mem::transmute(address as *const u8);
        function(laps_and_one);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn run(_: u64, _: u64) {
    unreachable!("nothing was linked")
}

fn check(length: usize, places: &[usize]) -> Result<(), JumpsError> {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let (first, last) = (*sorted.first().ok_or(JumpsError::BadPlace(0))?, sorted[sorted.len() - 1]);
    if last.checked_add(FUNCTION.len()).is_none_or(|end| end > length)
        || last - first > i32::MAX as usize - FUNCTION.len()
    {
        return Err(JumpsError::BadPlace(last));
    }
    let near = sorted.windows(2).find(|pair| pair[1] - pair[0] < FUNCTION.len());
    near.map_or(Ok(()), |pair| Err(JumpsError::BadPlace(pair[1])))
}

/// Encodes a jump between two places. Returns the buffer and the number of bytes used.
fn instructions(is_first: bool, from: usize, to: usize) -> ([u8; 11], usize) {
    let (mut bytes, at, length) = match is_first {
        true => (FUNCTION, JUMP_AT, FUNCTION.len()),
        false => ([0; 11], 0, JUMP),
    };
    let distance = to as i64 - (from + at + JUMP) as i64;
    bytes[at] = 0xe9;
    // `check` ensures that the distance fits in 32 bits.
    bytes[at + 1..at + JUMP].copy_from_slice(&(distance as i32).to_le_bytes());
    (bytes, length)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sys::mem::{Backing, Mapping};

    fn code(bytes: usize) -> Code {
        Code::new(Mapping::anonymous(bytes, Backing::Pages).unwrap())
    }

    proptest! {
        #[test]
        fn a_cycle_meets_every_place_once_and_ends(count in 1usize..300, step in 11usize..500, seed: u64) {
            let mut code = code(count * step + 16);
            let places: Vec<usize> = (0..count).map(|i| i * step).collect();
            let mut jumps = Jumps::link(&mut code, &places, seed).unwrap();
            prop_assert!(jumps.ticks(3).unwrap() > 0);
            let bytes = code.executable().unwrap().bytes();
            let (mut here, mut met) = (0, 0);
            loop {
                let at = here + if here == 0 { JUMP_AT } else { 0 };
                prop_assert_eq!(bytes[at], 0xe9);
                let distance = i32::from_le_bytes(bytes[at + 1..at + JUMP].try_into().unwrap());
                here = (at + JUMP).strict_add_signed(distance as isize);
                met += 1;
                if here == 0 {
                    break;
                }
            }
            prop_assert_eq!(met, count);
        }
    }

    #[test]
    fn places_that_no_jump_fits_are_refused() {
        let mut code = code(4096);
        for places in [vec![], vec![4090], vec![0, 10], vec![64, 64], vec![usize::MAX]] {
            let linked = Jumps::link(&mut code, &places, 1);
            assert!(matches!(linked, Err(JumpsError::BadPlace(_))), "{places:?}");
        }
    }

    #[test]
    fn a_place_that_is_another_is_refused() {
        let page = sys::param::page_size();
        let bytes = page.bytes() as usize;
        let file = std::fs::File::from(sys::memfd::create("jumps", None).unwrap());
        file.set_len(page.bytes()).unwrap();
        let mut memory = Mapping::anonymous(2 * bytes, Backing::Pages).unwrap();
        for offset in [0, bytes] {
            memory.put_file(offset, bytes, std::os::fd::AsFd::as_fd(&file), 0).unwrap();
        }
        let mut code = Code::new(memory);
        let linked = Jumps::link(&mut code, &[64, bytes + 64], 1);
        assert!(matches!(linked, Err(JumpsError::ReadBack(_))), "{linked:?}");
        assert!(Jumps::link(&mut code, &[64, bytes + 128], 1).is_ok());
    }
}
