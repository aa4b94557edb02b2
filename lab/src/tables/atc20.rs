//! The tables of Quicksilver's talk at ATC 2020 (Zhu, Cox, Rixner; slides 14, 17, 21 to 24).
//!
//! One machine, one parameter set per design, one per workload. What was fitted, and to which cell, is in
//! `machines/e3-1245v6.toml`, `designs/*.toml` and `lab/data/workloads.toml`; the cells are marked
//! here. Everything else is held out.

use std::sync::Mutex;

use units::ByteSize;

use super::{Better, Cell, Entry, Role, Row, Step, Table};
use crate::load::Design;
use crate::{End, Experiment, LabError, Report, run, side_by_side};

/// The machine: indirect evidence says E3-1245 v6 with 32 GB (docs/sources/policies.md 4.1).
const MACHINE: &str = "e3-1245v6";
const MEMORY: ByteSize = ByteSize::gib(32);

const SPEEDUP: &str = "speed-up over Linux in the same condition";
const SIX: [&str; 6] = ["linux-4.3", "ingens", "hawkeye-pmu", "freebsd", "sync-1", "sync-64"];
const SEVEN: [&str; 7] =
    ["base", "linux-4.3", "ingens", "hawkeye-pmu", "freebsd", "sync-1", "sync-64"];

/// Figures of a workload: the slide's name, what is simulated, the published cells.
struct Line {
    name: &'static str,
    workload: &'static str,
    published: &'static [f64],
    /// Columns to which a parameter was fitted.
    fitted: &'static [usize],
}

pub(super) const TABLES: [Entry; 9] = [
    Entry {
        name: "quicksilver-zeroing",
        source: "slide 17",
        summary: "microseconds to zero 2 MiB, by processor, stores and bulk",
        run: |_| Ok(zeroing()),
    },
    Entry {
        name: "quicksilver-fresh",
        source: "slide 14",
        summary: "two programs on a fresh boot, four systems",
        run: |step| {
            let lines = &[
                Line { fitted: &[2, 3], published: &[1.0, 0.58, 0.53, 0.77], ..GRAPHCHI },
                Line {
                    name: "BlockSVM",
                    workload: "blocksvm",
                    published: &[1.0, 0.81, 0.73, 0.96],
                    fitted: &[2],
                },
            ];
            speedups("quicksilver-fresh", "slide 14", "none", &SIX[..4], lines, step)
        },
    },
    Entry {
        name: "quicksilver-frag0",
        source: "slide 21",
        summary: "five programs, memory not fragmented",
        run: |step| speedups("quicksilver-frag0", "slide 21", "none", &SIX, &FRAG0, step),
    },
    Entry {
        name: "quicksilver-frag100",
        source: "slide 22",
        summary: "five programs, no superpage of those they need is free",
        run: |step| speedups("quicksilver-frag100", "slide 22", "frag-100", &SIX, &FRAG100, step),
    },
    Entry {
        name: "quicksilver-redis-frag0",
        source: "slide 23",
        summary: "Redis from a cold start: GB/s, memory not fragmented",
        run: |step| redis("quicksilver-redis-frag0", "none", &REDIS_GBPS[0], &[0, 1], step),
    },
    Entry {
        name: "quicksilver-redis-frag50",
        source: "slide 23",
        summary: "Redis from a cold start: GB/s, half of the superpages it needs are free",
        run: |step| redis("quicksilver-redis-frag50", "frag-50", &REDIS_GBPS[1], &[], step),
    },
    Entry {
        name: "quicksilver-redis-frag100",
        source: "slide 23",
        summary: "Redis from a cold start: GB/s, none of the superpages it needs is free",
        run: |step| redis("quicksilver-redis-frag100", "frag-100", &REDIS_GBPS[2], &[1], step),
    },
    Entry {
        name: "quicksilver-redis-latency",
        source: "slide 23",
        summary: "Redis from a cold start: 95th percentile of latency in ms, three levels",
        run: |step| latency(step),
    },
    Entry {
        name: "quicksilver-build",
        source: "slide 24",
        summary: "a kernel build: superpages, faults, time in the kernel",
        run: |step| build(step),
    },
];

