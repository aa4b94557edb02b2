//! Formats the summary of a recording as text and JSON. Pure, except that plans are printed.

use record::{Ended, Recorded, Recording, Tools};
use report::format as words;
use serde_json::{Value, json};
use trace::SLOTS;
use units::ByteSize;

use super::Native;
use crate::exit::{self, Done, Failure};

/// Bytes of a base page on machines that can be recorded.
const PAGE: u64 = 4096;

/// Formats the summary in one line.
pub fn text(recorded: &Recorded, native: Option<Native>) -> String {
    let (totals, seen) = (&recorded.totals, &recorded.seen);
    let seconds = recorded.wall.as_secs_f64();
    let slower = match native.map(|native| slowdown(recorded, native)) {
        Some((wall, Some(cpu))) => format!("{wall:.1}x slower than native, {cpu:.1}x in CPU time"),
        Some((wall, None)) => format!("{wall:.1}x slower than native"),
        None => "slowdown not measured, see --native".to_string(),
    };
    let kept = words::percent(totals.records as f64 / totals.accesses.max(1) as f64);
    let what = match seen.instructions {
        Some(instructions) => format!(
            "{} accesses, {kept} kept as records; {instructions} instructions",
            totals.accesses
        ),
        None => format!("{} page faults", totals.accesses),
    };
    let memory = ByteSize(u64::from(totals.regions) * u64::from(SLOTS) * PAGE);
    let mut line = format!(
        "{}: {what}; mappings: {}, in {memory}; \
         processes: {}, threads: {}; {} ({slower})",
        recorded.path.display(),
        seen.mappings,
        seen.processes,
        u64::from(seen.processes) + seen.threads,
        words::seconds(seconds),
    );
    if let Some((path, totals)) = &recorded.fetches {
        line += &format!("; {}: {} fetches", path.display(), totals.accesses);
    }
    if seen.skipped > 0 {
        line += &format!("; {} accesses skipped", seen.skipped);
    }
    line += match recorded.ended {
        Ended::Program => "",
        Ended::Accesses => "; ended at --max-accesses",
        Ended::Time => "; ended at --max-time",
        Ended::Stopped => "; stopped",
        Ended::Crowded => {
            "; ended early: it maps more than 2 TiB, the limit of a trace; see --max-time"
        }
    };
    if seen.lost > 0 {
        line += &format!("; {} faults lost: the machine was too busy to read them", seen.lost);
    }
    if seen.foreign_count > 0 {
        line += &format!(
            "; programs executed and not recorded: {} ({})",
            seen.foreign_count,
            seen.foreign.join(", ")
        );
    }
    line
}

/// Formats the summary as JSON.
pub fn document(recorded: &Recorded, native: Option<Native>) -> Value {
    let (totals, seen) = (&recorded.totals, &recorded.seen);
    let seconds = recorded.wall.as_secs_f64();
    json!({
        "output": recorded.path.to_string_lossy(),
        "accesses": totals.accesses, "records": totals.records, "accesses_of_records_that_write": totals.writes,
        "events": totals.events, "regions": totals.regions,
        "accesses_seen": seen.accesses, "accesses_skipped": seen.skipped,
        "instructions": seen.instructions,
        "mappings": seen.mappings, "processes": seen.processes,
        "threads": u64::from(seen.processes) + seen.threads,
        "seconds": seconds, "cpu_seconds": recorded.cpu.as_secs_f64(),
        "native_seconds": native.map(|native| native.seconds),
        "native_cpu_seconds": native.map(|native| native.cpu_seconds),
        "slowdown": native.map(|native| slowdown(recorded, native).0),
        "cpu_slowdown": native.and_then(|native| slowdown(recorded, native).1),
        "ended": word(recorded.ended), "exit_code": recorded.status.code(),
        "lost": seen.lost, "unrecorded_programs": seen.foreign_count, "unrecorded": seen.foreign,
        "fetches": recorded.fetches.as_ref().map(|(path, totals)| json!({
            "output": path.to_string_lossy(),
            "accesses": totals.accesses, "records": totals.records,
        })),
    })
}

/// Returns the slowdown factors: wall-clock time recorded over native, and CPU time where known.
fn slowdown(recorded: &Recorded, native: Native) -> (f64, Option<f64>) {
    let wall = recorded.wall.as_secs_f64() / native.seconds.max(1e-9);
    let known = native.cpu_seconds > 0.0 && !recorded.cpu.is_zero();
    (wall, known.then(|| recorded.cpu.as_secs_f64() / native.cpu_seconds))
}

fn word(ended: Ended) -> &'static str {
    match ended {
        Ended::Program => "program",
        Ended::Accesses => "max-accesses",
        Ended::Time => "max-time",
        Ended::Stopped => "stopped",
        Ended::Crowded => "crowded",
    }
}

/// Prints the plan of --faults.
pub fn plan_of_faults(recording: &Recording, json: bool) -> Result<Done, Failure> {
    if json {
        let body = json!({
            "qemu": null, "qemu_version": null, "plugin": null, "plugin_built": null,
            "program": recording.program.to_string_lossy(), "arguments": arguments(recording),
            "output": recording.output.to_string_lossy(), "instructions_output": null,
            "filter": crate::trace::words::filter_json(trace::Filter::None), "follow": true,
        });
        exit::print_json("superpage.record-plan/1", body)?;
        return Ok(Done::Fine);
    }
    exit::print(&format!(
        "program   {}\nunder     the kernel's tracepoint exceptions:page_fault_user, on base pages\n\
         output    {}\n",
        recording.program.display(),
        recording.output.display()
    ))?;
    Ok(Done::Fine)
}

fn arguments(recording: &Recording) -> Vec<std::borrow::Cow<'_, str>> {
    recording.arguments.iter().map(|word| word.to_string_lossy()).collect()
}

/// Prints the plan of a recording.
pub fn plan(tools: &Tools, recording: &Recording, json: bool) -> Result<Done, Failure> {
    let built = tools.is_built();
    let itlb = recording.instructions.as_ref();
    if json {
        let body = json!({
            "qemu": tools.qemu.to_string_lossy(), "qemu_version": tools.version,
            "plugin": tools.plugin.to_string_lossy(), "plugin_built": built,
            "program": recording.program.to_string_lossy(),
            "arguments": arguments(recording),
            "output": recording.output.to_string_lossy(),
            "instructions_output": itlb.map(|path| path.to_string_lossy()),
            "filter": crate::trace::words::filter_json(recording.filter),
            "follow": recording.follow,
        });
        exit::print_json("superpage.record-plan/1", body)?;
        return Ok(Done::Fine);
    }
    let mut lines = vec![
        ("program", recording.program.display().to_string()),
        ("under", format!("{} ({})", tools.qemu.display(), tools.version)),
        (
            "plugin",
            format!("{}{}", tools.plugin.display(), if built { "" } else { ", to be built" }),
        ),
        ("output", recording.output.display().to_string()),
        ("filter", crate::trace::words::filter(recording.filter)),
    ];
    lines.extend(itlb.map(|path| ("fetches", path.display().to_string())));
    let text: String = lines.iter().map(|(name, what)| format!("{name:<9} {what}\n")).collect();
    exit::print(&text)?;
    Ok(Done::Fine)
}
