//! What superpages were worth: samples, statistics, comparison, reports.
//!
//! `experiment` decides which run comes next, `warm` levels the ground, `execute` makes the run and
//! `watch` looks at it meanwhile; `sample` is what is known of one run, `document` of all of them. `stats` and `verdict`
//! are pure, and so is `analysis`, which goes from a document to its verdicts; `html` and `csv`
//! draw it. `prices` measures what accesses cost on this machine, for `prediction`; `zeroing` what zeroing does.
//! `bench` is the document of how fast a process gets memory.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod bench;
pub mod csv;
pub mod document;
pub mod execute;
pub mod family;
mod first_touch;
pub mod html;
pub mod ledger_file;
pub mod library;
pub mod metric;
pub mod prices;
pub mod procedure;
pub mod sample;
pub mod schedule;
pub mod stats;
pub mod verdict;
mod warm;
pub mod watch;
pub mod zeroing;
