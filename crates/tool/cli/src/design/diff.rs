//! `superpage design diff`: differences of two designs.

use design::{Difference, diff};
use serde_json::json;

use crate::exit::{self, Done, Failure};
use crate::pool::show::table;

/// Show how two designs differ, key by key.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A design: a name from the list, or a file.
    a: String,

    /// Another.
    b: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let (a, b) = (super::load(&args.a)?, super::load(&args.b)?);
    let differences = diff(&a.design, &b.design);
    if args.json {
        let each = differences.iter().map(document).collect::<Vec<_>>();
        let body = json!({ "a": a.label, "b": b.label, "differences": each });
        exit::print_json("superpage.design-diff/1", body)?;
    } else if differences.is_empty() {
        exit::print(&format!("{} and {} have the same rules\n", a.label, b.label))?;
    } else {
        let shown =
            |value: Option<design::Value>| value.map_or("-".into(), |value| value.to_string());
        let row = |one: Difference| vec![one.key, shown(one.a), shown(one.b)];
        let rows = differences.into_iter().map(row).collect();
        exit::print(&table(&["", &a.label, &b.label], rows, &[0, 1, 2]))?;
    }
    Ok(Done::Fine)
}

fn document(one: &Difference) -> serde_json::Value {
    let (a, b) = (one.a.as_ref().map(super::value), one.b.as_ref().map(super::value));
    let unit = a.as_ref().or(b.as_ref()).and_then(|(_, unit)| *unit);
    let bare = |value: Option<(serde_json::Value, _)>| value.map(|(value, _)| value);
    json!({ "key": one.key, "unit": unit, "a": bare(a), "b": bare(b) })
}
