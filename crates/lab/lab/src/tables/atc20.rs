//! The tables of Quicksilver's talk at ATC 2020 (Zhu, Cox, Rixner; slides 14, 17, 21 to 24).
//!
//! One machine, one parameter set per design, one per workload. `machines/e3-1245v6.toml`, `designs/*.toml` and
//! `crates/shared/workload-streams/data/workloads.toml` say which parameters were fitted to which cells. These cells
//! are marked here; all others are held out or checks. See docs/decisions/lab-model.md#13.

use machine::Stores;
use units::ByteSize;

use super::{Better, Conditions, Entry, Reports, Role, Row, Runs, Table, done, row};
use crate::Report;
use crate::analysis::{Account, Made};

/// The machine. Indirect evidence points to an E3-1245 v6 with 32 GB (docs/sources/policies.md 4.1).
const MACHINE: &str = "e3-1245v6";
const MEMORY: ByteSize = ByteSize::gib(32);

const SPEEDUP: &str = "speed-up over Linux in the same condition";
const DESIGNS: [&str; 6] =
    ["linux-4.3", "ingens", "hawkeye-pmu", "freebsd-11.2", "sync-1", "sync-64"];
const WITH_BASE: [&str; 7] =
    ["base", "linux-4.3", "ingens", "hawkeye-pmu", "freebsd-11.2", "sync-1", "sync-64"];

/// A workload: name on the slide, simulated workload, published cells.
struct Line {
    name: &'static str,
    workload: &'static str,
    published: &'static [f64],
    /// Columns to which a parameter was fitted.
    fitted: &'static [usize],
    /// Whether the row was added after all parameters were set.
    is_check: bool,
}

pub(super) const TABLES: [Entry; 13] = [
    Entry {
        name: "quicksilver-zeroing",
        source: "slide 17",
        summary: "microseconds to zero 2 MiB, by processor, stores and bulk",
        left_out: "nothing",
        runs: Vec::new,
        table: zeroing,
    },
    Entry {
        name: "quicksilver-fresh",
        source: "slide 14",
        summary: "two programs on a fresh boot, four systems",
        left_out: "nothing",
        runs: || speedup_runs("none", &DESIGNS[..4], &UNFRAGMENTED),
        table: |entry, reports| speedups(entry, &DESIGNS[..4], &UNFRAGMENTED, reports),
    },
    Entry {
        name: "quicksilver-frag0",
        source: "slide 21",
        summary: "eleven programs, memory not fragmented",
        left_out: "nothing",
        runs: || speedup_runs("none", &DESIGNS, &FRAG0),
        table: |entry, reports| speedups(entry, &DESIGNS, &FRAG0, reports),
    },
    Entry {
        name: "quicksilver-frag100",
        source: "slide 22",
        summary: "eleven programs, no superpage of those they need is free",
        left_out: "nothing",
        runs: || speedup_runs("frag-100", &DESIGNS, &FRAG100),
        table: |entry, reports| speedups(entry, &DESIGNS, &FRAG100, reports),
    },
    Entry {
        name: "quicksilver-redis-frag0",
        source: "slide 23",
        summary: "Redis from a cold start: GB/s, memory not fragmented",
        left_out: "nothing",
        runs: || redis_runs(&["none"]),
        table: |entry, reports| redis(entry, &REDIS_GBPS[0], &[0, 1], reports),
    },
    Entry {
        name: "quicksilver-redis-frag50",
        source: "slide 23",
        summary: "Redis from a cold start: GB/s, half of the superpages it needs are free",
        left_out: "nothing",
        runs: || redis_runs(&["frag-50"]),
        table: |entry, reports| redis(entry, &REDIS_GBPS[1], &[], reports),
    },
    Entry {
        name: "quicksilver-redis-frag100",
        source: "slide 23",
        summary: "Redis from a cold start: GB/s, none of the superpages it needs is free",
        left_out: "nothing",
        runs: || redis_runs(&["frag-100"]),
        table: |entry, reports| redis(entry, &REDIS_GBPS[2], &[1], reports),
    },
    Entry {
        name: "quicksilver-redis-warm-frag0",
        source: "slide 23",
        summary: "Redis in steady state: GB/s, memory not fragmented",
        left_out: "nothing",
        runs: || warm_runs("none"),
        table: |entry, reports| warm(entry, &REDIS_WARM_GBPS[0], reports),
    },
    Entry {
        name: "quicksilver-redis-warm-frag50",
        source: "slide 23",
        summary: "Redis in steady state: GB/s, half of the superpages it needs are free",
        left_out: "nothing",
        runs: || warm_runs("frag-50"),
        table: |entry, reports| warm(entry, &REDIS_WARM_GBPS[1], reports),
    },
    Entry {
        name: "quicksilver-redis-warm-frag100",
        source: "slide 23",
        summary: "Redis in steady state: GB/s, none of the superpages it needs is free",
        left_out: "nothing",
        runs: || warm_runs("frag-100"),
        table: |entry, reports| warm(entry, &REDIS_WARM_GBPS[2], reports),
    },
    Entry {
        name: "quicksilver-redis-latency",
        source: "slide 23",
        summary: "Redis from a cold start: 95th percentile of latency in ms, three levels",
        left_out: "nothing",
        runs: || redis_runs(&LEVELS),
        table: |entry, reports| latency(entry, &REDIS_P95, Role::HeldOut, reports),
    },
    Entry {
        name: "quicksilver-redis-warm-latency",
        source: "slide 23",
        summary: "Redis in steady state: 95th percentile of latency in ms, three levels",
        left_out: "nothing",
        runs: || LEVELS.iter().flat_map(|level| warm_runs(level)).collect(),
        table: |entry, reports| latency(entry, &REDIS_WARM_P95, Role::Check, reports),
    },
    Entry {
        name: "quicksilver-build",
        source: "slide 24",
        summary: "a kernel build: superpages, faults, time in the kernel",
        left_out: "nothing",
        runs: || vec![runs("build", "build", "none", &BUILD)],
        table: build,
    },
];

