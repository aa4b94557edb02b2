//! `superpage bench`: how fast a process gets memory on this machine, and what zeroing costs. Flags; from flags
//! to arms.

mod arms;
mod requests;
mod runner;
mod save;
mod table;
mod touch;
mod zero;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use experiment::bench::Document;

use crate::exit::{Done, Failure};
use crate::files;
use crate::loan::PoolPolicy;

/// Measure how fast memory is got: first touches, requests, zeroing.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    Touch(touch::Args),
    Requests(requests::Args),
    Zero(zero::Args),
}

/// What `bench touch` and `bench requests` share.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Arms and runs")]
pub struct Common {
    /// An arm; repeatable. A recipe as `compare` takes it, or populate, or `populate+` and a recipe [default:
    /// base, sizes of mTHP that are on, thp, hugetlb, pool (libsuperpage.so's prepared superpages); touch:
    /// populate as well].
    #[arg(long = "arm", value_name = "ARM", value_parser = arms::parse)]
    arms: Vec<arms::Arm>,

    /// Numbers of threads, each a row of every arm [default: 1 and one for each CPU].
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = crate::workload::threads)]
    threads: Vec<NonZeroUsize>,

    /// Measured runs of each row; they come in pairs.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,

    /// Switch sizes of mTHP on for the runs of their arms, and all other sizes off, and put it back (root).
    #[arg(long)]
    allow: bool,

    /// Whether a hugetlb pool that is short may be lent pages for the runs.
    #[arg(long, value_enum, default_value = "lend")]
    pool: PoolPolicy,

    /// Seed of the order of runs and of what is written.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print each row's plan, and do nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    outputs: Outputs,
}

/// Where results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Outputs {
    /// Print JSON (superpage.bench/1).
    #[arg(long)]
    json: bool,

    /// Write it to a file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write over files that exist.
    #[arg(long)]
    force: bool,

    /// No progress on standard error.
    #[arg(long, short)]
    quiet: bool,
}

impl Outputs {
    /// Fails now rather than after minutes, if a file cannot be written or exists.
    fn check(&self, svg: Option<&PathBuf>) -> Result<(), Failure> {
        files::check_outputs(self.output.as_deref(), "--svg", svg.map(PathBuf::as_path), self.force)
    }
}

/// Writes what was measured.
fn deliver(outputs: &Outputs, svg: Option<&PathBuf>, document: &Document) -> Result<(), Failure> {
    let drawn = svg.map_or(Ok(()), |path| files::write(path, document.to_svg()));
    let text = if outputs.json { document.to_json() } else { table::text(document) };
    files::deliver(outputs.output.as_deref(), &text).and(drawn)
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.benchmark {
        Benchmark::Touch(args) => touch::run(args),
        Benchmark::Requests(args) => requests::run(args),
        Benchmark::Zero(args) => zero::run(args),
    }
}
