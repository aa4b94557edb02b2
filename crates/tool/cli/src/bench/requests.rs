//! `superpage bench requests`: latency of a server's memory requests.

use std::path::PathBuf;

use ::workload::{Options, Settings, Workload};
use units::ByteSize;

use operations::bench::{self, BenchOutcome, arms};

use super::{Common, deliver, plans_in_words};
use crate::exit::{self, Done, Failure};

/// Latency of allocating, filling and freeing blocks of random sizes.
///
/// Each thread keeps its blocks until its share of the memory is full, then frees the oldest. The first requests get
/// fresh memory, later ones memory that the allocator kept.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Memory in blocks at any time, summed over all threads.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: ByteSize,

    /// Requests of all threads together [default: as many as fill the memory four times].
    #[arg(long, value_name = "N")]
    operations: Option<u64>,

    /// Smallest block [default: 4K].
    #[arg(long, value_name = "SIZE")]
    smallest: Option<ByteSize>,

    /// Largest block; sizes are log-uniform between the smallest and the largest [default: 1M].
    #[arg(long, value_name = "SIZE")]
    largest: Option<ByteSize>,

    /// Also write a chart of the latencies.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    // These flags come last: the help headings of flattened flags hold for all flags after them.
    #[command(flatten)]
    common: Common,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.common.outputs.check(args.svg.as_ref())?;
    let options = Options {
        operations: args.operations,
        smallest: args.smallest,
        largest: args.largest,
        ..Options::default()
    };
    let new = Settings::new(Workload::Requests);
    let settings = Settings { size: args.size, seed: args.common.seed, options, ..new };
    if let Some(arm) = args.common.arms.iter().find(|arm| arm.populates) {
        let name = &arm.recipe.name;
        return Err(Failure::usage(format!(
            "arm {name}: populate is an arm of `bench touch` only"
        )));
    }
    let ours = |facts: &_| arms::default(args.common.allow, facts, false, None);
    match bench::run(
        &args.common.request(),
        Workload::Requests,
        &settings,
        args.common.dry_run,
        ours,
    )? {
        BenchOutcome::Document(document) => {
            deliver(&args.common.outputs, args.svg.as_ref(), &document)?
        }
        BenchOutcome::Plans(plans) => exit::print(&plans_in_words(&plans))?,
        BenchOutcome::Signal(signal) => return Ok(Done::Signal(signal)),
    }
    Ok(Done::Fine)
}
