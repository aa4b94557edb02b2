//! `superpage design show`: print one design.

use serde_json::json;

use crate::exit::{self, Done, Failure};

/// Show a design: its file, with comments that say where each number comes from.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The design: a name from the list, or a file.
    #[arg(value_name = "DESIGN")]
    name: String,

    /// Show every key, also those left to their defaults, without comments.
    #[arg(long)]
    all: bool,

    /// Print JSON: every key, in bytes and nanoseconds.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let named = super::load(&args.name)?;
    if args.json {
        let keys = named.design.keys().into_iter().map(|(key, value)| {
            let (value, unit) = super::value(&value);
            json!({ "key": key, "value": value, "unit": unit })
        });
        let keys: Vec<_> = keys.collect();
        let body = json!({ "name": named.design.name, "file": named.file, "keys": keys });
        exit::print_json("superpage.design/1", body)?;
    } else if args.all {
        exit::print(&named.design.to_toml())?;
    } else {
        let end = if named.text.ends_with('\n') { "" } else { "\n" };
        exit::print(&format!("{}{end}", named.text))?;
    }
    Ok(Done::Fine)
}
