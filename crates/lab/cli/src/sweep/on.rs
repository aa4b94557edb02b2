//! `sweep run --on`: runs a sweep on a cluster. Its passes are divided into parts. A cluster job runs each part as
//! `sweep run --shard`.
//! See docs/decisions/lab.md#9.

use std::path::Path;

use cli::exit::{self, Failure};
use lab::sweep::{Group, Hash, Plan, Shard, State, Store, states};
use operations::cluster::{
    self, ClusterArgs, Kind, Launch, On, Share, Task, Word, make_directories, only, quoted, text_of,
};
use serde_json::json;

use super::damage::complain;

/// The schema of `--dry-run --json`.
pub(super) const PLAN_SCHEMA: &str = "superpage.lab.sweep-run-plan/1";

/// Flags of cluster runs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clusters")]
pub(super) struct OnArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// How many jobs to split the sweep into [default: 64, or the number of passes if that is smaller].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    parts: Option<u32>,
}

impl OnArgs {
    /// Rejects flags that do not apply to this kind of cluster.
    pub fn check(&self, is_whole: bool) -> Result<(), Failure> {
        match self.cluster.on {
            On::Local if self.parts.is_some() => Err(only("--parts", "slurm and --on ray")),
            On::Slurm | On::Ray if !is_whole => Err(Failure::usage(
                "--shard: a cluster runs all shards; say by --parts how many there are",
            )),
            _ => self.cluster.check(),
        }
    }
}

#[derive(Default)]
pub(super) struct Ended {
    /// Number of requested cells.
    pub cells: usize,
    /// Number of cells with results before the run.
    pub present: usize,
    /// Number of cells run now.
    pub done: usize,
    /// Number of parts submitted, resubmissions included.
    pub submitted: u64,
    /// Failed passes, with the reasons.
    pub failed: Vec<(String, String)>,
    /// Why the remaining cells are unfinished.
    pub stopped: Option<String>,
    /// The signal that interrupted the run.
    pub signal: Option<i32>,
    /// Whether the jobs continue in the background (`--detach`).
    pub detached: bool,
}

impl Ended {
    pub fn left(&self) -> usize {
        self.cells - self.present - self.done
    }
}

pub(super) struct Sweep<'a> {
    store: &'a Store,
    args: &'a OnArgs,
    directory: String,
    groups: Vec<Group<'a>>,
    parts: u32,
    /// Number of CPUs of each part.
    jobs: u32,
    max_time: Option<f64>,
    programs: Vec<String>,
}

impl<'a> Sweep<'a> {
    pub fn new(
        store: &'a Store,
        plan: &'a Plan,
        args: &'a OnArgs,
        jobs: u32,
        max_time: Option<f64>,
    ) -> Result<Self, Failure> {
        /// Enough parts to keep a few dozen CPUs busy to the end, and few enough for one query of the queue.
        const PARTS: u32 = 64;
        if jobs == 0 {
            return Err(Failure::usage("--jobs 0: say how many CPUs a part gets, e.g. 1"));
        }
        let groups = plan.groups();
        let most = u32::try_from(groups.len()).unwrap_or(u32::MAX).max(1);
        Ok(Self {
            directory: text_of(&full(store.directory())?)?,
            parts: args.parts.unwrap_or(PARTS).min(most),
            programs: args.cluster.programs(KIND.program)?,
            store,
            args,
            groups,
            jobs,
            max_time,
        })
    }

