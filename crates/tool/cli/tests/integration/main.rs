//! The command's tests, end to end, in one program: it is linked once, and its tests run in parallel.

#[path = "../common/mod.rs"]
mod common;

mod advise;
mod advise_merge;
mod bad_input;
mod bench;
mod bench_frag;
mod compare;
mod compare_running;
mod compare_series;
mod compare_shift;
mod design;
mod doctor;
mod documented;
mod documents;
mod evaluate;
mod evaluate_on;
mod executors;
mod explain;
mod in_force;
mod in_force_harmless;
mod lab;
mod legacy;
mod manage;
mod manage_service;
mod map;
mod measure;
mod package;
mod peaks;
mod pool;
mod predict;
mod programs;
mod quickstart;
mod record;
mod relinking;
mod run;
mod service;
mod signals;
mod tlb;
mod trace;
mod watching;
mod works;