const GRAPHCHI: Line = Line {
    name: "GraphChi PageRank",
    workload: "graphchi",
    published: &[],
    fitted: &[],
    is_check: false,
};

const BLOCKSVM: Line =
    Line { name: "BlockSVM", workload: "blocksvm", published: &[], fitted: &[], is_check: false };

const UNFRAGMENTED: [Line; 2] = [
    Line { fitted: &[2, 3], published: &[1.0, 0.58, 0.53, 0.77], ..GRAPHCHI },
    Line { fitted: &[2], published: &[1.0, 0.81, 0.73, 0.96], ..BLOCKSVM },
];

const FRAG0: [Line; 11] = [
    Line {
        name: "GUPS",
        workload: "gups:size=8G,operations=4G,weight=1024",
        published: &[1.0, 0.87, 0.28, 0.96, 0.99, 0.98],
        fitted: &[1, 2],
        is_check: false,
    },
    Line { published: &[1.0, 0.58, 0.53, 0.77, 1.07, 1.05], fitted: &[2, 3], ..GRAPHCHI },
    Line {
        name: "Canneal",
        workload: "canneal",
        published: &[1.0, 0.95, 0.95, 1.14, 1.14, 1.14],
        fitted: &[3],
        is_check: false,
    },
    Line {
        name: "602.gcc_s",
        workload: "gcc",
        published: &[1.0, 1.0, 0.99, 1.05, 1.05, 1.05],
        fitted: &[3],
        is_check: false,
    },
    Line {
        name: "657.xz_s",
        workload: "xz",
        published: &[1.0, 0.96, 0.90, 0.99, 1.0, 1.0],
        fitted: &[2],
        is_check: false,
    },
    check("XSBench", "xsbench", &[1.0, 0.98, 0.88, 0.99, 1.0, 1.0]),
    check("ANN", "ann", &[1.0, 1.0, 1.0, 0.98, 1.07, 1.08]),
    check("631.deepsjeng_s", "deepsjeng", &[1.0, 0.99, 0.86, 1.0, 1.0, 1.0]),
    Line { published: &[1.0, 0.81, 0.73, 0.96, 1.0, 1.0], fitted: &[2], ..BLOCKSVM },
    check("Freqmine", "freqmine", &[1.0, 0.99, 0.99, 1.0, 0.99, 0.99]),
    check("605.mcf_s", "mcf", &[1.0, 0.99, 0.94, 0.99, 1.0, 1.0]),
];

