//! Computes reliable intervals from samples. Pure: no clock, no I/O, every draw is seeded.
//!
//! # The question
//! Arm and reference ran in ABBA blocks ([`crate::schedule`]). How many times better is the arm? [`compare`] answers
//! with the ratio of medians and an interval. [`stopping`] says when there are enough runs, and how much of the error a
//! look at the interim result spends. [`crate::verdict`] turns the interval into a word.
//!
//! # What the interval is for
//! The estimand is the scale factor between the arms: `arm ~ reference / s` in distribution, with the host's noise and
//! drift multiplying both. Then `s` is the ratio of medians, of means and of geometric means alike. If the arms also
//! differ in *shape* (one is bimodal, the other not), these ratios differ and there is no single true number. The
//! interval is then about the ratio of geometric means, or of most pairs of runs, and contains the printed ratio of
//! medians.
//!
//! # The method, and what was measured
//! The interval is the intersection of two intervals, each with half of the error. It reaches no farther from the
//! estimate than the spread of the runs (`tests/integration/methods.rs` prints these figures again):
//!
//! | coverage % at 99 % (median half width %) | blocks | bootstrap | between | shrunk | student | ranked | both |
//! |---|---|---|---|---|---|---|---|
//! | independent, CV 2 % | 2 | 51.9 (1.0) | 99.2 (59) | 100.0 (5.4) | 99.1 (7.1) | | 99.0 (6.7) |
//! | independent, CV 2 % | 5 | 89.8 (1.9) | 98.7 (3.8) | 99.6 (2.9) | 99.6 (3.0) | 99.8 (3.8) | 99.5 (3.0) |
//! | independent, CV 8 % | 2 | 51.9 (3.8) | 99.2 (237) | 84.9 (8.4) | 99.1 (28) | | 99.0 (27) |
//! | independent, CV 8 % | 5 | 89.8 (7.7) | 98.7 (15) | 94.0 (8.1) | 99.6 (12) | 99.8 (15) | 99.5 (12) |
//! | bimodal, 1.4x with p = 0.15 | 10 | 97.2 (1.3) | 99.7 (12) | 97.8 (9.1) | 100.0 (12) | 99.8 (1.8) | 99.8 (1.8) |
//! | bursts of 1.3x to 2.3x | 10 | 98.2 (3.3) | 99.8 (16) | 98.8 (13) | 100.0 (18) | 99.5 (3.3) | 99.5 (3.3) |
//! | AR(1), phi 0.75, 3 % | 5 | 94.2 (2.3) | 99.2 (3.5) | 99.9 (2.8) | 99.8 (3.1) | 100.0 (3.9) | 99.8 (3.1) |
//!
//! (2,000 experiments per row: a share of 99 % has a standard error of 0.2.)
//!
//! - *student*: Student's t of the randomized block design, with the error pooled from blocks and from runs inside
//!   them. Narrow if noise is light-tailed.
//! - *ranked*: van Elteren's ranks inside blocks. Narrow if a few runs are wild, as on a shared host.
//! - Rejected: the *bootstrap* of blocks (two blocks have three distinct resamples; it covers half of what it
//!   promises); t of the ratios *between* blocks alone, which made four runs of 1.30 s and 0.57 s "4.0e-4 to 11868";
//!   the same *shrunk* towards a prior variance, which is wrong on any host that is noisier than the prior.
//!
//! `tests/integration/error_rate.rs` checks the stopping rule with 68,000 experiments: 4,000 under each of 17 kinds of
//! noise, half of them with two equal programs. Under each kind of noise at most 0.35 % of equal programs were called
//! different, and at most 0.35 % of the intervals missed the true ratio; 1 % is stated. `tests/integration/verdicts.rs`
//! prints which verdicts are decided, and in what time.

mod compare;
pub mod describe;
mod interval;
mod pairs;
pub mod random;
pub mod randomization;
pub mod stopping;
pub mod student;

pub use compare::{Better, Comparison, Parts, Settings, compare};
pub use interval::Interval;
pub use pairs::{Sample, SampleError};
pub use student::Confidence;
