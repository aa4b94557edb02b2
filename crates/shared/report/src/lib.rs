//! Rendering of reports, and parsing of documents (`document`). Numbers as text: `format` for measured figures, `sig3`
//! for figures of a model. HTML and SVG: `markup`, escaped by construction. Charts: `scale`, `axis`, `marks`, `legend`,
//! `place`, `swarm`. Also `tables` and `csv`, and `frame` for pictures and pages.
//!
//! Pure and total: equal values give equal bytes, and every value can be drawn. See docs/decisions/crates.md#2.
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
