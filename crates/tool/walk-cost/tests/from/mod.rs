//! What the tests of the readers share.

pub mod perf_data;
