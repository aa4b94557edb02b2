//! `superpage bench touch`: the page-fault test of 2005 on this machine.

use std::path::PathBuf;

use ::workload::{Options, Settings, Workload};
use units::ByteSize;

use super::runner::{self, BenchOutcome};
use super::{Common, arms, deliver, save};
use crate::exit::{self, Done, Failure};

/// First touch of fresh memory by all threads: the table of 2005, for every kind of pages.
///
/// Each row runs in fresh processes, interleaved with all others. Memory comes from malloc; what is timed is
/// allocating and touching it. The common unit is base pages touched per second: a superpage's fault counts as
/// all the base pages it brings, and the faults that the kernel counted stand beside it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Memory to touch in each repetition.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: ByteSize,

    /// How often it is allocated, touched and freed in a run.
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: u32,

    /// Cache lines touched in each page.
    #[arg(long, value_name = "K", default_value_t = 1)]
    lines: u32,

    /// Allocate, touch and free it in pieces of this size.
    #[arg(long, value_name = "SIZE")]
    burst: Option<ByteSize>,

    /// Milliseconds of rest before each piece, not timed.
    #[arg(long, value_name = "MS")]
    gap: Option<u32>,

    /// Time each page's first touch by itself, and tell how long the slowest took. Rates are lower then.
    #[arg(long)]
    latency: bool,

    /// Draw it into a file: latencies if they were timed, else rates.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Keep what faults and zeroing cost here in the machine `this`, for `superpage lab --machine this`.
    #[arg(long)]
    save: bool,

    // Last: their headings hold for all flags after them.
    #[command(flatten)]
    common: Common,
}

const HELP: &str = "\
Columns as in 2005: Gb touched in each repetition, repetitions, threads, cache lines in each page, seconds of
CPU time in user mode and in the kernel, seconds, faults per CPU second and per second.

Examples:
  superpage bench touch --threads 1,2
  superpage bench touch --arm base --arm thp:64K --arm thp --allow
  superpage bench touch --size 1G --burst 64M --gap 100      # bursts, with time to prepare between them
  superpage bench touch --latency --svg tail.svg";

pub fn run(args: Args) -> Result<Done, Failure> {
    args.common.outputs.check(args.svg.as_ref())?;
    let settings = Settings {
        size: args.size,
        seed: args.common.seed,
        options: Options {
            repeat: Some(args.repeat),
            lines: Some(args.lines),
            burst: args.burst,
            gap: args.gap,
            latency: args.latency,
            ..Options::default()
        },
        ..Settings::new(Workload::Touch)
    };
    if args.save {
        save::check(args.latency)?;
    }
    let ours = |facts: &_| arms::default(args.common.allow, facts, true, args.burst);
    let document = match runner::run(&args.common, Workload::Touch, &settings, ours)? {
        BenchOutcome::Document(document) => document,
        BenchOutcome::Plans => return Ok(Done::Fine),
        BenchOutcome::Signal(signal) => return Ok(Done::Signal(signal)),
    };
    deliver(&args.common.outputs, args.svg.as_ref(), &document)?;
    if args.save {
        let zeroing = super::zero::measure(args.common.outputs.quiet)?;
        exit::say(&save::of_touch(&document, &zeroing)?);
    }
    Ok(Done::Fine)
}
