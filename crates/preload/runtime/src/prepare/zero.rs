//! Zeroing with non-temporal stores, which leave the caches' contents in place.
//!
//! Measured (us for 2 MiB): non-temporal stores of 16 bytes 40, of 32 or 64 bytes 24 to 25, `rep stosb` 74, a fault on
//! a fresh superpage 216; on another machine 248 to 255 for all widths, 346 and 400. Hence stores of 32 bytes if the
//! processor has them: wider ones are no faster, and lower the clock of some cores (assumed).
//!
//! # Safety
//! The caller owns the memory.
//! See docs/decisions/prepare.md#3.

/// Zeroes `[start, start + length)`, both multiples of a base page.
///
/// # Safety
/// Writable memory that is not in use.
pub unsafe fn zero(start: usize, length: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller keeps this function's contract; AVX is tested for, SSE2 is part of x86-64.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx") {
            by_32(start, length);
        } else {
            by_16(start, length);
        }
        // Orders the non-temporal stores before the memory is handed out.
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller keeps this function's contract. libc's memset zeroes by cache line where the machine can.
    unsafe {
        std::ptr::write_bytes(start as *mut u8, 0, length)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn by_32(start: usize, length: usize) {
    use std::arch::x86_64::{__m256i, _mm256_setzero_si256, _mm256_stream_si256};
    let nothing = _mm256_setzero_si256();
    for line in (start..start + length).step_by(64) {
        let line = line as *mut __m256i;
        // SAFETY: the caller keeps this function's contract, and 32 divides a base page.
        unsafe {
            _mm256_stream_si256(line, nothing);
            _mm256_stream_si256(line.add(1), nothing);
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn by_16(start: usize, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_stream_si128};
    // SAFETY: SSE2 is part of x86-64; the contract, and 16 divides a base page.
    unsafe {
        let nothing = _mm_setzero_si128();
        for line in (start..start + length).step_by(64) {
            let line = line as *mut __m128i;
            (0..4).for_each(|at| _mm_stream_si128(line.add(at), nothing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_no_other_is_zeroed() {
        let page = crate::raw::base_page();
        type Zero = unsafe fn(usize, usize);
        let mut ways: Vec<Zero> = vec![zero];
        #[cfg(target_arch = "x86_64")]
        ways.push(by_16);
        for way in ways {
            let mut memory = vec![0xa5u8; 5 * page];
            let start = (memory.as_ptr() as usize).next_multiple_of(page) + page;
            let from = start - memory.as_ptr() as usize;
            // SAFETY: pages of ours.
            unsafe { way(start, 2 * page) };
            let (zeroed, rest): (Vec<_>, Vec<_>) = memory
                .drain(..)
                .enumerate()
                .partition(|(at, _)| (from..from + 2 * page).contains(at));
            assert!(zeroed.iter().all(|(_, byte)| *byte == 0));
            assert!(rest.iter().all(|(_, byte)| *byte == 0xa5));
        }
    }
}
