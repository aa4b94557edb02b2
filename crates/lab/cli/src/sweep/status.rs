//! `superpage lab sweep status`: prints how much of a sweep is done.

use lab::sweep::{State, Store, states};
use serde_json::json;

use super::Directory;
use super::damage::complain;
use cli::exit::{self, Done, Failure};
use cli::table;

/// Tell how much of a sweep is done. Exit code 1: not all of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    directory: Directory,

    /// Tell it for each of N shards.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    shards: u32,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let store = Store::at(&args.directory.directory);
    let plan = store.plan().map_err(Failure::usage)?;
    let contents = store.read().map_err(Failure::usage)?;
    let lines = states(&plan.groups(), &contents, args.shards);
    let text = if args.json {
        let shards: Vec<_> = lines
            .iter()
            .map(|line| {
                json!({ "shard": line.shard.to_string(), "cells": line.cells, "done": line.done,
                        "passes_left": line.passes_left })
            })
            .collect();
        let damaged: Vec<_> = contents.damaged.iter().map(|one| &one.path).collect();
        let body = json!({ "shards": shards, "damaged": damaged });
        exit::json_text("superpage.lab.sweep-status/1", body)?
    } else {
        complain(&contents.damaged, "will be run again");
        let row = |line: &State| {
            [line.cells, line.done, line.cells - line.done, line.passes_left]
                .map(|count| count.to_string())
                .into_iter()
                .fold(vec![line.shard.to_string()], |mut row, count| {
                    row.push(count);
                    row
                })
        };
        let header = ["shard", "cells", "done", "left", "passes left"];
        table(&header, lines.iter().map(row).collect(), &[0])
    };
    exit::print(&text)?;
    let all = lines.iter().all(|line| line.done == line.cells);
    Ok(if all { Done::Fine } else { Done::Negative })
}
