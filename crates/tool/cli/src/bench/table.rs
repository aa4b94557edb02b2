//! Formats a benchmark result.

use experiment::bench::{Document, Percentiles, Row, Summary};
use report::format::{self as words, figure, known, percent, ratio, seconds};
use workload::Details;

use crate::pool::show::table;

/// Formats a benchmark result as a table with notes.
pub fn text(document: &Document) -> String {
    let mut out = format!("{}\n\n", words::command(&document.command));
    out += &match document.bench {
        "requests" => rates(document),
        _ => faults(document),
    };
    for (of, title) in [
        ("page", "first touch of each base page"),
        ("superpage", "first touch in each 2 MiB"),
        ("request", "one request: freeing old blocks, allocating, filling"),
    ] {
        out += &slowest(document, of, title);
    }
    out += "\n";
    let timed = |row: &Row| row.summary.as_ref().is_some_and(|one| !one.latencies.is_empty());
    if document.rows.iter().any(|row| row.cell.populates && timed(row)) {
        out += "note: the time of populating is part of the rates, not of the latencies\n";
    }
    for row in &document.rows {
        out += &not_as_promised(row);
    }
    for arm in &document.left_out {
        out += &format!("left out: {}: {}\n", arm.name, arm.why);
    }
    for line in &document.lent {
        out += &format!("note: {line}\n");
    }
    if let Some(line) = document.neighbours.line() {
        out += &format!("note: {line}\n");
    }
    for line in &document.changed_meanwhile {
        out += &format!("note: during the runs, {line}\n");
    }
    out += &format!(
        "medians of {} runs, (minimum–maximum); {:.0} s in all\n",
        document.runs, document.elapsed_seconds
    );
    out.trim_start_matches('\n').to_string()
}

/// Formats the table of first touches, with pages per second as in the 2005 test.
fn faults(document: &Document) -> String {
    let mut rows = Vec::new();
    for row in &document.rows {
        let Some(Details::Touch { gib, repeat, lines, .. }) =
            row.outcomes.first().map(|one| &one.details)
        else {
            continue;
        };
        let mut cells =
            vec![row.cell.arm.clone(), words::trimmed(&format!("{gib:.3}")).to_string()];
        cells.extend([repeat.to_string(), row.cell.threads.to_string(), lines.to_string()]);
        cells.extend(match &row.summary {
            None => std::array::from_fn(|_| "-".to_string()),
            Some(summary) => columns_of_2005(summary),
        });
        cells.extend(rate(document, row));
        rows.push(cells);
    }
    let header = [
        "",
        "Gb",
        "Rep",
        "Thr",
        "CLine",
        "User",
        "System",
        "Wall",
        "flt/cpu/s",
        "fault/wsec",
        "pages/s",
        "",
        "vs first",
        "on superpages",
    ];
    table(&header, rows, &[0, 11])
}

fn columns_of_2005(summary: &Summary) -> [String; 5] {
    let time = |value: Option<f64>| known(value, |value| format!("{value:.3}"));
    let count = |value: Option<f64>| known(value, |value| format!("{value:.0}"));
    [
        time(summary.user_seconds),
        time(summary.system_seconds),
        time(Some(summary.wall_seconds)),
        count(summary.faults_per_cpu_second),
        count(summary.faults_per_wall_second),
    ]
}

fn rates(document: &Document) -> String {
    let mut rows = Vec::new();
    for row in &document.rows {
        let mut cells = vec![row.cell.arm.clone(), row.cell.threads.to_string()];
        let faults =
            row.summary.as_ref().map(|summary| known(summary.faults, |n| format!("{n:.0}")));
        cells.push(faults.unwrap_or("-".to_string()));
        cells.extend(rate(document, row));
        rows.push(cells);
    }
    let header = ["", "threads", "faults", "requests/s", "", "vs first", "on superpages"];
    table(&header, rows, &[0, 4])
}

/// Formats a row's median rate, range, ratio to the first arm with as many threads, and share of memory on superpages.
fn rate(document: &Document, row: &Row) -> [String; 4] {
    let share = known(row.got.share, percent);
    let Some(summary) = &row.summary else {
        return ["-".to_string(), String::new(), "-".to_string(), share];
    };
    let rate = summary.rate;
    let first = document.rows.iter().find(|other| other.cell.threads == row.cell.threads);
    let first = first.and_then(|first| Some(first.summary.as_ref()?.rate.median));
    let against = known(first, |first| format!("{}x", ratio(rate.median / first)));
    let ends = format!("({}–{})", figure(rate.least), figure(rate.greatest));
    [figure(rate.median), ends, against, share]
}

fn slowest(document: &Document, of: &str, title: &str) -> String {
    let of_row = |row: &Row| -> Option<(String, usize, Percentiles)> {
        let found = row.summary.as_ref()?.latencies.iter().find(|one| one.of == of)?.clone();
        Some((row.cell.arm.clone(), row.cell.threads, found))
    };
    let found: Vec<_> = document.rows.iter().filter_map(of_row).collect();
    let Some((_, _, first)) = found.first() else { return String::new() };
    let timer = seconds(first.timer_seconds);
    let rows = found
        .iter()
        .map(|(arm, threads, p)| {
            let mut row = vec![arm.clone(), threads.to_string(), p.count.to_string()];
            let times =
                [p.p50_seconds, p.p90_seconds, p.p99_seconds, p.p999_seconds, p.max_seconds];
            row.extend(times.map(seconds));
            row
        })
        .collect();
    let header = ["", "threads", "count", "p50", "p90", "p99", "p99.9", "max"];
    format!("\n{title} (including {timer} for the timing itself)\n{}", table(&header, rows, &[0]))
}

fn not_as_promised(row: &Row) -> String {
    if row.got.as_promised != Some(false) {
        return String::new();
    }
    if let Some(fault) = row.got.library_fault {
        let (arm, threads, why) = (&row.cell.arm, row.cell.threads, fault.why(&row.cell.recipe));
        return format!("{arm}, {threads} thread(s): {why}; no figures\n");
    }
    let got = known(row.got.share, percent);
    let promised = match row.cell.folio {
        Some(size) => format!("superpages of {size}"),
        None if row.cell.plan.promise == launch::Promise::BasePages => "base pages".to_string(),
        None => "superpages".to_string(),
    };
    format!(
        "{}, {} thread(s): did not get the {promised} it asked for ({got} on superpages); no figures\n",
        row.cell.arm, row.cell.threads
    )
}
