//! Models of programs: the published set, and small programs that exercise one mechanism each.

mod build;
mod gcc;
mod mechanisms;
mod mix;
mod redis;
mod tables;

use super::entry::Entry;
use super::entry::Given::Number;

pub use tables::{AreaTable, Build, Gcc, Kind, Model, Order, Redis, Visit};

/// The models.
pub(super) const ENTRIES: &[Entry] = &[
    mix::entry("xsbench", "XSBench -t 8 -s large -l 34 -p 5000000, unionised grid; model"),
    mix::entry(
        "canneal",
        "PARSEC canneal 8 15000 2000 2500000.nets 6000: a netlist in small objects on a growing heap; model",
    ),
    mix::entry(
        "canneal-jemalloc",
        "canneal with jemalloc, which maps memory in extents of 2 MiB and more; model",
    ),
    mix::entry(
        "blocksvm",
        "BlockSVM on kddb-raw in 4 blocks, each mapped, trained on and unmapped; model",
    ),
    mix::entry(
        "ann",
        "annoy, 1M x 100 floats, 300K queries on a mapped file that is only read; model",
    ),
    mix::entry("freqmine", "PARSEC freqmine webdocs_250k 11000: an FP-tree; model"),
    mix::entry("mcf", "605.mcf_s: network simplex, arcs in order and nodes at random; model"),
    mix::entry("deepsjeng", "631.deepsjeng_s: probes of a large transposition table; model"),
    mix::entry("xz", "657.xz_s: large buffers in order, match finders at random; model"),
    mix::entry(
        "graphchi",
        "GraphChi PageRank of twitter-2010, 3 iterations: edge buffers made anew for each part; model",
    ),
    Entry {
        name: "gcc",
        summary: "602.gcc_s: a heap that grows in small steps, and garbage that is freed; model",
        options: &["size"],
        defaults: |_, tables| vec![Number(gcc::size(&tables.gcc))],
        build: gcc::build,
    },
    Entry {
        name: "redis-cold",
        summary: "Redis, sets of 4 KB values into an empty store, with latencies; model",
        options: &["size", "operations"],
        defaults: |_, tables| redis::defaults(&tables.redis),
        build: redis::cold,
    },
    Entry {
        name: "redis-warm",
        summary: "Redis, sets and gets of 4 KB values in a full store, with latencies; model",
        options: &["size", "operations"],
        defaults: |_, tables| redis::defaults(&tables.redis),
        build: redis::warm,
    },
    Entry {
        name: "build",
        summary: "make -j9 buildkernel: thousands of short processes (operations); model",
        options: &["operations"],
        defaults: |_, tables| vec![Number(tables.build.processes.into())],
        build: build::build,
    },
    Entry {
        name: "growing-heap",
        summary: "a heap that grows by brk in steps (128K) and is written at once; mechanism check",
        options: &["size", "step"],
        defaults: |_, _| vec![Number(mechanisms::SIZE), Number(mechanisms::STEP)],
        build: mechanisms::growing_heap,
    },
    Entry {
        name: "sparse",
        summary: "one page in each 2 MiB is touched, then read at random; mechanism check",
        options: &["size", "operations", "weight"],
        defaults: |_, _| vec![Number(mechanisms::SIZE), Number(mechanisms::READS), Number(1)],
        build: mechanisms::sparse,
    },
    Entry {
        name: "alloc-free",
        summary: "pieces of 64 pages mapped, touched and unmapped at random; for faults per second",
        options: &["size", "operations"],
        defaults: |_, _| vec![Number(mechanisms::SIZE), Number(mechanisms::PAGES)],
        build: mechanisms::alloc_free,
    },
];
