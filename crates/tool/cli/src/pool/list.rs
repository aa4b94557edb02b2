//! `superpage pool list`: lists the pools.

use host::pool::{RelatedSettings, Status};
use host::{Pool, Root};
use serde_json::json;
use units::PageSize;

use super::show::{self, known, pages};
use crate::exit::{self, Done, Failure};

/// List the pools, for the machine and by node.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: ListArgs) -> Result<Done, Failure> {
    let status = super::status()?;
    if args.json {
        let around = RelatedSettings::read(&Root::real());
        super::print_json("superpage.pool/1", document(&status, &around))?;
    } else {
        exit::print(&text(&status))?;
    }
    Ok(Done::Fine)
}

fn document(status: &Status, around: &RelatedSettings) -> serde_json::Value {
    let pools = status.pools.sizes.iter().map(|(size, pool)| {
        json!({
            "page_bytes": size, "default": status.default == Some(*size),
            "gigantic": status.gigantic.get(size),
            "minimum": pool.persistent(), "current": pool.total, "maximum": maximum(pool),
            "surplus": pool.surplus, "reserved": pool.reserved, "free": pool.free,
            "overcommit": pool.overcommit, "demote_bytes": pool.demote_size,
        })
    });
    let nodes = status.pools.nodes.iter().flat_map(|(node, pools)| {
        pools.iter().map(move |(size, pool)| {
            json!({
                "node": node, "page_bytes": size,
                "minimum": pool.total.zip(pool.surplus).map(|(total, s)| total.saturating_sub(s)),
                "current": pool.total, "surplus": pool.surplus, "free": pool.free,
            })
        })
    });
    json!({
        "pools": pools.collect::<Vec<_>>(), "nodes": nodes.collect::<Vec<_>>(),
        "settings": around, "unknown": status.unknown,
    })
}

/// Returns the maximum number of pages of the pool: persistent pages plus the overcommit limit.
fn maximum(pool: &Pool) -> Option<u64> {
    Some(pool.persistent()?.saturating_add(pool.overcommit?))
}

fn text(status: &Status) -> String {
    let header = ["pages", "minimum", "current", "maximum", "surplus", "reserved", "free", ""];
    let row = |(size, pool): (&PageSize, &Pool)| {
        let gigantic = status.is_gigantic(*size);
        let notes = [
            (status.default == Some(*size)).then_some("default"),
            gigantic.then_some("best allocated at boot, no overcommit"),
        ];
        vec![
            size.to_string(),
            pages(pool.persistent(), *size),
            pages(pool.total, *size),
            pages(maximum(pool), *size),
            known(pool.surplus),
            known(pool.reserved),
            pages(pool.free, *size),
            notes.into_iter().flatten().collect::<Vec<_>>().join("; "),
        ]
    };
    let mut text = super::show::table(&header, status.pools.sizes.iter().map(row).collect(), &[7]);
    if status.pools.nodes.len() > 1 {
        text.push('\n');
        let rows = status.pools.nodes.iter().flat_map(|(node, pools)| {
            pools.iter().map(move |(size, pool)| {
                let minimum =
                    pool.total.zip(pool.surplus).map(|(total, s)| total.saturating_sub(s));
                vec![
                    format!("node {node}"),
                    size.to_string(),
                    pages(minimum, *size),
                    pages(pool.total, *size),
                    known(pool.surplus),
                    pages(pool.free, *size),
                ]
            })
        });
        let header = ["node", "pages", "minimum", "current", "surplus", "free"];
        text += &show::table(&header, rows.collect(), &[0]);
    }
    for unknown in &status.unknown {
        text += &format!("unknown: {unknown}\n");
    }
    text
}
