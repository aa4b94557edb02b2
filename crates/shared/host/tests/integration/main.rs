//! The machine's files and pools, from fixtures and for real.

mod fixtures;
mod journal;
mod parsers;
mod pool;
mod pool_around;
mod shared;
mod this_machine;
