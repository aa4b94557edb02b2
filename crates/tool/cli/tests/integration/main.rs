//! What the command does, end to end: one program, so that all of it is linked once and runs side by side.

#[path = "../common/mod.rs"]
mod common;

mod advise;
mod bad_input;
mod bench;
mod bench_frag;
mod compare;
mod compare_series;
mod compare_shift;
mod design;
mod documents;
mod evaluate;
mod evaluate_on;
mod executors;
mod explain;
mod in_force;
mod in_force_harmless;
mod lab;
mod legacy;
mod measure;
mod package;
mod peaks;
mod pool;
mod predict;
mod programs;
mod record;
mod relinking;
mod run;
mod service;
mod signals;
mod tlb;
mod trace;
mod works;
