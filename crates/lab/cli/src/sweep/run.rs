//! `superpage lab sweep run`: runs the missing passes of a sweep or a shard, here or on a cluster.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use lab::Going;
use lab::sweep::{Plan, Progress as Now, Ran, Shard, State, Store};
use serde_json::{Value, json};

use super::Directory;
use super::damage::complain;
use super::merge::Target;
use super::on::{self, Ended, Sweep};
use crate::simulate::Parts;
use cli::exit::{self, Done, Failure};
use operations::cluster::On;
use operations::jobs::arms::seconds;
use operations::reporter::Progress;

/// Schema of `--json`.
const SCHEMA: &str = "superpage.lab.sweep-run/1";

/// Run what is missing of a sweep: here, one shard of it, or all of it on a cluster.
///
/// The results of each pass (one workload on one machine, under all designs) are written atomically when it ends. After
/// ^C, a kill or a crash the same command continues. Exits with 1 if some passes failed, or --max-time ended the run.
/// `--on slurm` submits an array of jobs, `--on ray` tasks; both watch them and resubmit those that failed. With
/// --output the whole is merged: the same bytes wherever it ran.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    directory: Directory,

    /// Which part of the passes: I/N, I from 0 to N-1. Parts differ by one pass at most.
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE)]
    shard: Shard,

    /// Threads; 0 is one per CPU [default: 0]. On a cluster: CPUs of each part [default: 1].
    #[arg(long, short, value_name = "N")]
    jobs: Option<u32>,

    /// Begin no pass after this time: 90s, 50m, 3h. Running passes are finished. On a cluster, the time of each job.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    max_time: Option<f64>,

    /// Merge into NAME.parquet and NAME.json once the whole sweep is done.
    #[arg(long, short, value_name = "NAME")]
    output: Option<PathBuf>,

    /// Overwrite existing files of --output that hold something else.
    #[arg(long)]
    force: bool,

    /// Print what would be run, on a cluster also by which script; run nothing.
    #[arg(long)]
    dry_run: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Do not print progress.
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    on: on::OnArgs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.on.check(args.shard == Shard::WHOLE)?;
    let store = super::writable(&args.directory.directory)?;
    let plan = store.plan().map_err(Failure::usage)?;
    let target = args.output.as_deref().map(Target::new).transpose()?;
    if args.dry_run {
        return dry_run(&args, &store, &plan);
    }
    let is_whole = || -> Result<bool, Failure> {
        Ok(State::of_whole(&plan, &store.read().map_err(Failure::usage)?).passes_left == 0)
    };
    // If the sweep is complete, an earlier run of this command may have written the files: accept equal ones.
    if let Some(target) = &target
        && !is_whole()?
    {
        target.check_new(args.force)?;
    }
    let began = Instant::now();
    let ended = match args.on.cluster.on {
        On::Local => local(&args, &store, &plan)?,
        On::Slurm | On::Ray => on_cluster(&args, &store, &plan)?.run(args.quiet)?,
    };
    for (what, why) in &ended.failed {
        exit::say(&format!("{what}: {why}"));
    }
    let merged = match target {
        Some(target) if ended.left() == 0 && is_whole()? => {
            let merged = lab::sweep::merge(std::slice::from_ref(&store), false);
            target.write_unless_same(&merged.map_err(Failure::usage)?, args.force)?;
            target.without_parquet().iter().for_each(|line| exit::say(line));
            Some(target)
        }
        _ => None,
    };
    exit::print(&match args.json {
        true => document(&args, &ended, began, merged.as_ref())?,
        false => words(&args, &ended, merged.as_ref()),
    })?;
    Ok(match ended.signal {
        Some(signal) => Done::Signal(signal),
        None if ended.left() == 0 || ended.detached => Done::Fine,
        None => Done::Negative,
    })
}

fn on_cluster<'a>(args: &'a Args, store: &'a Store, plan: &'a Plan) -> Result<Sweep<'a>, Failure> {
    Sweep::new(store, plan, &args.on, args.jobs.unwrap_or(1), args.max_time)
}

