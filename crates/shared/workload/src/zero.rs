//! Zeroing kernels: temporal and non-temporal stores, of all widths that the CPU supports.
//!
//! The available kernels are detected at run time. They are inline assembly, because a compiler turns any plain loop
//! that stores zeros into a call of memset.
//!
//! # Safety
//! A kernel writes exactly `blocks` times 64 bytes, starting at an aligned address. [`Kernel::zero`] is the only
//! caller. It splits a borrowed slice into two ends and an aligned middle of whole blocks, so all writes lie in the
//! slice. [`kernels`] lists a kernel only if the CPU reports its instructions, and a [`Kernel`] cannot be made in any
//! other way.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// Block size and alignment in bytes: the width of the widest store.
const BLOCK: usize = 64;

/// The kind of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches.
    Temporal,
    /// Past the caches (non-temporal).
    NonTemporal,
    /// The CPU's string instruction or the C library's memset, which operating systems use.
    System,
}

/// Zeroes a number of blocks, starting at an aligned address.
type Blocks = unsafe fn(*mut u8, usize);

/// One way to zero memory.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// The kernel's name: its instruction.
    pub name: &'static str,
    /// The kind of stores.
    pub stores: Stores,
    blocks: Blocks,
}

impl Kernel {
    /// Zeroes `memory` in calls of `bulk` bytes each; a fence follows the non-temporal stores of each call.
    pub fn zero(&self, memory: &mut [u8], bulk: usize) {
        for part in memory.chunks_mut(bulk.max(1)) {
            let (head, blocks, tail) = aligned(part);
            head.fill(0);
            tail.fill(0);
            // SAFETY: `blocks` is borrowed exclusively, starts at a multiple of BLOCK and has a multiple of BLOCK as
            // length; the kernel runs on this CPU, since it came from `kernels`.
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

/// The kernels that this CPU supports: the widest of each kind first.
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
    // SAFETY: guaranteed by the caller.
    unsafe { start.write_bytes(0, blocks * BLOCK) };
    // Keeps the compiler from removing the stores.
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
        // SAFETY: guaranteed by the caller; the ABI ensures that the direction flag is clear.
        unsafe {
            asm!("rep stosb", inout("rcx") blocks * BLOCK => _, inout("rdi") start => _, in("al") 0u8,
                options(nostack, preserves_flags));
        }
    }

    /// Defines a kernel: stores of the vector's width fill a block.
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
                    // SAFETY: guaranteed by the caller; `place` plus a store's width lies within the blocks.
                    unsafe {
                        asm!(concat!($store, " [{to}], {zero}"), to = in(reg) start.add(place),
                            zero = in($class) zero, options(nostack, preserves_flags));
                    }
                }
                if $past {
                    // SAFETY: a fence only orders stores. (Inline assembly, because `_mm_sfence` is unsafe in old
                    // compilers only.)
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
