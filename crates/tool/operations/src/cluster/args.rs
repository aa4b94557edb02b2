//! Flags of cluster runs.

use std::path::PathBuf;

use super::text_of;
use crate::Failure;
use crate::jobs::arms::seconds;

/// Where to run the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum On {
    /// This machine.
    Local,
    /// An array of Slurm jobs; files are on a file system that all nodes share.
    Slurm,
    /// Tasks of a Ray cluster; Ray copies the results back.
    Ray,
}

impl On {
    /// Returns the flag's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Ray => "ray",
        }
    }
}

/// Flags that say how to use a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Clusters")]
pub struct ClusterArgs {
    /// Where to run the work.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = On::Local)]
    pub on: On,

    /// Give up on a part after this many retries in a row without a new result.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retries: u32,

    /// This program on the nodes: a path there, or a name along PATH [default: the path of this one].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// How often to look for results.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds)]
    pub poll: f64,

    /// Slurm: an option for sbatch; repeatable: --slurm-option=--partition=x.
    #[arg(long = "slurm-option", value_name = "OPTION", allow_hyphen_values = true)]
    pub slurm_options: Vec<String>,

    /// Slurm: submit the missing parts, and end; the same command without --detach watches the jobs, and
    /// resubmits failed parts.
    #[arg(long)]
    pub detach: bool,

    /// Ray: the cluster's address [default: RAY_ADDRESS, else that of this machine].
    #[arg(long, value_name = "ADDRESS", default_value = "auto", hide_default_value = true)]
    pub ray_address: String,

    /// Ray: a Python that has Ray installed.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,
}

impl ClusterArgs {
    /// Rejects flags that belong to another kind of cluster.
    ///
    /// # Errors
    /// A flag belongs to another kind of cluster.
    pub fn check(&self) -> Result<(), Failure> {
        match self.on {
            On::Local | On::Ray if self.detach => Err(only("--detach", "slurm")),
            On::Local | On::Ray if !self.slurm_options.is_empty() => {
                Err(only("--slurm-option", "slurm"))
            }
            On::Local | On::Slurm if self.ray_address != "auto" => {
                Err(only("--ray-address", "ray"))
            }
            _ => Ok(()),
        }
    }

    /// Returns candidates for the program on the nodes, in order of preference; `name` is the program's name along
    /// PATH.
    ///
    /// # Errors
    /// The path of this program cannot be read, or is not UTF-8.
    pub fn programs(&self, name: &str) -> Result<Vec<String>, Failure> {
        if let Some(program) = &self.program {
            return Ok(vec![text_of(program)?]);
        }
        let own = std::env::current_exe().map_err(|error| {
            Failure::usage(format!("our own program file: {error}; name it by --program"))
        })?;
        Ok(vec![text_of(&own)?, name.to_string()])
    }
}

/// Returns the error about a flag that belongs to another kind of cluster.
pub fn only(flag: &str, on: &str) -> Failure {
    Failure::usage(format!("{flag} is for --on {on}; give that, or leave it out"))
}