/// Creates a row to which no parameter is ever fitted.
const fn check(name: &'static str, workload: &'static str, published: &'static [f64]) -> Line {
    Line { name, workload, published, fitted: &[], is_check: true }
}

const FRAG100: [Line; 11] = [
    Line { published: &[1.0, 1.02, 0.97, 0.96, 2.35, 2.29], fitted: &[3], ..FRAG0[0] },
    Line { published: &[1.0, 1.13, 1.11, 1.1, 2.18, 2.11], fitted: &[], ..GRAPHCHI },
    Line { published: &[1.0, 1.0, 1.01, 1.05, 1.12, 1.12], fitted: &[], ..FRAG0[2] },
    Line { published: &[1.0, 1.0, 1.0, 1.0, 1.05, 1.05], fitted: &[], ..FRAG0[3] },
    Line { published: &[1.0, 1.02, 1.02, 1.02, 1.14, 1.14], fitted: &[], ..FRAG0[4] },
    Line { published: &[1.0, 1.04, 1.03, 1.04, 1.07, 1.07], ..FRAG0[5] },
    Line { published: &[1.0, 1.0, 1.0, 0.98, 1.04, 1.01], ..FRAG0[6] },
    Line { published: &[1.0, 1.01, 0.97, 1.04, 1.1, 1.11], ..FRAG0[7] },
    check("BlockSVM", "blocksvm", &[1.0, 0.86, 0.85, 0.85, 1.12, 1.13]),
    Line { published: &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0], ..FRAG0[9] },
    Line { published: &[1.0, 1.01, 0.99, 1.0, 1.02, 1.05], ..FRAG0[10] },
];

/// Throughput of Redis in GB/s. One row each for Frag-0, 50 and 100; columns as in [`WITH_BASE`].
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
/// As `REDIS_P95`, in steady state; no parameter is ever fitted to them.
const REDIS_WARM_P95: [[f64; 7]; 3] = [
    [6.5, 5.2, 5.7, 6.7, 5.6, 5.5, 5.5],
    [6.5, 5.9, 6.4, 6.7, 6.1, 5.5, 5.5],
    [6.5, 5.9, 6.9, 6.6, 6.6, 5.4, 5.5],
];
/// Throughput of Redis in GB/s. One row each for Frag-0, 50 and 100, in steady state; no parameter is ever fitted to
/// them.
const REDIS_WARM_GBPS: [[f64; 7]; 3] = [
    [1.06, 1.32, 1.23, 1.03, 1.3, 1.32, 1.31],
    [1.07, 1.17, 1.09, 1.03, 1.18, 1.32, 1.32],
    [1.07, 1.16, 1.01, 1.05, 1.1, 1.33, 1.34],
];
const REDIS: &str = "redis-cold";
const LEVELS: [&str; 3] = ["none", "frag-50", "frag-100"];
const BUILD: [&str; 3] = ["sync-1", "sync-64", "freebsd-11.2"];
/// Kernel time of a build outside of memory management (process start, files), which the simulated machine lacks.
/// Fitted to the kernel times of Sync-1 and Sync-64. (docs/sources/policies.md 2.4 derives 36.9 s with FreeBSD's time
/// included.)
const OTHER_KERNEL_SECONDS: f64 = 42.2;
/// Bytes of all values in the cold run: bytes per operation times operations
/// (`crates/shared/workload-streams/data/workloads.toml`).
const REDIS_BYTES: f64 = 4096.0 * 7.6e6;
/// Bytes of all values in the warm run.
const REDIS_WARM_BYTES: f64 = 4096.0 * 20e6;