    fn launch(&self) -> Launch<'_> {
        Launch {
            work: self,
            args: &self.args.cluster,
            directory: self.directory.clone(),
            id: Hash::new([self.directory.as_str()]).to_string()[..12].to_string(),
            parts: self.parts,
            deal: self.parts.to_string(),
            share: Share::Cpus(self.jobs),
            programs: self.programs.clone(),
        }
    }

    fn part(&self, part: u32) -> (Shard, Vec<Group<'a>>) {
        let shard = Shard::new(part, self.parts).expect("parts are numbered from 0");
        (shard, shard.select(&self.groups))
    }

    fn max_time(&self) -> Option<String> {
        self.max_time.map(|time| format!("{time}s"))
    }

    /// Runs the sweep on its cluster to the end.
    pub fn run(&self, quiet: bool) -> Result<Ended, Failure> {
        make_directories(&self.directory, &["groups", "locks", "logs"])?;
        let _launched = self.store.launch().map_err(Failure::usage)?;
        let before = self.store.read().map_err(Failure::usage)?;
        complain(&before.damaged, "run again");
        let before = states(&self.groups, &before, self.parts);
        let watched = self.launch().run(quiet)?;
        let after = self.store.read().map_err(Failure::usage)?;
        let after = states(&self.groups, &after, self.parts);
        let done = |states: &[State]| states.iter().map(|state| state.done).sum::<usize>();
        let failed = watched.given_up.into_iter();
        Ok(Ended {
            cells: before.iter().map(|state| state.cells).sum(),
            present: done(&before),
            done: done(&after).saturating_sub(done(&before)),
            submitted: watched.submitted,
            failed: failed
                .map(|(part, why)| (format!("part {part}/{}", self.parts), why))
                .collect(),
            stopped: watched.stopped,
            signal: watched.signal,
            detached: watched.detached,
        })
    }

    /// Formats the submission of the missing parts.
    pub fn dry_run(&self, json: bool) -> Result<String, Failure> {
        let contents = self.store.read().map_err(Failure::usage)?;
        let states = states(&self.groups, &contents, self.parts);
        let left = || states.iter().filter(|state| state.passes_left > 0);
        let parts: Vec<u32> = left().map(|state| state.shard.index()).collect();
        let submission = self.launch().submission(&parts);
        if json {
            let body = json!({
                "directory": self.directory,
                "on": self.args.cluster.on.name(),
                "cells": states.iter().map(|state| state.cells).sum::<usize>(),
                "left": states.iter().map(|state| state.cells - state.done).sum::<usize>(),
                "parts": self.parts,
                "parts_left": parts,
                "command": submission.command,
                "script": submission.script,
            });
            return exit::json_text(PLAN_SCHEMA, body);
        }
        let part = |state: &State| {
            let State { shard, cells, done, passes_left } = state;
            let run = cells - done;
            format!("part {shard}: {run} of {cells} cells to run, in {passes_left} passes\n")
        };
        let rows: String = left().map(part).collect();
        if rows.is_empty() {
            return Ok(format!("{}: nothing is left to run\n", self.directory));
        }
        Ok(format!("{rows}\n{}", submission.text()))
    }
}

fn full(path: &Path) -> Result<std::path::PathBuf, Failure> {
    let shown = path.display();
    let full = path.canonicalize();
    full.map_err(|error| Failure::usage(format!("{shown}: {error}; give a sweep's directory")))
}

const KIND: Kind = Kind {
    name: "sweep",
    piece: "pass",
    pieces: "passes",
    program: "superpage-lab",
    shared: &["plan.json"],
    folder: "groups",
    results: r"[0-9a-f]{32}-[0-9a-f]{32}\.jsonl",
    // SIGKILL, because the program changes no settings that it would have to restore.
    ends_by: 9,
};

impl cluster::Work for Sweep<'_> {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn left(&self, part: u32) -> Result<usize, Failure> {
        let (shard, groups) = self.part(part);
        let contents = self.store.read_groups(&groups).map_err(Failure::usage)?;
        Ok(State::new(shard, &groups, &contents).passes_left)
    }

    fn seen(&self) -> Result<(usize, usize), Failure> {
        let passes = self.groups.len();
        Ok((self.store.passes_seen().map_err(Failure::usage)?.min(passes), passes))
    }

    fn script(&self) -> String {
        let Self { parts, jobs, .. } = self;
        let time = self.max_time().map_or(String::new(), |time| format!(" --max-time {time}"));
        let (program, directory) = (quoted(&self.programs[0]), quoted(&self.directory));
        format!(
            "#!/bin/bash\nexec {program} sweep run {directory} --shard \"$SLURM_ARRAY_TASK_ID/{parts}\" --jobs {jobs} --quiet{time}\n"
        )
    }

    fn task(&self, part: u32) -> Result<Task, Failure> {
        let (shard, groups) = self.part(part);
        let files = self.store.files_of(&groups).map_err(Failure::usage)?;
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        let text = |word: &str| Word::Text(word.to_string());
        let mut words = vec![text("sweep"), text("run"), Word::Place(String::new())];
        let (shard, jobs) = (shard.to_string(), self.jobs.to_string());
        words.extend(["--quiet", "--shard", &shard, "--jobs", &jobs].map(text));
        if let Some(time) = self.max_time() {
            words.extend(["--max-time", &time].map(text));
        }
        Ok(Task { files: names.map(str::to_string).collect(), words })
    }

    fn other_deal(&self, deal: &str) -> String {
        format!("of {deal} parts; give --parts {deal}")
    }
}
