//! Physical memory against its naive twin, and the rules that the sources state as tables.

mod fallback;
mod twin;