const GRAPHCHI: Line =
    Line { name: "GraphChi PageRank", workload: "graphchi", published: &[], fitted: &[] };

const FRAG0: [Line; 5] = [
    Line {
        name: "GUPS",
        workload: "gups:size=8G,operations=4G,weight=1024",
        published: &[1.0, 0.87, 0.28, 0.96, 0.99, 0.98],
        fitted: &[1, 2],
    },
    Line { published: &[1.0, 0.58, 0.53, 0.77, 1.07, 1.05], fitted: &[2, 3], ..GRAPHCHI },
    Line {
        name: "Canneal",
        workload: "canneal",
        published: &[1.0, 0.95, 0.95, 1.14, 1.14, 1.14],
        fitted: &[3],
    },
    Line {
        name: "602.gcc_s",
        workload: "gcc",
        published: &[1.0, 1.0, 0.99, 1.05, 1.05, 1.05],
        fitted: &[3],
    },
    Line {
        name: "657.xz_s",
        workload: "xz",
        published: &[1.0, 0.96, 0.90, 0.99, 1.0, 1.0],
        fitted: &[2],
    },
];

const FRAG100: [Line; 5] = [
    Line { published: &[1.0, 1.02, 0.97, 0.96, 2.35, 2.29], fitted: &[3], ..FRAG0[0] },
    Line { published: &[1.0, 1.13, 1.11, 1.1, 2.18, 2.11], fitted: &[], ..GRAPHCHI },
    Line { published: &[1.0, 1.0, 1.01, 1.05, 1.12, 1.12], fitted: &[], ..FRAG0[2] },
    Line { published: &[1.0, 1.0, 1.0, 1.0, 1.05, 1.05], fitted: &[], ..FRAG0[3] },
    Line { published: &[1.0, 1.02, 1.02, 1.02, 1.14, 1.14], fitted: &[], ..FRAG0[4] },
];

/// Frag-0, 50, 100; columns as [`SEVEN`].
const REDIS_GBPS: [[f64; 7]; 3] = [
    [1.04, 1.34, 1.0, 1.0, 1.11, 1.26, 1.2],
    [1.04, 0.92, 0.95, 1.02, 1.04, 1.25, 1.27],
    [1.07, 0.81, 0.94, 1.0, 0.98, 1.31, 1.26],
];
const REDIS_P95: [[f64; 7]; 3] = [
    [5.6, 4.1, 5.9, 5.9, 6.1, 4.5, 4.8],
    [5.7, 10.2, 5.9, 5.9, 6.2, 4.5, 4.7],
    [5.6, 9.9, 6.1, 5.8, 6.5, 4.5, 4.6],
];
const REDIS: &str = "redis-cold";
/// What a build does in the kernel beside memory: programs started, files (docs/sources/policies.md 2.4
/// derives it from the slide's three times and counts; a machine that knows only memory cannot).
const OTHER_KERNEL_SECONDS: f64 = 36.9;
/// Bytes of value in each operation, and operations of the cold run (`lab/data/workloads.toml`).
const REDIS_BYTES: f64 = 4096.0 * 7.6e6;

/// What is run under each of the designs: `name` is what is told of it.
struct Cells<'a> {
    name: &'a str,
    workload: &'a str,
    fragmentation: &'a str,
}

/// Designs of a row that share a pass: to make a stream takes up to as long as a design's machine takes to run it.
const TOGETHER: usize = 2;

