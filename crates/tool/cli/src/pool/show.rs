//! Formats pools as tables and text. Pure.

use comfy_table::{CellAlignment, Table, presets};
use host::pool::{Outcome, Request, WhyShort, pool_name};
use units::{ByteSize, PageSize};

/// Formats a table with every column aligned right except those in `left`, without trailing blanks.
pub fn table(header: &[&str], rows: Vec<Vec<String>>, left: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().map(ToString::to_string).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row);
    }
    for index in (0..header.len()).filter(|index| !left.contains(index)) {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Formats a number that may be unknown.
pub fn known(value: Option<u64>) -> String {
    value.map_or("unknown".to_string(), |value| value.to_string())
}

/// Formats pages as `512 (1 GiB)`; `0` for none, `unknown` for unknown.
pub fn pages(value: Option<u64>, size: PageSize) -> String {
    match value {
        None | Some(0) => known(value),
        Some(pages) => format!("{pages} ({})", bytes(pages, size)),
    }
}

/// Returns the number of bytes in `pages` pages.
pub fn bytes(pages: u64, size: PageSize) -> ByteSize {
    ByteSize(pages.saturating_mul(size.bytes()))
}

/// Formats a request: pages before and wanted.
pub fn intention(request: &Request) -> String {
    let Request { size, node, before, target } = *request;
    let what = pool_name(size, node);
    if before == target {
        return format!("{what}: {} already", pages(Some(target), size));
    }
    let by = bytes(before.abs_diff(target), size);
    let word = if target > before { "more" } else { "less" };
    format!("{what}: {before} -> {target}, {by} {word}")
}

/// Formats the outcome of a request.
pub fn outcome(outcome: &Outcome) -> String {
    let Outcome { size, node, asked, before, got, .. } = *outcome;
    let what = pool_name(size, node);
    let mut line = match (got == asked, before == asked) {
        (true, true) => format!("{what}: {} already", pages(Some(got), size)),
        (true, false) => format!("{what}: {before} -> {}", pages(Some(got), size)),
        (false, _) => format!("{what}: {before} -> {got} of {asked} requested"),
    };
    if outcome.rounds > 1 {
        line += &format!(", in {} attempts", outcome.rounds);
    }
    if let Some(why) = &outcome.why_short {
        line += &format!("; {}", why_short(why, size));
    }
    if outcome.still_in_use > 0 {
        line += &format!(
            "; {} are in use and stay as surplus until they are freed (`superpage pool users` \
             shows by whom)",
            pages(Some(outcome.still_in_use), size)
        );
    }
    line
}

fn why_short(why: &WhyShort, size: PageSize) -> String {
    match why {
        WhyShort::Memory { available } => {
            let left = available.map_or("unknown".to_string(), |bytes| bytes.to_string());
            format!("too little memory is left ({left} available)")
        }
        WhyShort::Fragmented { free, in_superpages } => {
            let whole = in_superpages
                .map_or(String::new(), |whole| format!(", {whole} of it in whole superpages"));
            format!(
                "{free} is free but fragmented into blocks smaller than {size}{whole}; try again when \
                 programs have ended, or reserve at boot (`superpage pool boot`)"
            )
        }
        WhyShort::Stopped => "stopped".to_string(),
        WhyShort::NotShrunk => "the kernel did not shrink it".to_string(),
    }
}
