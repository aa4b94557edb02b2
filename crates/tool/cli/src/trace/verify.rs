//! `superpage trace verify`: reads and checks a whole trace.

use std::path::PathBuf;

use serde_json::json;
use trace::{Block, Checker, Reader, Source, TraceError};

use crate::exit::{self, Done, Failure};
use crate::pool::progress::Watcher;

/// Verify a trace: checksums, totals, and that every access is to mapped memory.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace file.
    file: PathBuf,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Do not print progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Default)]
struct Found {
    records: u64,
    accesses: u64,
    events: u64,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let mut watcher = Watcher::new(args.quiet)?;
    let mut found = Found::default();
    let unsound = match read(&args, &mut watcher, &mut found) {
        Ok(()) => None,
        Err(TraceError::Stopped { .. }) => return Ok(watcher.end(Done::Fine)),
        Err(
            error @ (TraceError::Corrupt { .. }
            | TraceError::Truncated { .. }
            | TraceError::Stream { .. }),
        ) => Some(error),
        Err(error) => return Err(error.into()),
    };
    let why = unsound.as_ref().map(ToString::to_string);
    let Found { records, accesses, events } = found;
    if args.json {
        let body = json!({
            "sound": why.is_none(), "why": why,
            "records": records, "accesses": accesses, "events": events,
        });
        exit::print_json("superpage.trace-verify/1", body)?;
    } else {
        let sound = format!(
            "{}: ok: {accesses} accesses in {records} records, {events} events",
            args.file.display()
        );
        exit::print(&format!("{}\n", why.as_ref().unwrap_or(&sound)))?;
    }
    Ok(watcher.end(if why.is_none() { Done::Fine } else { Done::Negative }))
}

fn read(args: &Args, watcher: &mut Watcher, found: &mut Found) -> Result<(), TraceError> {
    let mut reader = Reader::open(&args.file)?;
    reader.regions()?;
    let totals = reader.info().totals;
    let path = || args.file.clone();
    let (mut block, mut checker) = (Block::default(), Checker::new());
    while reader.next(&mut block)? {
        checker.block(&block).map_err(|(at, what)| TraceError::Stream {
            path: path(),
            record: found.records + at as u64,
            what,
        })?;
        found.records += block.accesses.len() as u64;
        found.accesses += block.total();
        found.events += block.events.len() as u64;
        let line = || format!("verified {} of {} records", found.records, totals.records);
        if watcher.tick(line).is_break() {
            return Err(TraceError::Stopped { path: path() });
        }
    }
    if let Some(offset) = reader.info().cut {
        let what = "the footer is missing (was the writer killed?)";
        return Err(TraceError::Truncated { path: path(), offset, what });
    }
    if (found.accesses, found.events) != (totals.accesses, totals.events) {
        return Err(TraceError::Corrupt {
            path: path(),
            chunk: None,
            offset: reader.info().length,
            what: "the chunks do not match the footer".to_string(),
        });
    }
    Ok(())
}
