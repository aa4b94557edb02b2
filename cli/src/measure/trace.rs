//! Measuring by a recorded trace.

use super::Measured;
use crate::exit::Failure;

/// Records the program and runs its trace through a model of this machine's TLB.
pub fn by_trace(_command: &[String]) -> Result<Measured, Failure> {
    Err(Failure::cannot(
        "measuring by a recorded trace is not available yet; count where there are performance \
         counters, and give the counts with --from",
    ))
}
