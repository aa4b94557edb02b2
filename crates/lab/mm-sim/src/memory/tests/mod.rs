//! Compares physical memory with a reference model and with the tables of the sources.

mod compaction;
mod fallback;
mod nodes;
mod reclaim;
mod twin;
mod users;
mod zeroed;
