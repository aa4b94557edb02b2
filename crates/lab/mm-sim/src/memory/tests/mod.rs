//! Physical memory against its naive twin, and the rules that the sources state as tables.

mod compaction;
mod fallback;
mod nodes;
mod reclaim;
mod twin;
mod users;
mod zeroed;
