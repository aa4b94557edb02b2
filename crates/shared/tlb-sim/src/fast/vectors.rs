//! `Vectors`: looks a tag up in a set with the host's vector instructions. `pulp` detects these
//! instructions at run time and makes them callable without unsafe code.

/// A way to compare all tags of a set at once. A value of this type proves that the host has the
/// instructions.
pub(crate) trait Vectors: Copy + Send + 'static {
    /// Moves `tag` to the first lane; returns whether `tag` was in one of the lanes of `ways`. The tags that were
    /// before it move one lane further. If it was missing, all tags move, and the last tag is dropped.
    fn touch<const N: usize>(self, row: &mut [u32; N], tag: u32, ways: u64) -> bool;

    /// Runs `body`, compiled for these vectors.
    fn vectorized<R>(body: impl FnOnce() -> R) -> R;
}

/// No vectors: lane by lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

impl Vectors for Scalar {
    #[inline(always)]
    fn touch<const N: usize>(self, row: &mut [u32; N], tag: u32, ways: u64) -> bool {
        let mut carried = tag;
        for lane in row.iter_mut().take(ways.trailing_ones() as usize) {
            std::mem::swap(lane, &mut carried);
            if carried == tag {
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn vectorized<R>(body: impl FnOnce() -> R) -> R {
        body()
    }
}

/// Mask of the lanes up to the lowest bit of `hits`; all lanes if `hits` is 0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
const fn up_to(hits: u64) -> u64 {
    hits ^ hits.wrapping_sub(1)
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{V3, V4};

#[cfg(target_arch = "x86_64")]
mod x86 {
    pub(crate) use pulp::x86::{V3, V4};

    use super::{Vectors, up_to};

    /// Number of lanes per vector. 512-bit vectors are slower on Zen 4, which splits each store into two; a load that
    /// follows waits for both.
    const LANES: usize = 8;
    /// Maximum number of vectors per row.
    const MOST: usize = 4;

    /// AVX-512: mask registers, and a shift that brings in the last lane of the preceding vector.
    impl Vectors for V4 {
        #[inline(always)]
        fn touch<const N: usize>(self, row: &mut [u32; N], tag: u32, ways: u64) -> bool {
            const { assert!(N.is_multiple_of(LANES) && N <= LANES * MOST) };
            let tags = self.avx._mm256_set1_epi32(tag as i32);
            let (parts, _) = row.as_chunks_mut::<LANES>();
            // The tag itself precedes the first vector.
            let mut old = [tags; MOST + 1];
            let mut hits = 0;
            for (i, part) in parts.iter().enumerate() {
                old[i + 1] = pulp::cast(*part);
                let equal = self.avx512vl._mm256_cmpeq_epi32_mask(old[i + 1], tags);
                hits |= u64::from(equal) << (LANES * i);
            }
            hits &= ways;
            let moved = up_to(hits);
            for (i, part) in parts.iter_mut().enumerate() {
                let lanes = (moved >> (LANES * i)) as u8;
                let (before, this) = (old[i], old[i + 1]);
                let new = self.avx512f._mm256_mask_alignr_epi32::<7>(this, lanes, this, before);
                *part = pulp::cast(new);
            }
            hits != 0
        }

        #[inline(always)]
        fn vectorized<R>(body: impl FnOnce() -> R) -> R {
            match V4::try_new() {
                Some(vectors) => vectors.vectorize(body),
                None => body(),
            }
        }
    }

    /// AVX2: masks are vectors.
    impl Vectors for V3 {
        #[inline(always)]
        fn touch<const N: usize>(self, row: &mut [u32; N], tag: u32, ways: u64) -> bool {
            const { assert!(N.is_multiple_of(LANES) && N <= LANES * MOST) };
            let (avx, avx2) = (self.avx, self.avx2);
            let tags = avx._mm256_set1_epi32(tag as i32);
            let one_back = avx._mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
            let lane = avx._mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let (parts, _) = row.as_chunks_mut::<LANES>();
            let mut old = [tags; MOST + 1];
            let mut hits = 0;
            for (i, part) in parts.iter().enumerate() {
                old[i + 1] = pulp::cast(*part);
                let equal = avx2._mm256_cmpeq_epi32(old[i + 1], tags);
                let equal = avx._mm256_movemask_ps(avx._mm256_castsi256_ps(equal));
                hits |= u64::from(equal as u32) << (LANES * i);
            }
            hits &= ways;
            // The last lane that moves; beyond all lanes if the tag was missing.
            let last = avx._mm256_set1_epi32(hits.trailing_zeros() as i32);
            for (i, part) in parts.iter_mut().enumerate() {
                let this = avx2._mm256_permutevar8x32_epi32(old[i + 1], one_back);
                let before = avx2._mm256_permutevar8x32_epi32(old[i], one_back);
                let shifted = avx2._mm256_blend_epi32::<1>(this, before);
                let number = avx2._mm256_add_epi32(lane, avx._mm256_set1_epi32((LANES * i) as i32));
                let stays = avx2._mm256_cmpgt_epi32(number, last);
                *part = pulp::cast(avx2._mm256_blendv_epi8(shifted, old[i + 1], stays));
            }
            hits != 0
        }

        #[inline(always)]
        fn vectorized<R>(body: impl FnOnce() -> R) -> R {
            match V3::try_new() {
                Some(vectors) => vectors.vectorize(body),
                None => body(),
            }
        }
    }
}
