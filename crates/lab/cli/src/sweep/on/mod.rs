//! `sweep run --on`: a sweep on a cluster. Its passes are dealt to parts, each run by a job of the cluster as
//! `sweep run --shard`; here they are submitted, watched and, where they failed, submitted again.
//!
//! What is done is known from the results alone, checked as ever: a job that says it went well and left nothing
//! has failed, and one that was killed after its last pass has not.
//! See docs/decisions/lab.md#9.

mod args;
mod launch;
mod ray;
mod slurm;
mod tries;

use std::process::Command;
use std::time::{Duration, Instant};

use lab::sweep::{State, states};
use serde_json::json;

use super::damage::complain;
use cli::exit::{self, Failure};
use cli::progress::Progress;
use cli::{Interrupting, interrupt_experiment};
use tries::Tries;

pub(super) use args::{ClusterArgs, On};
pub(super) use launch::Launch;

/// The schema of `--dry-run --json`.
pub(super) const PLAN_SCHEMA: &str = "superpage.lab.sweep-run-plan/1";

/// How a run ended.
#[derive(Default)]
pub(super) struct Ended {
    /// Cells of what was asked for.
    pub cells: usize,
    /// There before.
    pub present: usize,
    /// Run now.
    pub done: usize,
    /// How often a part was given to the cluster.
    pub submitted: u64,
    /// What could not be run, and why.
    pub failed: Vec<(String, String)>,
    /// Why cells are left that did not fail.
    pub stopped: Option<String>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The jobs go on without us, as asked for (`--detach`).
    pub detached: bool,
}

impl Ended {
    pub fn left(&self) -> usize {
        self.cells - self.present - self.done
    }
}

/// What watching a cluster needs: progress, signals, and what was tried.
struct Watch {
    progress: Progress,
    interrupting: Interrupting,
    tries: Tries,
    quiet: bool,
}

impl Watch {
    /// Tells how far it is.
    fn tell(&mut self, launch: &Launch, how: &str) -> Result<(), Failure> {
        let passes = launch.groups.len();
        let done = launch.store.passes_seen().map_err(Failure::usage)?.min(passes);
        let what = || format!("{done} of {passes} passes; {how}");
        self.progress.tell(done as u64, Some(passes as u64), what);
        Ok(())
    }

    /// The signal that came, if one did.
    fn signal(&self) -> Option<i32> {
        Some(self.interrupting.signal()).filter(|signal| *signal != 0)
    }

    /// Waits, or until a signal comes.
    fn wait(&self, time: Duration) {
        const SLICE: Duration = Duration::from_millis(50);
        let began = Instant::now();
        while self.signal().is_none() && began.elapsed() < time {
            std::thread::sleep(SLICE.min(time));
        }
    }

    /// Says a line beside the progress.
    fn say(&self, line: &str) {
        if !self.quiet {
            self.progress.aside(|| exit::say(line));
        }
    }
}

/// Why the watch over a cluster ended, if not because all was there or given up.
#[derive(Default)]
struct Outcome {
    signal: Option<i32>,
    stopped: Option<String>,
    detached: bool,
}

/// Runs it on its cluster, to the end.
pub(super) fn run(launch: &Launch, quiet: bool) -> Result<Ended, Failure> {
    let _launched = launch.store.launch().map_err(Failure::usage)?;
    let before = launch.store.read().map_err(Failure::usage)?;
    complain(&before.damaged, "run again");
    let before = states(&launch.groups, &before, launch.parts);
    let mut watch = Watch {
        progress: Progress::new(quiet, "passes"),
        interrupting: interrupt_experiment(Default::default())?,
        tries: Tries::new(&before, launch.args.retries),
        quiet,
    };
    let outcome = match launch.args.on {
        On::Ray => ray::run(launch, &mut watch),
        On::Local | On::Slurm => slurm::run(launch, &mut watch),
    };
    watch.progress.clear();
    let outcome = outcome?;
    let after = launch.store.read().map_err(Failure::usage)?;
    let after = states(&launch.groups, &after, launch.parts);
    let done = |states: &[State]| states.iter().map(|state| state.done).sum::<usize>();
    let failed = watch.tries.given_up();
    let failed = failed.map(|(part, why)| (format!("part {part}/{}", launch.parts), why.clone()));
    Ok(Ended {
        cells: before.iter().map(|state| state.cells).sum(),
        present: done(&before),
        done: done(&after).saturating_sub(done(&before)),
        submitted: watch.tries.submitted(),
        failed: failed.collect(),
        stopped: outcome.stopped,
        signal: outcome.signal,
        detached: outcome.detached,
    })
}

/// What would be submitted.
pub(super) fn dry_run(launch: &Launch, json: bool) -> Result<String, Failure> {
    let contents = launch.store.read().map_err(Failure::usage)?;
    let states = states(&launch.groups, &contents, launch.parts);
    let left = || states.iter().filter(|state| state.passes_left > 0);
    let parts: Vec<u32> = left().map(|state| state.shard.index()).collect();
    let (command, script) = match launch.args.on {
        On::Ray => (ray::command(launch), ray::DRIVER.to_string()),
        On::Local | On::Slurm => (slurm::submission(launch, &parts, 0), slurm::script(launch)),
    };
    let words = words_of(&command);
    if json {
        let body = json!({
            "directory": launch.directory,
            "on": launch.args.on.name(),
            "cells": states.iter().map(|state| state.cells).sum::<usize>(),
            "left": states.iter().map(|state| state.cells - state.done).sum::<usize>(),
            "parts": launch.parts,
            "parts_left": parts,
            "command": words,
            "script": script,
        });
        return exit::json_text(PLAN_SCHEMA, body);
    }
    let part = |state: &State| {
        let State { shard, cells, done, passes_left } = state;
        format!("part {shard}: {} of {cells} cells to run, in {passes_left} passes\n", cells - done)
    };
    let rows: String = left().map(part).collect();
    if rows.is_empty() {
        return Ok(format!("{}: nothing is left to run\n", launch.directory));
    }
    let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    Ok(format!("{rows}\n$ {}\n{script}", line.join(" ")))
}

fn words_of(command: &Command) -> Vec<String> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:%+@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The last line that says something: of a log, of a command's errors.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}
