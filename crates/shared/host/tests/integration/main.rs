//! The machine's files and pools, read from fixtures and from this machine.

mod fixtures;
mod journal;
mod parsers;
mod pool;
mod pool_around;
mod shared;
mod this_machine;
