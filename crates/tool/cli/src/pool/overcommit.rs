//! `superpage pool overcommit`: sets the number of pages a pool may allocate on demand.

use host::Root;
use host::pool::{self, PoolError, Spec};
use serde_json::json;

use super::{ChangeArgs, show};
use crate::exit::{self, Done, Failure};

/// Set a pool's overcommit limit: pages that it may allocate on demand.
///
/// Such pages are taken from free memory when a program maps them and returned when it unmaps them.
/// Nothing is allocated now.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pool and limit: 2M:512, 2M:+1G, default:0.
    spec: String,

    #[command(flatten)]
    how: ChangeArgs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let spec: Spec = args.spec.parse().map_err(PoolError::from)?;
    if !args.how.dry_run {
        super::restore_orphaned();
    }
    let status = super::status()?;
    let size = status.size(spec.pool)?;
    let before = pool::overcommit(&status, size)?;
    let asked = spec.change.target(size, before).map_err(PoolError::from)?;
    pool::check_overcommit(&status, size, asked)?;
    let now = if args.how.dry_run || asked == before {
        before
    } else {
        super::journalled(|journal| {
            pool::set_overcommit(&Root::real(), journal, size, asked).map(|(_, now)| now)
        })?
    };
    if args.how.json {
        let body = json!({
            "dry_run": args.how.dry_run, "page_bytes": size, "before": before, "asked": asked,
            "now": now,
        });
        super::print_json("superpage.pool-overcommit/1", body)?;
    } else {
        let would = if args.how.dry_run { "would change " } else { "" };
        let asked = show::pages(Some(asked), size);
        exit::print(&format!("{would}overcommit of {size} pages: {before} -> {asked}\n"))?;
    }
    Ok(if args.how.dry_run || now == asked { Done::Fine } else { Done::Negative })
}
