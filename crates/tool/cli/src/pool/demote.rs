//! `superpage pool demote`: splits free pages into smaller ones.

use host::Root;
use host::pool::{self, Change, PoolError, Spec, SpecError};
use serde_json::json;
use units::NodeId;

use super::ChangeArgs;
use crate::exit::{self, Done, Failure};

/// Split free pages into the next smaller size: 1G:2 becomes 1024 pages of 2 MiB.
///
/// To reverse it, shrink the smaller pool and grow the larger one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pool and pages: 1G:2, 1G:50%.
    spec: String,

    /// NUMA node to change [default: all].
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    #[command(flatten)]
    how: ChangeArgs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let spec: Spec = args.spec.parse().map_err(PoolError::from)?;
    let Change::To(amount) = spec.change else {
        let error = SpecError::BadAmount(args.spec);
        return Err(Failure::usage(format!("{error}; demote takes no + or -")));
    };
    let status = super::status()?;
    let node = args.node.map(NodeId);
    let size = status.size(spec.pool)?;
    let into = pool::demotes_into(&status, size)?;
    let has = status.persistent(size, node)?;
    let pages = amount.pages(size, has).map_err(PoolError::from)?;
    if args.how.dry_run {
        // Only free pages are split. The number of free pages of one node is not read.
        let free = if node.is_none() { status.pool(size)?.unreserved() } else { None };
        let can = pages.min(free.unwrap_or(has));
        let pieces = can.saturating_mul(size.bytes() / into.bytes());
        if args.how.json {
            let body = json!({
                "dry_run": true, "from_bytes": size, "into_bytes": into, "asked": pages,
            });
            super::print_json("superpage.pool-demote/1", body)?;
        } else {
            exit::print(&format!(
                "would split {can} of {pages} pages of {size} into {pieces} of {into}\n"
            ))?;
        }
        super::say_if_root_is_needed();
        return Ok(if can == pages { Done::Fine } else { Done::Negative });
    }
    let done = super::journalled(|lock| pool::demote(&Root::real(), lock, size, node, pages))?;
    if args.how.json {
        super::print_json("superpage.pool-demote/1", json!({ "dry_run": false, "done": done }))?;
    } else {
        exit::print(&format!(
            "split {} of {} pages of {size}; {into} pages: {} -> {}\n",
            done.got, done.asked, done.pieces_before, done.pieces
        ))?;
    }
    Ok(if done.got == done.asked { Done::Fine } else { Done::Negative })
}
