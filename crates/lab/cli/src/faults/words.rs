//! Formats rows as Lameter did (docs/sources/policies.md 3.8): one table per set of patches.

use fault_scaling::{FreeBlocks, Machine, Row};
use report::format::seconds;
use report::sig3::{self as three, percent};
use units::ByteSize;

use super::Set;
use cli::table;

const COLUMNS: [&str; 10] =
    ["Gb", "Rep", "Threads", "CLine", "User", "System", "Wall", "flt/cpu/s", "fault/wsec", ""];

/// Formats the tables of all kernels.
pub fn tables(machine: &Machine, sets: &[Set]) -> String {
    let mut text = format!("{} ({})\n", machine.name, machine.summary);
    for set in sets {
        text += &format!("\n{}\n", set.name);
        text += &table(&COLUMNS, set.rows.iter().map(row).collect(), &[9]);
        text += &peak(&set.rows);
        text += &wasted(&set.rows);
        if set.kernel.rss != machine.kernel.rss {
            text += &resident(&set.rows);
        }
        text += &zeroed_ahead(&set.rows);
    }
    text += "\nA fault is a base page touched, as in Lameter's tables, also where one trap maps several.\n";
    text
}

fn row(row: &Row) -> Vec<String> {
    vec![
        gigabytes(row.bytes),
        row.repetitions.to_string(),
        row.threads.to_string(),
        row.cache_lines.to_string(),
        seconds(row.user_seconds),
        seconds(row.system_seconds),
        seconds(row.wall_seconds),
        rate(row.pages_per_cpu_second),
        rate(row.pages_per_wall_second),
        if row.is_prediction { "prediction" } else { "" }.to_string(),
    ]
}

/// Formats a rate with all digits, as Lameter printed it.
pub fn rate(value: f64) -> String {
    format!("{value:.0}")
}

/// Formats `1`, `0.5`, `100 MiB`: in gigabytes, without unit, if that is short.
pub fn gigabytes(bytes: u64) -> String {
    match bytes.is_multiple_of(1 << 28) {
        true => (bytes as f64 / (1u64 << 30) as f64).to_string(),
        false => ByteSize(bytes).to_string(),
    }
}

fn wasted(rows: &[Row]) -> String {
    let most =
        rows.iter().map(|row| row.wasted_pages as f64 / (row.pages + row.wasted_pages) as f64);
    match most.fold(0.0, f64::max) {
        0.0 => String::new(),
        most => format!("mapped and never touched: up to {} of the pages\n", percent(most)),
    }
}

fn peak(rows: &[Row]) -> String {
    let best =
        rows.iter().max_by(|a, b| a.pages_per_wall_second.total_cmp(&b.pages_per_wall_second));
    let Some(best) = best.filter(|_| rows.len() > 1) else { return String::new() };
    format!(
        "peak at {} threads: {} faults a second\n",
        best.threads,
        three::figure(best.pages_per_wall_second)
    )
}

/// Formats the cost of counting resident pages, from the row with the most threads.
fn resident(rows: &[Row]) -> String {
    let Some(row) = rows.last() else { return String::new() };
    format!(
        "resident pages, {} threads: {} a fault to count one without contention, {} to read the count\n",
        row.threads,
        three::seconds(row.resident_count_seconds),
        three::seconds(row.resident_read_seconds)
    )
}

/// Formats the daemons' zeroing in the last row, and the free blocks left, as Lameter's patch prints them in
/// /proc/buddyinfo.
fn zeroed_ahead(rows: &[Row]) -> String {
    let Some((row, ahead)) = rows.last().and_then(|row| Some((row, row.zeroed_ahead.as_ref()?)))
    else {
        return String::new();
    };
    let mut text = format!(
        "zeroed ahead, {} threads: {} of {} pages were found zeroed; {} were zeroed meanwhile, in {} of CPU time\n",
        row.threads,
        ahead.found_pages,
        row.pages + row.wasted_pages,
        ahead.pages,
        three::seconds(ahead.cpu_seconds)
    );
    text += "free blocks at the end, of 2^0, 2^1, 2^2 and so on pages:\n";
    let mut first = 0;
    for nodes in ahead.nodes.chunk_by(|one, other| one == other) {
        let last = first + nodes.len() - 1;
        let name = if first == last {
            format!("Node {first}")
        } else {
            format!("Nodes {first} to {last}")
        };
        text += &blocks(&name, &nodes[0]);
        first = last + 1;
    }
    text
}

fn blocks(name: &str, free: &FreeBlocks) -> String {
    let line = |name: &str, blocks: &[u64]| {
        let blocks: String = blocks.iter().map(|count| format!(" {count:>6}")).collect();
        format!("{name:<16}{blocks}\n")
    };
    line(name, &free.not_zeroed) + &line("  zeroed pages", &free.zeroed)
}
