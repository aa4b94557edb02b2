//! A bit per base page of a superpage.

/// Which of up to 512 pages have something: bit `slot % 64` of word `slot / 64`.
pub type Population = [u64; 8];
