//! STREAM on explicit superpages, 2010 (Gorman and Healy, WIOSCA, section 7.1; Gorman, LWN "Huge pages" parts 4 and 5).
//!
//! Two inputs of `machines/ppc970.toml` are published figures: the cost of a miss, and Triad's rate on superpages. No
//! other parameter is fitted, and `machines/phenom-9950.toml` uses no figure from here. See
//! docs/decisions/lab-model.md#14.

use units::ByteSize;
use workload_streams::Tables;

use super::{Better, Conditions, Entry, Reports, Role, Row, Runs, Table, done, row};
use crate::Report;
use crate::analysis::Account;

/// Three arrays of 1 GiB in total, ten iterations: 262,325 minor faults (docs/sources/policies.md 4.3), on both
/// machines.
const STREAM: &str = "stream:size=1G,iterations=10";
const PPC: &str = "ppc970";
const PHENOM: &str = "phenom-9950";
const DESIGNS: [&str; 2] = ["base", "hugetlb"];
const COLUMNS: [&str; 2] = ["base", "superpages"];
/// Bytes of one access.
const WORD: f64 = 8.0;
const LINE: f64 = 64.0;
/// Not published.
const NONE: f64 = f64::NAN;

const NO_MODEL: &str = "SysBench, SPECcpu2006, SPECjvm2008 (figures 2 to 5, part 4, section 7.2): averages of programs \
    of which there is no model";

pub(super) const TABLES: [Entry; 4] = [
    Entry {
        name: "stream-2010",
        source: "LWN \"Huge pages\" part 5, 2.5",
        summary: "STREAM's four rates on a PowerPC 970, base pages and 16 MiB",
        left_out: NO_MODEL,
        runs: || vec![runs(PPC)],
        table: rates,
    },
    Entry {
        name: "stream-2010-speedup",
        source: "Gorman and Healy, WIOSCA 2010, 7.1; LWN part 4",
        summary: "STREAM on superpages over base pages, a PowerPC 970 and a Phenom",
        left_out: NO_MODEL,
        runs: || vec![runs(PPC), runs(PHENOM)],
        table: speedups,
    },
    Entry {
        name: "stream-2010-time",
        source: "LWN \"Huge pages\" part 5, 2.5",
        summary: "STREAM's time and faults on a PowerPC 970, base pages and 16 MiB",
        left_out: "nothing",
        runs: || vec![runs(PPC)],
        table: times,
    },
    Entry {
        name: "stream-2010-misses",
        source: "WIOSCA 2010, table 1, 7.1; LWN part 5, 2.3 to 2.5",
        summary: "STREAM's TLB misses on base pages, what one costs and all of them",
        left_out: "Calibrator's misses on a Core Duo and an Athlon 64 (its loop is no workload here; `superpage tlb` \
            measures it); memory and page sizes of the machines, which are inputs",
        runs: || vec![runs(PPC), runs(PHENOM)],
        table: misses,
    },
];

fn runs(machine: &'static str) -> Runs {
    let memory = ByteSize::gib(8);
    let conditions =
        Conditions { machine, memory, fragmentation: "none", workload: STREAM, seed: 1 };
    Runs { name: "STREAM", conditions, designs: &DESIGNS }
}

/// Returns the bytes per second of all four STREAM kernels: the model has one cost for them.
fn rate(report: &Report) -> f64 {
    let run = report.phases.iter().find(|phase| phase.name == "run");
    let (accesses, cycles) = run.map_or((0, 1), |run| (run.accesses, run.wall_cycles));
    accesses as f64 * WORD / (cycles as f64 / (f64::from(report.mhz) * 1e6))
}

fn rates(entry: &Entry, reports: &Reports<'_>) -> Table {
    let kernel = |name: &str, published: [f64; 2]| {
        let rate = |column: usize| done(reports[0][column], |report| rate(report) / 1e6);
        // `stream-bandwidth` is Triad's rate on superpages.
        let role = |column| match (name, column) {
            ("Triad", 1) => Role::Fitted,
            _ => Role::HeldOut,
        };
        row(name, &published, role, rate)
    };
    let rows = vec![
        kernel("Copy", [2783.1461, 3127.4279]),
        kernel("Scale", [2841.6449, 3116.6594]),
        kernel("Add", [3080.5153, 3596.7276]),
        kernel("Triad", [3077.4167, 3604.6241]),
    ];
    entry.grid("MB/s, simulated that of all four", Better::Higher, &COLUMNS, rows)
}

