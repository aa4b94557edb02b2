//! `superpage pool ensure`: brings the machine to the state that a file describes.

use std::path::PathBuf;

use host::Root;
use host::pool::ensure::{self, Plan};
use serde_json::json;

use super::progress::Watcher;
use super::resize::{self, HowMuch};
use super::show;
use crate::exit::{self, Done, Failure};

/// Apply a file of pools, mounts and settings.
///
/// A second run changes nothing. Settings that the file does not name are left alone. The file is TOML: [[pages]] with
/// size, count, node and overcommit; [[mounts]] with size, owner, max_size, min_size and max_inodes;
/// shm_group, shmmax, min_free_kbytes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to apply.
    file: PathBuf,

    /// Change nothing; exit with 1 if the machine differs from the file.
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    how: HowMuch,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let root = Root::real();
    let wanted = ensure::read(&args.file)?;
    if !args.check && !args.how.dry_run {
        super::restore_orphaned();
    }
    let plan = ensure::plan(&root, &wanted)?;
    if !args.how.force && !args.check {
        host::pool::check_headroom(&root, &super::status()?, &plan.requests)?;
    }
    if args.check || args.how.dry_run || plan.is_empty() {
        print_differences(&plan, &args)?;
        let differs = args.check && !plan.is_empty();
        return Ok(if differs { Done::Negative } else { Done::Fine });
    }
    let mut watcher = Watcher::new(args.how.quiet)?;
    let dir = super::journal_dir();
    let done = ensure::carry_out(&root, dir.as_ref(), &plan, args.how.options(), &mut |step| {
        watcher.step(step)
    })?;
    super::complain(&done.inherited);
    if args.how.json {
        let body = json!({
            "changed": true, "differences": plan.differences(), "complete": done.is_full(),
            "outcomes": done.outcomes, "given_back": done.given_back,
        });
        super::print_json("superpage.pool-ensure/1", body)?;
    } else if !args.how.quiet || !done.is_full() {
        for outcome in &done.outcomes {
            exit::print(&format!("{}\n", show::outcome(outcome)))?;
        }
        if done.given_back.is_none() {
            for one in plan.differences().iter().skip(done.outcomes.len()) {
                exit::print(&format!("{}: {} -> {}\n", one.what, one.now, one.wanted))?;
            }
        }
        resize::given_back(done.given_back.as_deref())?;
    }
    Ok(watcher.end(if done.is_full() { Done::Fine } else { Done::Negative }))
}

fn print_differences(plan: &Plan, args: &Args) -> Result<(), Failure> {
    let differences = plan.differences();
    if args.how.json {
        let body = json!({
            "changed": false, "differences": differences, "complete": plan.is_empty(),
            "outcomes": [], "given_back": null,
        });
        return super::print_json("superpage.pool-ensure/1", body);
    }
    if args.how.quiet {
        return Ok(());
    }
    if plan.is_empty() {
        return exit::print(&format!("{}: nothing to change\n", args.file.display()));
    }
    let word = if args.check { "differs" } else { "would change" };
    for one in differences {
        exit::print(&format!("{word}: {}: {} -> {}\n", one.what, one.now, one.wanted))?;
    }
    Ok(())
}
