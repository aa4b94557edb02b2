//! Rendering of reports, and parsing of documents (`document`): numbers as text (`format` for measured figures, `sig3`
//! for those of a model), `markup` that is escaped by construction, `scale`, `axis`, `marks`, `legend`, `place` and
//! `swarm` for charts, `tables`, `csv`, and `frame` for the pictures and pages around them.
//!
//! Pure and total: equal values give equal bytes, and any value can be drawn. See docs/decisions/crates.md#2.
#![forbid(unsafe_code)]

pub mod axis;
pub mod csv;
pub mod document;
pub mod format;
pub mod frame;
pub mod legend;
pub mod marks;
pub mod markup;
pub mod place;
pub mod scale;
pub mod sig3;
pub mod swarm;
pub mod tables;