fn speedups(entry: &Entry, reports: &Reports<'_>) -> Table {
    let kernel = |machine: usize, name: &str, published: f64| {
        let rate = |column: usize| done(reports[machine][column], rate);
        let role = |column| if column == 0 { Role::Base } else { Role::HeldOut };
        row(name, &[1.0, published], role, |column| Some(rate(column)? / rate(0)?))
    };
    let rows = vec![
        kernel(0, "PowerPC 970, Copy", 1.1127),
        kernel(0, "PowerPC 970, Triad", 1.1657),
        kernel(0, "PowerPC 970, least of four (part 4)", 1.116),
        kernel(0, "PowerPC 970, most of four (part 4)", 1.1659),
        kernel(1, "Phenom, Add", 1.035),
        kernel(1, "Phenom, Triad", 0.9669),
    ];
    let figure = "rate over that on base pages, simulated that of all four";
    entry.grid(figure, Better::Higher, &COLUMNS, rows)
}

fn in_user(report: &Report) -> u64 {
    Account::Work.cycles(&report.ledger) + Account::Translation.cycles(&report.ledger)
}

fn times(entry: &Entry, reports: &Reports<'_>) -> Table {
    let seconds = |report: &Report, cycles: u64| cycles as f64 / (f64::from(report.mhz) * 1e6);
    let row = |name, published: [f64; 2], figure: &dyn Fn(&Report) -> f64| {
        let simulated = |column: usize| done(reports[0][column], figure);
        row(name, &published, |_| Role::HeldOut, simulated)
    };
    let rows = vec![
        row("time, s", [13.69, 11.95], &Report::seconds),
        row("user time, s of CPU", [12.1, 10.92], &|report| seconds(report, in_user(report))),
        row("time in the kernel, s of CPU", [1.36, 0.82], &|report| {
            seconds(report, report.ledger.total() - in_user(report))
        }),
        row("minor faults", [262_325.0, 295.0], &|report| report.counters.faults as f64),
    ];
    entry.grid("seconds and faults", Better::Lower, &COLUMNS, rows)
}

/// Returns the cycles of whole page walks, as a hardware counter would, including cycles that overlap with the program.
fn walk_cycles(report: &Report) -> f64 {
    let machine = machine::preset(&report.cell.machine).expect("a preset");
    // STREAM's setup and run hide the same share.
    let exposed = if machine.walk_blocks { 1.0 } else { Tables::embedded().stream.run.exposed };
    Account::Translation.cycles(&report.ledger) as f64 / exposed
}

fn misses(entry: &Entry, reports: &Reports<'_>) -> Table {
    let walks = |report: &Report| report.counters.walks_base as f64;
    let share = |report: &Report| 100.0 * walk_cycles(report) / in_user(report) as f64;
    let row = |name,
               published: [f64; 2],
               fitted: Option<usize>,
               figure: &dyn Fn(&Report) -> f64|
     -> Row {
        let simulated = |machine: usize| done(reports[machine][0], figure);
        let role = |column| if fitted == Some(column) { Role::Fitted } else { Role::HeldOut };
        row(name, &published, role, simulated)
    };
    let rows = vec![
        // The machine's `memory-cycles` is fitted to this figure.
        row("cycles of a miss", [563.0, 51.0], Some(0), &|report| {
            walk_cycles(report) / walks(report)
        }),
        row("% of user time in misses (WIOSCA)", [18.23, 1.84], None, &share),
        row("% of user time in misses (LWN, predicted)", [17.84, NONE], None, &share),
        row("% of user time in misses (LWN, as printed)", [17.57, NONE], None, &share),
        row("misses, millions", [9.644, NONE], None, &|report| walks(report) / 1e6),
        row("cycles of walks, billions", [5.437, NONE], None, &|report| walk_cycles(report) / 1e9),
        row("cache misses for each TLB miss", [NONE, 60.0], None, &|report| {
            report.counters.accesses as f64 * WORD / LINE / walks(report)
        }),
    ];
    entry.grid("on base pages", Better::Lower, &["PowerPC 970", "Phenom 9950"], rows)
}
