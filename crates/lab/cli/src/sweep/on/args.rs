//! The flags for clusters.

use std::path::PathBuf;

use cli::exit::Failure;
use cli::seconds;

/// Where a sweep runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::sweep) enum On {
    /// The CPUs of this machine.
    Local,
    /// An array of Slurm jobs; DIR is on a file system that all nodes share.
    Slurm,
    /// Tasks of a Ray cluster; results come back through Ray.
    Ray,
}

impl On {
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Ray => "ray",
        }
    }
}

/// How to use a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clusters")]
pub(in crate::sweep) struct ClusterArgs {
    /// Where to run it.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = On::Local)]
    pub on: On,

    /// How many parts to make of it, each a job [default: 64, but no more than passes].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub parts: Option<u32>,

    /// Give a part up when it is run again so many times in a row without a further pass.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retries: u32,

    /// `superpage-lab` on the nodes: a path there, or a name along PATH [default: the path of this one].
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,

    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds)]
    pub poll: f64,

    /// Slurm: an option for sbatch; repeatable: --slurm-option=--partition=x.
    #[arg(long = "slurm-option", value_name = "OPTION", allow_hyphen_values = true)]
    pub slurm_options: Vec<String>,

    /// Slurm: submit what is missing, and end; the same command without it watches, and submits again what failed.
    #[arg(long)]
    pub detach: bool,

    /// Ray: the cluster's address [default: RAY_ADDRESS, else that of this machine].
    #[arg(long, value_name = "ADDRESS", default_value = "auto", hide_default_value = true)]
    pub ray_address: String,

    /// Ray: a Python that has it.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,
}

impl ClusterArgs {
    /// That nothing is asked for that only another place can do.
    pub fn check(&self, is_whole: bool) -> Result<(), Failure> {
        let only = |flag: &str, on: &str| {
            Err(Failure::usage(format!("{flag} is for --on {on}; give that, or leave it away")))
        };
        match self.on {
            On::Local if self.parts.is_some() => only("--parts", "slurm and --on ray"),
            On::Slurm | On::Ray if !is_whole => Err(Failure::usage(
                "--shard: a cluster runs all shards; say by --parts how many there are",
            )),
            On::Local | On::Ray if self.detach => only("--detach", "slurm"),
            On::Local | On::Ray if !self.slurm_options.is_empty() => {
                only("--slurm-option", "slurm")
            }
            On::Local | On::Slurm if self.ray_address != "auto" => only("--ray-address", "ray"),
            _ => Ok(()),
        }
    }
}
