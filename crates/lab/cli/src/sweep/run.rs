//! `superpage lab sweep run`: what is missing of a shard.

use std::ops::ControlFlow;
use std::time::Instant;

use lab::sweep::{Shard, Store};

use super::{Directory, complain};
use crate::simulate::Parts;
use cli::exit::{self, Done, Failure};
use cli::progress::Progress;
use cli::seconds;

/// Run what is missing of a sweep, or of one shard of it.
///
/// Each pass (one workload on one machine, under all designs) is written when it ends, whole. After ^C,
/// a kill or a crash the same command goes on where it was. Exit code 1: some passes could not be run,
/// or --max-time came first.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    directory: Directory,

    /// Which part of the passes: I/N, I from 0 to N-1. Parts differ by one pass at most.
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE)]
    shard: Shard,

    /// Threads; 0 is one per CPU.
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    jobs: usize,

    /// Begin no pass after this time: 90s, 50m, 3h. Passes under way are finished.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    max_time: Option<f64>,

    /// Tell what would be run, and run nothing.
    #[arg(long)]
    dry_run: bool,

    /// No progress on standard error.
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let store = Store::at(&args.directory.directory);
    let plan = store.plan().map_err(Failure::usage)?;
    let shown = args.directory.directory.display();
    if args.dry_run {
        let contents = store.read().map_err(Failure::usage)?;
        let groups = args.shard.select(plan.groups());
        let cells = || groups.iter().flat_map(|group| &group.members);
        let missing = cells().filter(|one| !contents.reports.contains_key(&one.cell)).count();
        exit::print(&format!(
            "{shown}: shard {} has {} cells, {missing} of them to run\n",
            args.shard,
            cells().count()
        ))?;
        return Ok(Done::Fine);
    }
    let began = Instant::now();
    let mut progress = Progress::new(args.quiet, "cells");
    let step = |now: lab::sweep::Progress| {
        progress.tell(now.done as u64, Some(now.wanted as u64), || {
            format!("{} of {} cells", now.done, now.wanted)
        });
        match args.max_time {
            Some(most) if began.elapsed().as_secs_f64() > most => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let pass = |group: &lab::sweep::Group| {
        let designs: Vec<_> = group.members.iter().map(|member| member.design).collect();
        Parts::of(group).run(&designs, |_| ()).map_err(|failure| failure.to_string())
    };
    let ran = lab::sweep::run(&store, &plan, args.shard, args.jobs, pass, step);
    progress.clear();
    let ran = ran.map_err(Failure::usage)?;
    complain(&ran.damaged, "run again");
    for (what, why) in &ran.failed {
        exit::say(&format!("{what}: {why}"));
    }
    let left = ran.cells - ran.present - ran.done;
    let rest = match (left, ran.stopped) {
        (0, _) => String::new(),
        (left, true) => format!(", {left} left: --max-time is over"),
        (left, false) => format!(", {left} could not be run"),
    };
    exit::print(&format!(
        "{shown}: shard {}: {} cells run, {} there before{rest}\n",
        args.shard, ran.done, ran.present
    ))?;
    Ok(if left == 0 { Done::Fine } else { Done::Negative })
}