fn runs(
    name: &'static str,
    workload: &'static str,
    fragmentation: &'static str,
    designs: &'static [&'static str],
) -> Runs {
    let conditions =
        Conditions { machine: MACHINE, memory: MEMORY, fragmentation, workload, seed: 1 };
    Runs { name, conditions, designs }
}

fn speedup_runs(
    fragmentation: &'static str,
    designs: &'static [&'static str],
    lines: &[Line],
) -> Vec<Runs> {
    let line = |line: &Line| runs(line.name, line.workload, fragmentation, designs);
    lines.iter().map(line).collect()
}

fn redis_runs(levels: &[&'static str]) -> Vec<Runs> {
    levels.iter().map(|level| runs("Redis", REDIS, level, &WITH_BASE)).collect()
}

fn warm_runs(level: &'static str) -> Vec<Runs> {
    vec![runs("Redis", "redis-warm", level, &WITH_BASE)]
}

fn role(fitted: &[usize], column: usize) -> Role {
    if fitted.contains(&column) { Role::Fitted } else { Role::HeldOut }
}

fn table(entry: &Entry, figure: &str, better: Better, columns: &[&str], rows: Vec<Row>) -> Table {
    let source = format!("Quicksilver, ATC 2020, {}", entry.source);
    Table { source, ..entry.grid(figure, better, columns, rows) }
}

fn speedups(entry: &Entry, designs: &[&str], lines: &[Line], reports: &Reports<'_>) -> Table {
    let speedups = |(line, reports): (&Line, &Vec<&Report>)| {
        let seconds = |column: usize| done(reports[column], Report::seconds);
        let role = |column| match column {
            0 => Role::Base,
            _ if line.is_check => Role::Check,
            _ => role(line.fitted, column),
        };
        row(line.name, line.published, role, |column| Some(seconds(0)? / seconds(column)?))
    };
    let rows = lines.iter().zip(reports).map(speedups).collect();
    table(entry, SPEEDUP, Better::Higher, designs, rows)
}

fn redis(entry: &Entry, published: &[f64; 7], fitted: &[usize], reports: &Reports<'_>) -> Table {
    let rate = |report: &Report| REDIS_BYTES / report.seconds() / 1e9;
    let rates = |column: usize| done(reports[0][column], rate);
    let rows = vec![row("Redis, cold", published, |column| role(fitted, column), rates)];
    table(entry, "GB/s", Better::Higher, &WITH_BASE, rows)
}

fn warm(entry: &Entry, published: &[f64; 7], reports: &Reports<'_>) -> Table {
    let rate = |report: &Report| {
        let run = report.phases.iter().find(|phase| phase.name == "run");
        let cycles = run.map_or(0, |phase| phase.wall_cycles);
        REDIS_WARM_BYTES / (cycles as f64 / (f64::from(report.mhz) * 1e6)) / 1e9
    };
    let rates = |column: usize| done(reports[0][column], rate);
    let rows = vec![row("Redis, warm", published, |_| Role::Check, rates)];
    table(entry, "GB/s", Better::Higher, &WITH_BASE, rows)
}

fn latency(entry: &Entry, published: &[[f64; 7]; 3], role: Role, reports: &Reports<'_>) -> Table {
    let latencies = |((level, published), reports): ((&&str, &[f64; 7]), &Vec<&Report>)| {
        let p95 = |column: usize| Some(reports[column].requests.as_ref()?.p95 / 1000.0);
        row(level, published, |_| role, p95)
    };
    let rows = LEVELS.iter().zip(published).zip(reports).map(latencies).collect();
    table(entry, "95th percentile of latency, ms", Better::Lower, &WITH_BASE, rows)
}

/// Parameters are fitted to Sync-1, and to Sync-64 if one figure is not enough. All other cells are checks. See
/// docs/decisions/lab-model.md#18.
fn build(entry: &Entry, reports: &Reports<'_>) -> Table {
    let row = |name, published: [f64; 3], fitted: &[usize], figure: &dyn Fn(&Report) -> f64| {
        let simulated = |column: usize| done(reports[0][column], figure);
        let role = |column| if fitted.contains(&column) { Role::Fitted } else { Role::Check };
        row(name, &published, role, simulated)
    };
    // Figures that follow from fitted counts.
    let beyond = |name, published: f64, figure: &dyn Fn(&Report, &Report) -> f64| {
        let both = (reports[0][0], reports[0][1]);
        let simulated = |column: usize| {
            let is_done = done(both.0, |_| 0.0).and(done(both.1, |_| 0.0)).is_some();
            (column == 0 && is_done).then(|| figure(both.0, both.1))
        };
        self::row(name, &[published, f64::NAN, f64::NAN], |_| Role::Fitted, simulated)
    };
    let made = |report: &Report| Made::from_report(report).total() as f64;
    let seconds = |report: &Report, cycles: u64| cycles as f64 / (f64::from(report.mhz) * 1e6);
    let in_user = |report: &Report| {
        Account::Work.cycles(&report.ledger) + Account::Translation.cycles(&report.ledger)
    };
    let user = |report: &Report| seconds(report, in_user(report));
    let kernel = |report: &Report| {
        seconds(report, report.ledger.total() - in_user(report)) + OTHER_KERNEL_SECONDS
    };
    let rows = vec![
        row("superpages", [200_500.0, 99_600.0, 36_900.0], &[0, 1], &made),
        row("page faults", [5.3e6, 10.3e6, 30.2e6], &[0, 1], &|report| {
            report.counters.faults as f64
        }),
        // docs/sources/policies.md 2.4 derives the cost of a reserved page from these three figures, so the chosen cost
        // was not independent of them. Little of FreeBSD's time depends on it.
        row("time in the kernel, s of CPU", [89.4, 78.5, 98.0], &[0, 1], &kernel),
        row("time, s", [197.7, 196.9, 203.7], &[0], &Report::seconds),
        row("user time, s of CPU", [1409.4, 1408.8, 1436.7], &[0], &user),
        beyond("superpages that Sync-64 has not", 100_900.0, &|sync_1, sync_64| {
            made(sync_1) - made(sync_64)
        }),
        // The slide's bound of utilisation: more used pages would have meant more faults.
        beyond("pages used of each, at most", 50.0, &|sync_1, sync_64| {
            let faults = |report: &Report| report.counters.faults as f64;
            (faults(sync_64) - faults(sync_1)) / (made(sync_1) - made(sync_64))
        }),
    ];
    table(entry, "counts and seconds", Better::Lower, &BUILD, rows)
}

/// Slide 17 is the source of the machines' costs, so every cell is fitted. The table shows that the costs take effect.
fn zeroing(entry: &Entry, _: &Reports<'_>) -> Table {
    let published = [
        ("e3-1231v3", [92.0, 88.0, 87.0, 114.0, 99.0, 97.0]),
        ("haswell", [355.0, 287.0, 280.0, 154.0, 112.0, 106.0]),
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
    let times = |(name, published): &(&str, [f64; 6])| {
        let zero = machine::preset(name).expect("a preset").costs.zero;
        row(
            name,
            published,
            |_| Role::Fitted,
            |column| {
                let stores = [Stores::Temporal, Stores::NonTemporal][column / 3];
                let bulk = ByteSize(machine::BULKS[column % 3]);
                Some(zero.time(stores, bulk, ByteSize::mib(2)) / 1000.0)
            },
        )
    };
    let rows = published.iter().map(times).collect();
    table(entry, "microseconds for 2 MiB", Better::Lower, &columns, rows)
}
