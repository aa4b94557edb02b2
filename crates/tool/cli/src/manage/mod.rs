//! `superpage manage`: superpages for running processes, once or for as long as they run.

mod chart;
mod check;
mod daemon;
mod once;
pub mod words;

use std::path::PathBuf;

use ::manage::config::Sources;

use crate::exit::{Done, Failure};
use crate::targets::TargetArgs;

/// Put running processes on superpages: once, or for as long as they run.
///
/// --once puts memory on superpages now, the hottest first; --undo splits what was made. Without either this process stays
/// and keeps designs in force on the processes that the configuration names: /etc/superpage/manage.toml, and then the
/// files /etc/superpage/manage.d/*.toml in the order of their names. Its rules match processes by unit, cgroup, name,
/// command line or user; the first rule that matches a process decides.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Put the processes' memory on superpages now, and end
    #[arg(long, groups = ["mode", "act"])]
    once: bool,

    /// Split the superpages that were made; without processes, those of all
    #[arg(long, groups = ["mode", "act"])]
    undo: bool,

    /// Check the configuration and list what each running process would get; change nothing
    #[arg(long, group = "mode")]
    check_config: bool,

    /// Print what the manager that runs keeps in force
    #[arg(long, group = "mode")]
    status: bool,

    /// With --status: draw coverage, memory and CPU time since the manager's start
    #[arg(long, value_name = "FILE", requires = "status", help_heading = "Output")]
    svg: Option<PathBuf>,

    /// With --status: overwrite the picture
    #[arg(long, requires = "svg", help_heading = "Output")]
    force: bool,

    /// Seconds that pass for designs and intervals in one second, to try a day in minutes
    #[arg(long, value_name = "N", default_value_t = 1, hide = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    speed: u32,

    /// Read this file instead of the system's configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "undo", "status"])]
    config: Option<PathBuf>,

    #[command(flatten)]
    targets: TargetArgs,

    #[command(flatten)]
    limits: once::OnceArgs,

    /// Say what --once or --undo would do; change nothing
    #[arg(long, requires = "act", conflicts_with_all = once::NOT_ACTS, help_heading = "Once")]
    dry_run: bool,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const AFTER: &str = "\
Exit codes: 0 done; 1 less coverage than --require-coverage, superpages that --undo could not split, or no manager for --status; 2 wrong usage, or mistakes in the configuration, each printed \
with its file and line; 3 not possible on this machine.";

pub fn run(args: Args) -> Result<Done, Failure> {
    let Args { once, undo, dry_run, json, .. } = args;
    let sources = args.config.map_or(Sources::System, Sources::File);
    match () {
        () if once || undo => {
            once::run(&args.targets, &args.limits, once::Mode { undo, dry_run, json })
        }
        () if args.check_config => check::run(&sources, json),
        () if args.status => daemon::status(json, args.svg.as_deref(), args.force),
        () if !args.targets.targets().is_empty() => Err(Failure::usage(
            "processes are for --once and --undo; the configuration names a manager's",
        )),
        () => daemon::run(&sources, args.speed),
    }
}
