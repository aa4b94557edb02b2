//! `superpage bench touch`: the page-fault test of 2005.

use std::path::PathBuf;

use ::workload::{Options, Settings, Workload};
use units::ByteSize;

use operations::bench::{self, BenchOutcome, arms, costs as save};

use super::{Common, deliver, plans_in_words};
use crate::exit::{self, Done, Failure};

/// First touch of fresh memory by all threads: page faults per second.
///
/// The page-fault test of 2005, for every page size. Each row runs in fresh processes, interleaved with all others.
/// Memory comes from malloc; allocating and touching it is timed. Rates are base pages per second: a superpage fault
/// counts as all its base pages; the kernel's own fault count is shown next to it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Memory to touch in each repetition.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: ByteSize,

    /// How often the memory is allocated, touched and freed in a run.
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: u32,

    /// Cache lines touched in each page.
    #[arg(long, value_name = "K", default_value_t = 1)]
    lines: u32,

    /// Allocate, touch and free the memory in pieces of this size.
    #[arg(long, value_name = "SIZE")]
    burst: Option<ByteSize>,

    /// Milliseconds of sleep before each piece, not timed.
    #[arg(long, value_name = "MS")]
    gap: Option<u32>,

    /// Time each first touch and report the latencies; the timing itself lowers the rates.
    #[arg(long)]
    latency: bool,

    /// Also write a chart: of latencies with --latency, else of rates.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Save the costs of faults and zeroing as part of the machine `this`, for `superpage lab
    /// --machine this`.
    #[arg(long)]
    save: bool,

    // These flags come last: the help headings of flattened flags hold for all flags after them.
    #[command(flatten)]
    common: Common,
}

const HELP: &str = "\
Columns as in 2005: Gb touched in each repetition, repetitions, threads, cache lines in each page,
user, system and elapsed seconds, faults per CPU second and per second.

Examples:
  superpage bench touch --threads 1,2
  superpage bench touch --arm base --arm thp:64K --arm thp --allow
  superpage bench touch --size 1G --burst 64M --gap 100      # bursts, with idle gaps (untimed)
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
        if args.lines != 1 || args.burst.is_some() || args.gap.is_some() {
            return Err(Failure::usage(
                "--save keeps what a fault costs: leave out --lines, --burst and --gap",
            ));
        }
        save::check(args.latency)?;
    }
    let ours = |facts: &_| arms::default(args.common.allow, facts, true, args.burst);
    let document = match bench::run(
        &args.common.request(),
        Workload::Touch,
        &settings,
        args.common.dry_run,
        ours,
    )? {
        BenchOutcome::Document(document) => document,
        BenchOutcome::Plans(plans) => {
            exit::print(&plans_in_words(&plans))?;
            return Ok(Done::Fine);
        }
        BenchOutcome::Signal(signal) => return Ok(Done::Signal(signal)),
    };
    deliver(&args.common.outputs, args.svg.as_ref(), &document)?;
    if args.save {
        let zeroing = super::zero::measure(args.common.outputs.quiet)?;
        exit::say(&save::of_touch(&document, &zeroing)?);
    }
    Ok(Done::Fine)
}
