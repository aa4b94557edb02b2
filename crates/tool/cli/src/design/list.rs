//! `superpage design list`: the built-in designs.

use design::designs;
use serde_json::json;

use crate::exit::{self, Done, Failure};
use crate::pool::show::table;

/// List the designs that come with superpage.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: ListArgs) -> Result<Done, Failure> {
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    for preset in designs::list() {
        let summary = preset.design()?.summary;
        documents
            .push(json!({ "name": preset.name, "aliases": preset.aliases, "summary": summary }));
        rows.push(vec![preset.name.to_string(), preset.aliases.join(", "), summary]);
    }
    if args.json {
        exit::print_json("superpage.designs/1", json!({ "designs": documents }))?;
    } else {
        exit::print(&table(&["design", "or", "what it does"], rows, &[0, 1, 2]))?;
    }
    Ok(Done::Fine)
}
