//! What superpages would bring to a running process, before anything of it is touched.
//!
//! The process's threads are sampled by CPU time. Around each sampled instruction the code is decoded, and the address
//! of the memory access that the thread waited for is computed from the sampled registers. From the addresses follows
//! which pages the process uses how often, and from that, with this machine's prices of accesses, the share of time that
//! superpages would save.
//!
//! Nothing is written to the process or to the machine.
#![forbid(unsafe_code)]

mod advice;
mod code;
mod combine;
mod core;
mod damon;
mod fleet;
mod heat;
mod memory;
mod model;
mod peek;
mod remedy;
mod replay;
mod sampler;
mod streams;
mod verdict;

pub use advice::{Advice, AdviceError, Contiguity, Look, Region, advise, check, largest};
pub use combine::{Failed, Footprint, Group, by_service};
pub use damon::Damon;
pub use fleet::{
    Fleet, Merged, Node, NodeCounts, NodeDocument, Refused, SCHEMA, Service, Spread,
    UnknownProcesses, Unusable,
};
pub use heat::Heat;
pub use model::Costs;
pub use remedy::{Remedy, remedies_of};
pub use sampler::SampleError;
pub use verdict::{Range, Verdict, Why};
