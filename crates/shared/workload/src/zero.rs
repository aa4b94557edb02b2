//! Zeroing kernels: stores through the caches and past them, as wide as the processor has them.
//!
//! Which of them there are is asked of the processor,
//! not of the build. They are written in assembler because a compiler makes any plain loop that stores zeros
//! into a call of memset.
//!
//! # Safety
//! A kernel writes `blocks` times 64 bytes from an aligned start on, and nothing else. [`Kernel::zero`] is the
//! only caller: it cuts a borrowed slice into an aligned middle of whole blocks and two ends, so all writes
//! lie in the slice. A kernel whose instructions a processor may lack is only in the list that [`kernels`]
//! gives if the processor says it has them, and a [`Kernel`] cannot be made elsewhere.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// What is written at once, and the unit of alignment: the widest store there is.
const BLOCK: usize = 64;

/// The kind of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches.
    Temporal,
    /// Past the caches, as the processor has them for it.
    NonTemporal,
    /// The processor's own instruction for it, or the C library's memset: what operating systems use.
    System,
}

/// Zeroes so many blocks from an aligned start on.
type Blocks = unsafe fn(*mut u8, usize);

/// One way to zero memory.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Its name: the instruction.
    pub name: &'static str,
    /// The kind of stores.
    pub stores: Stores,
    blocks: Blocks,
}

impl Kernel {
    /// Zeroes `memory` in calls of `bulk` bytes each; non-temporal stores are waited for after each call.
    pub fn zero(&self, memory: &mut [u8], bulk: usize) {
        for part in memory.chunks_mut(bulk.max(1)) {
            let (head, blocks, tail) = aligned(part);
            head.fill(0);
            tail.fill(0);
            // SAFETY: `blocks` is borrowed exclusively, begins at a multiple of BLOCK and is a multiple
            // of it long; the kernel is one of this processor's, as it came from `kernels`.
            unsafe { (self.blocks)(blocks.as_mut_ptr(), blocks.len() / BLOCK) };
        }
    }
}

fn aligned(part: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let head = part.as_ptr().align_offset(BLOCK).min(part.len());
    let (head, rest) = part.split_at_mut(head);
    let whole = rest.len() / BLOCK * BLOCK;
    let (blocks, tail) = rest.split_at_mut(whole);
    (head, blocks, tail)
}

/// Those that this processor has: the widest of each kind first.
pub fn kernels() -> Vec<Kernel> {
    #[cfg(target_arch = "x86_64")]
    {
        x86::kernels()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        vec![Kernel { name: "memset", stores: Stores::System, blocks: memset }]
    }
}

/// # Safety
/// `blocks` times BLOCK bytes from `start` on may be written.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn memset(start: *mut u8, blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe { start.write_bytes(0, blocks * BLOCK) };
    // What was written must not be found unused.
    std::hint::black_box(start);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, Blocks, Kernel, Stores, asm};
    use std::arch::is_x86_feature_detected as has;
    use std::arch::x86_64::{__m128i, __m256i, __m512i, _mm512_setzero_si512};
    use std::arch::x86_64::{_mm_setzero_si128, _mm256_setzero_si256};

    pub(super) fn kernels() -> Vec<Kernel> {
        use Stores::{NonTemporal, System, Temporal};
        let all: [(bool, &'static str, Stores, Blocks); 7] = [
            (true, "rep stosb", System, string),
            (has!("avx512f"), "vmovdqa64 zmm", Temporal, temporal_512),
            (has!("avx2"), "vmovdqa ymm", Temporal, temporal_256),
            (true, "movdqa xmm", Temporal, temporal_128),
            (has!("avx512f"), "vmovntdq zmm", NonTemporal, past_512),
            (has!("avx2"), "vmovntdq ymm", NonTemporal, past_256),
            (true, "movntdq xmm", NonTemporal, past_128),
        ];
        let had = all.into_iter().filter(|(has, ..)| *has);
        had.map(|(_, name, stores, blocks)| Kernel { name, stores, blocks }).collect()
    }

    /// # Safety
    /// `blocks` times BLOCK bytes from `start` on may be written.
    unsafe fn string(start: *mut u8, blocks: usize) {
        // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it.
        unsafe {
            asm!("rep stosb", inout("rcx") blocks * BLOCK => _, inout("rdi") start => _, in("al") 0u8,
                options(nostack, preserves_flags));
        }
    }

    /// One kernel: `$each` stores of `$wide` bytes fill a block.
    macro_rules! kernel {
        ($name:ident, $feature:literal, $vector:ty, $zero:ident, $class:ident, $store:literal, $past:literal) => {
            /// # Safety
            /// `blocks` times BLOCK bytes from `start` on may be written, `start` is a multiple of BLOCK,
            /// and the processor has the feature.
            #[target_feature(enable = $feature)]
            unsafe fn $name(start: *mut u8, blocks: usize) {
                const WIDE: usize = size_of::<$vector>();
                let zero = $zero();
                for place in (0..blocks * BLOCK).step_by(WIDE) {
                    // SAFETY: the caller's promise; `place` plus a store's width is within the blocks.
                    unsafe {
                        asm!(concat!($store, " [{to}], {zero}"), to = in(reg) start.add(place),
                            zero = in($class) zero, options(nostack, preserves_flags));
                    }
                }
                if $past {
                    // SAFETY: it orders stores and does nothing else. `_mm_sfence` is unsafe in old compilers only.
                    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
                }
            }
        };
    }

    kernel!(temporal_512, "avx512f", __m512i, _mm512_setzero_si512, zmm_reg, "vmovdqa64", false);
    kernel!(temporal_256, "avx2", __m256i, _mm256_setzero_si256, ymm_reg, "vmovdqa", false);
    kernel!(temporal_128, "sse2", __m128i, _mm_setzero_si128, xmm_reg, "movdqa", false);
    kernel!(past_512, "avx512f", __m512i, _mm512_setzero_si512, zmm_reg, "vmovntdq", true);
    kernel!(past_256, "avx2", __m256i, _mm256_setzero_si256, ymm_reg, "vmovntdq", true);
    kernel!(past_128, "sse2", __m128i, _mm_setzero_si128, xmm_reg, "movntdq", true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_processors_own_way_is_there_and_names_differ() {
        let all = kernels();
        assert!(all.iter().any(|kernel| kernel.stores == Stores::System));
        for (place, kernel) in all.iter().enumerate() {
            assert!(all[..place].iter().all(|other| other.name != kernel.name));
        }
    }

    proptest! {
        #[test]
        fn all_of_a_slice_becomes_zero_and_nothing_else(
            before in 0usize..130,
            length in 0usize..9000,
            bulk in 0usize..5000,
        ) {
            for kernel in kernels() {
                let mut memory = vec![0xa5u8; before + length + 70];
                kernel.zero(&mut memory[before..before + length], bulk);
                prop_assert!(memory[before..before + length].iter().all(|byte| *byte == 0));
                let outside = memory[..before].iter().chain(&memory[before + length..]);
                prop_assert!(outside.clone().all(|byte| *byte == 0xa5), "{}", kernel.name);
            }
        }
    }
}
