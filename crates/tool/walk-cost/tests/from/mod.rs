//! Shared helpers of the readers' tests.

pub mod perf_data;
