//! `superpage pool plan`: prints the number of pages a program needs, from its peak on base pages.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Instant;

use experiment::process_tree::ProcessTree;
use experiment::watch::{AT_PEAK, Depth, NEAR_PEAK, Observed, Watch};
use host::Root;
use host::coverage::Coverage;
use host::pool::{Status, exact};
use launch::{Pages, Recipe, Start, Streams, Word};
use serde_json::json;
use units::{ByteSize, PageSize};

use super::show;
use crate::exit::{self, Done, Failure};
use operations::{facts, signals};

/// Run a program and print how large a pool it needs.
///
/// The program runs on base pages, without input; its output goes to standard error. Counts its memory at the peak,
/// without mapped files. Run it under the load that the pool is for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Program and arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<Word>,
}

/// Bytes at the peak, by kind.
#[derive(Clone, Copy, Debug)]
struct Peak {
    anonymous: u64,
    shared: u64,
    file: u64,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let status = super::status()?;
    let (seen, code) = watch(&args.command)?;
    if code != Some(0) {
        let how = code.map_or("a signal".to_string(), |code| format!("exit code {code}"));
        exit::say(&format!("the program ended by {how}; its memory until then is counted"));
    }
    let peak = seen.coverage.as_ref().map(peak_of).ok_or_else(|| {
        Failure::usage(match &seen.unknown {
            Some(why) => format!("the program's memory could not be read: {why}"),
            None => "the program ended before its memory could be read; give it more work, or wrap it: -- \
                     sh -c 'PROGRAM; sleep 1'"
                .to_string(),
        })
    })?;
    // A sample far below the peak would give too small a pool; fail or warn.
    match seen.coverage_of_peak() {
        Some(share) if share >= AT_PEAK => {}
        Some(share) if share >= NEAR_PEAK => exit::say(&format!(
            "its memory was read when it had {} of its peak",
            report::format::percent(share)
        )),
        share => {
            let of = share.map_or("an unknown part".to_string(), report::format::percent);
            let why = seen.unknown.as_ref().map_or(String::new(), |why| format!(": {why}"));
            return Err(Failure::cannot(format!(
                "its memory could be read only when it had {of} of its peak{why}; a program that keeps its \
                 memory for a second and can be read is planned for"
            )));
        }
    }
    let hint = postgres_hint(&args.command);
    if args.json {
        let sizes: Vec<_> = status.pools.sizes.keys().map(|size| need(&peak, *size)).collect();
        let body = json!({
            "command": args.command, "peak_resident_bytes": seen.peak_resident_bytes,
            "anonymous_bytes": peak.anonymous, "shared_bytes": peak.shared,
            "file_bytes": peak.file, "sizes": sizes, "hint": hint,
        });
        super::print_json("superpage.pool-plan/1", body)?;
    } else {
        exit::print(&text(&args.command, &peak, &status))?;
        if let Some(hint) = hint {
            exit::print(&format!("note: {hint}\n"))?;
        }
    }
    Ok(Done::Fine)
}

/// Runs the program to its end and samples its memory often: speed does not matter here.
fn watch(command: &[Word]) -> Result<(Observed, Option<i32>), Failure> {
    let relay = signals::Relay::new()?;
    let plan =
        launch::resolve(&Recipe::new(Pages::Base), command, &facts::search_path(), &facts::read())?;
    let stderr = || -> Result<File, Failure> {
        let copy = std::io::stderr().as_fd().try_clone_to_owned();
        copy.map(File::from).map_err(|error| Failure::usage(format!("standard error: {error}")))
    };
    let start = Start {
        streams: Streams::Into { stdout: stderr()?, stderr: stderr()? },
        die_with_parent: true,
        ..Start::default()
    };
    let began = Instant::now();
    let pid = launch::start(&plan, start)?;
    let relaying = relay.to(pid);
    let family = ProcessTree::from_child(Root::real(), pid);
    let watch = Watch::start(Root::real(), family, began, Depth::Thorough, 0, None);
    let ended = sys::wait::until_exit(pid);
    let mut seen = watch.stop();
    relaying.stop();
    ended.map_err(Failure::cannot)?;
    let (status, usage) = sys::wait::reap(pid).map_err(Failure::cannot)?;
    seen.conclude(&Root::real(), usage.max_rss, false);
    Ok((seen, status.code()))
}

fn peak_of(coverage: &Coverage) -> Peak {
    let sum = |parts: &[ByteSize]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.0));
    let sized = |parts: &std::collections::BTreeMap<PageSize, ByteSize>| {
        parts.values().fold(0u64, |sum, part| sum.saturating_add(part.0))
    };
    Peak {
        anonymous: sum(&[coverage.anon_base, coverage.anon_thp])
            .saturating_add(sized(&coverage.hugetlb_private)),
        shared: sum(&[coverage.shmem_base, coverage.shmem_pmd])
            .saturating_add(sized(&coverage.hugetlb_shared)),
        file: sum(&[coverage.file_base, coverage.file_pmd]),
    }
}

fn need(peak: &Peak, size: PageSize) -> serde_json::Value {
    let (anonymous, shared) = (size.count(peak.anonymous), size.count(peak.shared));
    json!({
        "page_bytes": size, "anonymous_pages": anonymous, "shared_pages": shared,
        "pages": anonymous + shared,
    })
}

fn text(command: &[Word], peak: &Peak, status: &Status) -> String {
    let mut text = format!(
        "{}: peak: {} anonymous, {} shared, {} of files (these stay on base pages)\n\n",
        report::format::command(command),
        ByteSize(peak.anonymous),
        ByteSize(peak.shared),
        ByteSize(peak.file)
    );
    let rows = status.pools.sizes.iter().map(|(size, pool)| {
        let (anonymous, shared) = (size.count(peak.anonymous), size.count(peak.shared));
        let pages = anonymous + shared;
        let missing = pool.unreserved().map(|free| pages.saturating_sub(free));
        let command = match missing {
            Some(0) => "enough is free".to_string(),
            _ => {
                format!("superpage pool grow {}:{}", exact(size.bytes()), missing.unwrap_or(pages))
            }
        };
        vec![
            size.to_string(),
            anonymous.to_string(),
            shared.to_string(),
            show::pages(Some(pages), *size),
            show::known(pool.unreserved()),
            command,
        ]
    });
    let header = ["pages", "anonymous", "shared", "in all", "free", "to have them"];
    text += &show::table(&header, rows.collect(), &[5]);
    text
}

/// Names PostgreSQL's option that computes the size of its shared memory exactly.
fn postgres_hint(command: &[Word]) -> Option<String> {
    let program = command.first()?.text();
    let name = program.rsplit('/').next()?;
    let is_postgres = ["postgres", "postmaster", "pg_ctl", "pg_ctlcluster"].contains(&name);
    is_postgres.then(|| {
        "PostgreSQL tells the pages of its shared memory itself: postgres -D DATA -C \
         shared_memory_size_in_huge_pages (while it is stopped; since version 15)"
            .to_string()
    })
}
