//! Experiments, statistics and reports, end to end.

#[path = "../common/mod.rs"]
mod common;

mod documents;
mod error_rate;
mod html;
mod methods;
mod numbers;
mod power;
mod prices;
mod properties;
mod schedule;
mod stopping;
mod verdict;
mod verdicts;
