//! `superpage trace info`: prints a trace's header and footer.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use trace::{Info, Reader, RegionRun, SLOTS, VERSION};
use units::ByteSize;

use super::words;
use crate::exit::{self, Done, Failure};

/// Show the summary of a trace, without reading its accesses.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace file.
    file: PathBuf,

    /// Print JSON, with every mapping and chunk.
    #[arg(long)]
    json: bool,
}

const SHOWN: usize = 12;

pub fn run(args: Args) -> Result<Done, Failure> {
    let mut reader = super::open(&args.file)?;
    exit::print(&match args.json {
        true => json(&mut reader)?,
        false => {
            let runs = reader.regions()?;
            text(reader.info(), &runs)
        }
    })?;
    Ok(Done::Fine)
}

/// Formats a trace's header and footer as JSON.
pub fn json(reader: &mut Reader) -> Result<String, Failure> {
    let runs = reader.regions()?;
    exit::json_text("superpage.trace/1", document(reader.info(), &runs))
}

fn region_bytes(info: &Info) -> u64 {
    u64::from(info.header.base_page) * u64::from(SLOTS)
}

fn text(info: &Info, runs: &[RegionRun]) -> String {
    let (header, totals) = (&info.header, &info.totals);
    let region = region_bytes(info);
    let shown = |text: &str| text.escape_debug().to_string();
    let mut out = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(out, "{name:<9} {what}");
    };
    line("workload", shown(&header.workload));
    line("made by", shown(&header.creator));
    let base = ByteSize(header.base_page.into());
    line("pages", format!("{base}, in regions of {}", ByteSize(region)));
    line("filter", words::filter(header.filter));
    line("mappings", words::mappings(header.mappings));
    line(
        "holds",
        format!(
            "{} accesses in {} records; events: {}, processes: {}, regions: {} ({})",
            totals.accesses,
            totals.records,
            totals.events,
            totals.processes,
            totals.regions,
            ByteSize(u64::from(totals.regions) * region)
        ),
    );
    if let Some(run) = info.run {
        line(
            "run",
            format!(
                "{} instructions, {} accesses, {} while recorded",
                run.instructions,
                run.accesses,
                report::format::seconds(run.nanoseconds as f64 / 1e9)
            ),
        );
    }
    let each = info.length as f64 / totals.accesses.max(1) as f64;
    let file = ByteSize(info.length);
    line(
        "file",
        format!(
            "{file}, {each:.3} bytes per access, chunks: {}, format {VERSION}",
            info.chunks.len()
        ),
    );
    for run in runs.iter().take(SHOWN) {
        let begin = run.address.wrapping_mul(region);
        let size = ByteSize(u64::from(run.count) * region);
        let what = format!("{begin:#x} {size}, from region {}", run.first.0);
        line(&format!("process {}", run.process.0), what);
    }
    if runs.len() > SHOWN {
        line("", format!("and {} more (--json)", runs.len() - SHOWN));
    }
    out
}

fn document(info: &Info, runs: &[RegionRun]) -> Value {
    let (header, totals) = (&info.header, &info.totals);
    let (gap, inferred) = match header.mappings {
        trace::Mappings::Recorded => (None, false),
        trace::Mappings::Inferred { gap } => (Some(gap), true),
    };
    let runs = runs.iter().map(|run| {
        json!({
            "process": run.process.0, "first_region": run.first.0, "regions": run.count,
            "address": run.address.wrapping_mul(region_bytes(info)),
        })
    });
    let chunks = info.chunks.iter().map(|chunk| {
        json!({
            "offset": chunk.offset, "bytes": chunk.length, "records": chunk.records,
            "accesses": chunk.accesses, "events": chunk.events, "process": chunk.process.0,
        })
    });
    json!({
        "format": VERSION, "bytes": info.length, "cut": info.cut,
        "workload": header.workload, "creator": header.creator,
        "base_page_bytes": header.base_page, "region_bytes": region_bytes(info),
        "filter": words::filter_json(header.filter),
        "mappings_inferred": inferred, "gap_bytes": gap,
        "records": totals.records, "accesses": totals.accesses, "accesses_of_records_that_write": totals.writes,
        "run": info.run.map(|run| json!({
            "instructions": run.instructions, "accesses": run.accesses,
            "nanoseconds": run.nanoseconds,
        })),
        "events": totals.events, "regions": totals.regions, "processes": totals.processes,
        "spans": runs.collect::<Vec<_>>(), "chunks": chunks.collect::<Vec<_>>(),
    })
}