fn words(args: &Args, ended: &Ended, merged: Option<&Target>) -> String {
    let rest = match (ended.left(), &ended.stopped) {
        (0, _) => String::new(),
        (left, Some(why)) => format!(", {left} left: {why}"),
        (left, None) => format!(", {left} could not be run"),
    };
    let Ended { done, present, .. } = ended;
    let part = match args.on.cluster.on {
        On::Local => format!("shard {}: ", args.shard),
        On::Slurm | On::Ray => String::new(),
    };
    let merged = merged.map_or(String::new(), |target| format!("; {} written", target.names()));
    let shown = args.directory.directory.display();
    format!("{shown}: {part}{done} cells run, {present} there before{rest}{merged}\n")
}

fn document(
    args: &Args,
    ended: &Ended,
    began: Instant,
    merged: Option<&Target>,
) -> Result<String, Failure> {
    let failed = ended.failed.iter().map(|(what, why)| json!({ "what": what, "why": why }));
    let is_local = args.on.cluster.on == On::Local;
    let body = json!({
        "directory": args.directory.directory,
        "on": args.on.cluster.on.name(),
        "shard": is_local.then(|| args.shard.to_string()),
        "cells": ended.cells,
        "present": ended.present,
        "done": ended.done,
        "left": ended.left(),
        "parts_submitted": (!is_local).then_some(ended.submitted),
        "failed": failed.collect::<Value>(),
        "stopped": ended.stopped,
        "signal": ended.signal,
        "seconds": began.elapsed().as_secs_f64(),
        "merged": merged.map(Target::paths),
    });
    exit::json_text(SCHEMA, body)
}

fn dry_run(args: &Args, store: &Store, plan: &Plan) -> Result<Done, Failure> {
    if args.on.cluster.on != On::Local {
        exit::print(&on_cluster(args, store, plan)?.dry_run(args.json)?)?;
        return Ok(Done::Fine);
    }
    let groups = args.shard.select(&plan.groups());
    let contents = store.read_groups(&groups).map_err(Failure::usage)?;
    let state = State::new(args.shard, &groups, &contents);
    let (cells, missing) = (state.cells, state.cells - state.done);
    let shown = args.directory.directory.display();
    let body = json!({ "directory": args.directory.directory, "on": "local",
                       "shard": args.shard.to_string(), "cells": cells, "left": missing });
    exit::print(&match args.json {
        true => exit::json_text(on::PLAN_SCHEMA, body)?,
        false => {
            format!("{shown}: shard {} has {cells} cells, {missing} of them to run\n", args.shard)
        }
    })?;
    Ok(Done::Fine)
}

fn local(args: &Args, store: &Store, plan: &Plan) -> Result<Ended, Failure> {
    let began = Instant::now();
    let mut progress = Progress::new(args.quiet, "cells");
    let step = |now: Now| {
        progress.tell(now.done as u64, Some(now.wanted as u64), || {
            format!("{} of {} cells", now.done, now.wanted)
        });
        match args.max_time {
            Some(most) if began.elapsed().as_secs_f64() > most => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let jobs = args.jobs.unwrap_or(0) as usize;
    let ran = shard(store, plan, args.shard, jobs, lab::TO_THE_END, step);
    progress.clear();
    let ran = ran?;
    complain(&ran.damaged, "run again");
    Ok(Ended {
        cells: ran.cells,
        present: ran.present,
        done: ran.done,
        failed: ran.failed,
        stopped: ran.stopped.then(|| "--max-time is over".to_string()),
        ..Ended::default()
    })
}

/// Runs the missing passes of a shard. If `going` cancels, the running passes fail.
pub fn shard(
    store: &Store,
    plan: &Plan,
    shard: Shard,
    jobs: usize,
    going: Going,
    step: impl FnMut(Now) -> ControlFlow<()> + Send,
) -> Result<Ran, Failure> {
    let pass = |group: &lab::sweep::Group| {
        let designs: Vec<_> = group.members.iter().map(|member| member.design).collect();
        Parts::of(group).run(&designs, |_| going()).map_err(|failure| failure.to_string())
    };
    lab::sweep::run(store, plan, shard, jobs, pass, step).map_err(Failure::usage)
}