/// Runs all rows, a few designs of each at once; the reports of each row, in the order of the designs. A row is told
/// when it is begun.
fn reports(
    rows: &[Cells<'_>],
    designs: &[&str],
    step: &mut Step<'_>,
) -> Result<Vec<Vec<Report>>, LabError> {
    let designs: Vec<Design> = designs.iter().map(|name| crate::load::preset(name)).collect();
    let step = Mutex::new(step);
    let parts = || designs.chunks(TOGETHER).enumerate();
    let cells = rows.iter().flat_map(|row| parts().map(move |part| (row, part)));
    let done = side_by_side::cells(cells.collect(), |(row, (part, designs))| {
        if part == 0 {
            step.lock().expect("nothing in it panics")(row.name);
        }
        reports_of(row, designs)
    });
    let mut done = done.into_iter();
    let row = |_| done.by_ref().take(parts().count()).try_fold(Vec::new(), append);
    rows.iter().map(row).collect()
}

fn append(
    mut all: Vec<Report>,
    more: Result<Vec<Report>, LabError>,
) -> Result<Vec<Report>, LabError> {
    all.extend(more?);
    Ok(all)
}

fn reports_of(row: &Cells<'_>, designs: &[Design]) -> Result<Vec<Report>, LabError> {
    let experiment = Experiment {
        machine: hardware::preset(MACHINE).expect("a preset"),
        memory: MEMORY,
        fragmentation: row.fragmentation.parse().expect("written here"),
        fragmentation_name: row.fragmentation.to_string(),
        workload: row.workload.parse().expect("written here"),
        workload_name: row.workload.to_string(),
        seed: 1,
        swap: ByteSize(0),
        utilisation: false,
    };
    run(&experiment, designs)
}

fn done(report: &Report, figure: impl Fn(&Report) -> f64) -> Option<f64> {
    (report.end == End::Done).then(|| figure(report))
}

fn role(fitted: &[usize], column: usize) -> Role {
    if fitted.contains(&column) { Role::Fitted } else { Role::HeldOut }
}

fn table(
    name: &str,
    source: &str,
    figure: &str,
    better: Better,
    columns: &[&str],
    rows: Vec<Row>,
) -> Table {
    Table {
        name: name.to_string(),
        source: format!("Quicksilver, ATC 2020, {source}"),
        figure: figure.to_string(),
        better,
        columns: columns.iter().map(|column| (*column).to_string()).collect(),
        rows,
    }
}

fn speedups(
    name: &str,
    source: &str,
    fragmentation: &str,
    designs: &[&str],
    lines: &[Line],
    step: &mut Step<'_>,
) -> Result<Table, LabError> {
    let cells: Vec<_> = (lines.iter())
        .map(|line| Cells { name: line.name, workload: line.workload, fragmentation })
        .collect();
    let mut rows = Vec::new();
    for (line, reports) in lines.iter().zip(reports(&cells, designs, step)?) {
        let linux = done(&reports[0], Report::seconds);
        let cell = |(column, report): (usize, &Report)| Cell {
            published: Some(line.published[column]),
            simulated: done(report, Report::seconds).and_then(|own| Some(linux? / own)),
            role: if column == 0 { Role::Base } else { role(line.fitted, column) },
        };
        let cells = reports.iter().enumerate().map(cell).collect();
        rows.push(Row { name: line.name.to_string(), cells });
    }
    Ok(table(name, source, SPEEDUP, Better::Higher, designs, rows))
}

fn redis(
    name: &str,
    fragmentation: &str,
    published: &[f64; 7],
    fitted: &[usize],
    step: &mut Step<'_>,
) -> Result<Table, LabError> {
    let row = Cells { name: fragmentation, workload: REDIS, fragmentation };
    let reports = reports(&[row], &SEVEN, step)?.remove(0);
    let cell = |(column, report): (usize, &Report)| Cell {
        published: Some(published[column]),
        simulated: done(report, |report| REDIS_BYTES / report.seconds() / 1e9),
        role: role(fitted, column),
    };
    let cells = reports.iter().enumerate().map(cell).collect();
    let rows = vec![Row { name: "Redis, cold".to_string(), cells }];
    Ok(table(name, "slide 23", "GB/s", Better::Higher, &SEVEN, rows))
}

fn latency(step: &mut Step<'_>) -> Result<Table, LabError> {
    let cells = ["none", "frag-50", "frag-100"].map(|fragmentation| Cells {
        name: fragmentation,
        workload: REDIS,
        fragmentation,
    });
    let all = reports(&cells, &SEVEN, step)?;
    let mut rows = Vec::new();
    for ((Cells { name, .. }, published), reports) in cells.iter().zip(&REDIS_P95).zip(all) {
        let cell = |(column, report): (usize, &Report)| Cell {
            published: Some(published[column]),
            simulated: report.requests.as_ref().map(|requests| requests.p95 / 1000.0),
            role: Role::HeldOut,
        };
        let cells = reports.iter().enumerate().map(cell).collect();
        rows.push(Row { name: (*name).to_string(), cells });
    }
    let figure = "95th percentile of latency, ms";
    Ok(table("quicksilver-redis-latency", "slide 23", figure, Better::Lower, &SEVEN, rows))
}

fn build(step: &mut Step<'_>) -> Result<Table, LabError> {
    let designs = ["sync-1", "sync-64", "freebsd"];
    let row = Cells { name: "build", workload: "build", fragmentation: "none" };
    let reports = reports(&[row], &designs, step)?.remove(0);
    let row =
        |name: &str, published: [f64; 3], fitted: &[usize], figure: &dyn Fn(&Report) -> f64| Row {
            name: name.to_string(),
            cells: (0..3)
                .map(|column| Cell {
                    published: Some(published[column]),
                    simulated: done(&reports[column], figure),
                    role: role(fitted, column),
                })
                .collect(),
        };
    let made = |report: &Report| {
        let counters = &report.counters;
        (counters.made_at_fault + counters.made_in_place + counters.made_by_copy) as f64
    };
    let kernel = |report: &Report| {
        let all = report.ledger.total();
        let user: u64 = [
            crate::Cause::Work,
            crate::Cause::SecondTlb,
            crate::Cause::WalkBase,
            crate::Cause::WalkLarge,
        ]
        .iter()
        .map(|&cause| report.ledger[cause])
        .sum();
        (all - user) as f64 / (f64::from(report.mhz) * 1e6) + OTHER_KERNEL_SECONDS
    };
    let rows = vec![
        row("superpages", [200_500.0, 99_600.0, 36_900.0], &[0, 1, 2], &made),
        row("page faults", [5.3e6, 10.3e6, 30.2e6], &[0, 1, 2], &|report| {
            report.counters.faults as f64
        }),
        // A reserved page's cost was chosen with what docs/sources/policies.md 2.4 derives from these
        // three in view.
        row("time in the kernel, s of CPU", [89.4, 78.5, 98.0], &[0, 1, 2], &kernel),
        row("time, s", [197.7, 196.9, 203.7], &[0], &Report::seconds),
    ];
    let figure = "counts and seconds";
    Ok(table("quicksilver-build", "slide 24", figure, Better::Lower, &designs, rows))
}

/// Slide 17 is where the machines' costs come from, so every cell is fitted: it shows that they arrive.
fn zeroing() -> Table {
    let published = [
        ("e3-1245v6", [84.0, 67.0, 65.0, 92.0, 74.0, 71.0]),
        ("e5-2640v4", [409.0, 334.0, 325.0, 163.0, 113.0, 106.0]),
        ("r7-2700x", [185.0, 183.0, 159.0, 99.0, 60.0, 53.0]),
    ];
    let columns = [
        "temporal 4K",
        "temporal 32K",
        "temporal 2M",
        "non-temporal 4K",
        "non-temporal 32K",
        "non-temporal 2M",
    ];
    let rows = published
        .iter()
        .map(|(name, figures)| {
            let machine = hardware::preset(name).expect("a preset");
            let cell = |(column, &published): (usize, &f64)| {
                let stores =
                    [hardware::Stores::Temporal, hardware::Stores::NonTemporal][column / 3];
                let bulk = ByteSize(hardware::BULKS[column % 3]);
                let time = machine.costs.zero.time(stores, bulk, ByteSize::mib(2));
                Cell {
                    published: Some(published),
                    simulated: Some(time / 1000.0),
                    role: Role::Fitted,
                }
            };
            Row { name: (*name).to_string(), cells: figures.iter().enumerate().map(cell).collect() }
        })
        .collect();
    let figure = "microseconds for 2 MiB";
    table("quicksilver-zeroing", "slide 17", figure, Better::Lower, &columns, rows)
}
