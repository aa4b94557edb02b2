//! `superpage trace cat`: prints a trace as text.

use std::fmt::Write;
use std::path::PathBuf;

use trace::{Block, Source};

use super::words;
use crate::exit::{self, Done, Failure};

/// Print a trace as text, one event or record per line.
///
/// A record is `R` or `W`, region:page, and the number of accesses it stands for: `W 3:17 x200`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace file.
    file: PathBuf,

    /// Maximum number of lines.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// First chunk to print.
    #[arg(long, value_name = "N", default_value_t = 0)]
    chunk: usize,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let mut reader = super::open(&args.file)?;
    let chunks = reader.info().chunks.len();
    if args.chunk > 0 && args.chunk >= chunks {
        let what = format!(
            "--chunk {}: no such chunk in {}: its {chunks} are numbered from 0",
            args.chunk,
            args.file.display()
        );
        return Err(Failure::usage(what));
    }
    reader.seek(args.chunk);
    let (mut block, mut text) = (Block::default(), String::new());
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 && reader.next(&mut block)? {
        text.clear();
        left -= lines(&block, left, &mut text);
        if !exit::print_some(&text)? {
            break;
        }
    }
    Ok(Done::Fine)
}

/// Appends at most `most` lines; returns the number of lines written.
fn lines(block: &Block, most: u64, out: &mut String) -> u64 {
    let mut events = block.events.iter().peekable();
    let mut written = 0;
    for at in 0..=block.accesses.len() {
        while let Some((_, event)) = events.next_if(|(position, _)| *position as usize <= at) {
            if written == most {
                return written;
            }
            let _ = writeln!(out, "{}", words::event(event));
            written += 1;
        }
        let Some(access) = block.accesses.get(at) else { break };
        if written == most {
            return written;
        }
        let kind = if access.writes() { 'W' } else { 'R' };
        let (region, slot) = (access.page().region().0, access.page().slot());
        let _ = match block.counts.get(at).copied().unwrap_or(1) {
            1 => writeln!(out, "{kind} {region}:{slot}"),
            count => writeln!(out, "{kind} {region}:{slot} x{count}"),
        };
        written += 1;
    }
    written
}
