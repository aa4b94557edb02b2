//! `superpage manage`: designs kept in force on running processes.

mod check;

use std::path::PathBuf;

use ::manage::config::Sources;

use crate::exit::{Done, Failure};

/// Say which running processes get which design.
///
/// The configuration is /etc/superpage/manage.toml, and then the files /etc/superpage/manage.d/*.toml in the order of
/// their names. Its rules match processes by unit, cgroup, name, command line or user; the first rule that matches a
/// process decides.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Read this file instead of the system's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration and list what each running process would get; change nothing
    #[arg(long, required = true)]
    check_config: bool,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const AFTER: &str = "\
Exit codes: 0 the configuration has no mistake; 2 it has, and each is told with its file and line; 3 not possible on \
this machine.";

pub fn run(args: Args) -> Result<Done, Failure> {
    let sources = args.config.map_or(Sources::System, Sources::File);
    check::run(&sources, args.json)
}
