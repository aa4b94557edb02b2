//! Translation hardware and the costs of a machine, simulated.
#![forbid(unsafe_code)]
