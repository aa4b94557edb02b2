//! Groups samples into complete blocks, and so decides which samples count.
//!
//! A run may fail or be cut off. A block counts for a comparison only if *both* its arms have *both* their samples,
//! because the drift inside the block cancels only then. Missing samples of other arms do not matter. Dropped blocks
//! are counted and reported: if an arm fails *because* it is slow, dropping flatters it.

use crate::schedule::Slot;
use std::collections::BTreeMap;

/// A measured value and its slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Block, position and arm of the run.
    pub at: Slot,
    /// The metric, in base units. Must be finite and above zero to be compared as a ratio.
    pub value: f64,
}

/// Why samples cannot be compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// NaN or infinity: a failed run was recorded as a value.
    #[error("arm {arm}, block {block}: {value} is not a finite number; leave out failed runs")]
    NotFinite {
        /// The arm.
        arm: u32,
        /// The block.
        block: u32,
        /// The value.
        value: f64,
    },
    /// Zero or negative values have no ratio.
    #[error("arm {arm}, block {block}: {value} is not above zero, so it has no ratio to compare")]
    NotPositive {
        /// The arm.
        arm: u32,
        /// The block.
        block: u32,
        /// The value.
        value: f64,
    },
    /// More than two samples of one arm in one block: not an ABBA schedule.
    #[error("arm {arm}, block {block}: more than two samples in one block")]
    TooMany {
        /// The arm.
        arm: u32,
        /// The block.
        block: u32,
    },
    /// No block has both samples of both arms.
    #[error("no block has both runs of arm {arm} and both of arm {reference}")]
    NoCompleteBlock {
        /// The arm.
        arm: u32,
        /// The reference arm.
        reference: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub reference: [f64; 2],
    pub arm: [f64; 2],
}

impl Pair {
    /// Returns the logarithm of the reference's geometric mean over the arm's.
    pub fn log_ratio_of_means(&self) -> f64 {
        let mean = |[a, b]: [f64; 2]| (a.ln() + b.ln()) / 2.0;
        mean(self.reference) - mean(self.arm)
    }
}

/// Returns the complete blocks of `arm` against `reference` in block order, and the number of dropped blocks.
pub(crate) fn complete_blocks(
    samples: &[Sample],
    reference: u32,
    arm: u32,
) -> Result<(Vec<Pair>, u32), SampleError> {
    let references = blocks_of(samples, reference)?;
    let mut arms = blocks_of(samples, arm)?;
    let begun =
        references.keys().chain(arms.keys()).collect::<std::collections::BTreeSet<_>>().len();
    let mut pairs = Vec::new();
    for (block, reference) in references {
        if let (Some(reference), Some(arm)) =
            (both(&reference), arms.remove(&block).as_deref().and_then(both))
        {
            pairs.push(Pair { reference, arm });
        }
    }
    if pairs.is_empty() {
        return Err(SampleError::NoCompleteBlock { arm, reference });
    }
    let dropped = (begun - pairs.len()) as u32;
    Ok((pairs, dropped))
}

/// Returns the values of one arm by block, one or two each. They ascend inside a block, so that the order of a block's
/// samples does not matter, not even in the last bit.
pub(crate) fn blocks_of(
    samples: &[Sample],
    arm: u32,
) -> Result<BTreeMap<u32, Vec<f64>>, SampleError> {
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for &Sample { at: Slot { block, .. }, value } in samples.iter().filter(|s| s.at.arm == arm) {
        if !value.is_finite() {
            return Err(SampleError::NotFinite { arm, block, value });
        }
        if value <= 0.0 {
            return Err(SampleError::NotPositive { arm, block, value });
        }
        let values = blocks.entry(block).or_default();
        if values.len() == 2 {
            return Err(SampleError::TooMany { arm, block });
        }
        values.push(value);
        values.sort_by(f64::total_cmp);
    }
    Ok(blocks)
}

pub(crate) fn both(values: &[f64]) -> Option<[f64; 2]> {
    values.try_into().ok()
}
