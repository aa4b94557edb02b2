//! Measures the benefit of superpages for a program: samples, statistics, comparisons, verdicts and their page.
//!
//! `procedure` decides which run comes next. `warm` makes frames equally warm. `execute` makes the run while `watch`
//! observes it. A `Sample` has the facts of one run, a `Document` those of all runs. `stats`, `verdict` and `analysis`
//! (from a document to its verdicts) are pure; `html` and `csv` present the result. `prices` measures the cost of
//! accesses on this machine, `zeroing` the cost of zeroing, `bench` how fast a process gets memory. `fragment`
//! fragments free memory. `running` compares the memory of a service that already runs.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod arrays;
pub mod bench;
pub mod contiguous;
pub mod counters;
pub mod csv;
pub mod document;
pub mod evaluation;
pub mod execute;
mod first_touch;
pub mod fragment;
pub mod html;
pub mod library;
mod looks;
pub mod measure;
pub mod metric;
pub mod prices;
pub mod procedure;
pub mod process_tree;
pub mod running;
pub mod sample;
pub mod schedule;
pub mod series;
pub mod service;
pub mod spread;
pub mod stats;
pub mod supply;
pub mod verdict;
pub mod warm;
pub mod watch;
pub mod zeroing;
