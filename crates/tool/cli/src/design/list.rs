//! `superpage design list`: the built-in designs.

use ::manage::config::{CHOICES, can_keep};
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
        let design = preset.design()?;
        let is_kept = can_keep(&design).is_ok();
        let summary = design.summary;
        documents.push(json!({
            "name": preset.name,
            "aliases": preset.aliases,
            "summary": summary,
            "manage": is_kept,
        }));
        let mark = if is_kept { "yes" } else { "" };
        let aliases = preset.aliases.join(", ");
        rows.push(vec![preset.name.to_string(), aliases, mark.to_string(), summary]);
    }
    if args.json {
        exit::print_json("superpage.designs/1", json!({ "designs": documents }))?;
    } else {
        let table = table(&["design", "or", "manage", "what it does"], rows, &[0, 1, 2, 3]);
        exit::print(&format!("{table}{}", chosen()))?;
    }
    Ok(Done::Fine)
}

/// What `superpage manage` can keep in force, and which design for what.
fn chosen() -> String {
    let mut text =
        "\nmanage: `superpage manage` can keep it in force on running processes\n".to_string();
    for choice in &CHOICES {
        text += &format!("  for {}: {}, {}\n", choice.purpose, choice.design, choice.what);
    }
    text
}
