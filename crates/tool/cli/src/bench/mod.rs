//! `superpage bench`: measures allocation and zeroing on this machine, and runs programs on fragmented memory. Parses
//! the flags and translates them to arms.

mod frag;
mod requests;
mod table;
mod touch;
mod zero;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use experiment::bench::Document;

use crate::exit::{Done, Failure};
use crate::files;
use operations::bench::{BenchPlans, Request, arms};
use operations::pool_guard::PoolPolicy;

/// Measure first touches, requests and zeroing; fragment memory.
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
    Frag(frag::Args),
}

/// Flags common to `bench touch` and `bench requests`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Arms and runs")]
pub struct Common {
    /// Arm to run; repeatable: a recipe as for `compare`, `populate`, or `populate+RECIPE` [default: base,
    /// enabled mTHP sizes, thp, hugetlb, pool (libsuperpage.so with --prezero and --prefault), and for
    /// touch populate].
    #[arg(long = "arm", value_name = "ARM", value_parser = arms::parse)]
    arms: Vec<arms::Arm>,

    /// Numbers of threads; every arm has a row for each number [default: 1 and the number of CPUs].
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = operations::workloads::threads)]
    threads: Vec<NonZeroUsize>,

    /// Measured runs of each row, made in pairs.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,

    /// Enable the mTHP size of an arm, and disable all other mTHP sizes, during the arm's runs
    /// (root).
    #[arg(long)]
    allow: bool,

    /// What to do about a hugetlb pool with too few free pages.
    #[arg(long, value_enum, default_value = "lend")]
    pool: PoolPolicy,

    /// Seed of the order of runs and of the data.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print what each row would do; do nothing.
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,

    #[command(flatten)]
    outputs: Outputs,
}

impl Common {
    fn request(&self) -> Request {
        Request {
            arms: self.arms.clone(),
            threads: self.threads.clone(),
            runs: self.runs,
            allow: self.allow,
            pool: self.pool,
            seed: self.seed,
            quiet: self.outputs.quiet,
        }
    }
}

/// Output flags; shared with `verify-cost`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Outputs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Do not print progress.
    #[arg(long, short)]
    pub quiet: bool,
}

impl Outputs {
    /// Fails early if an output file exists or cannot be written.
    pub fn check(&self, svg: Option<&PathBuf>) -> Result<(), Failure> {
        files::check_outputs(self.output.as_deref(), "--svg", svg.map(PathBuf::as_path), self.force)
    }

    /// Whether the result is written as JSON.
    pub fn is_json(&self) -> bool {
        files::is_json(self.json, self.output.as_deref())
    }

    /// Prints the result, or writes it to `--output`.
    pub fn deliver(&self, text: &str) -> Result<(), Failure> {
        files::deliver(self.output.as_deref(), self.force, text)
    }
}

fn deliver(outputs: &Outputs, svg: Option<&PathBuf>, document: &Document) -> Result<(), Failure> {
    let drawn = svg.map_or(Ok(()), |path| files::write(path, outputs.force, document.to_svg()));
    let text = if outputs.is_json() { document.to_json() } else { table::text(document) };
    outputs.deliver(&text).and(drawn)
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.benchmark {
        Benchmark::Touch(args) => touch::run(args),
        Benchmark::Requests(args) => requests::run(args),
        Benchmark::Zero(args) => zero::run(args),
        Benchmark::Frag(args) => frag::run(args),
    }
}

fn plans_in_words(plans: &BenchPlans) -> String {
    let mut text: String = plans.plans.iter().map(crate::run::plan_in_words).collect();
    for arm in &plans.left_out {
        text += &format!("{}\n  left out     {}\n", arm.name, arm.why);
    }
    for line in &plans.would_lend {
        text += &format!("lend\n  {line}\n");
    }
    text
}
