//! `superpage design`: subcommands for superpage designs as TOML files, over the crate `design`.

mod check;
mod diff;
mod explain;
pub(crate) mod keys;
mod list;
mod show;

pub use operations::design::load;

use design::Value;
use operations::design::Named;
use serde_json::{Value as Json, json};

use crate::exit::{self, Done, Failure};

/// List, show, check, compare and explain superpage designs; list their keys.
///
/// Without a subcommand, lists them. A design is a TOML file that says when superpages are
/// allocated, prepared, mapped, unmapped and deallocated. To write your own, start from an existing
/// one: `superpage design show freebsd > mine.toml`. `superpage design keys` says what each key means.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    list: list::ListArgs,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::ListArgs),
    Show(show::Args),
    Check(check::Args),
    Diff(diff::Args),
    Explain(explain::Args),
    Keys(keys::Args),
}

pub(crate) fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        None => list::run(args.list),
        Some(Command::List(args)) => list::run(args),
        Some(Command::Show(args)) => show::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Explain(args)) => explain::run(args),
        Some(Command::Keys(args)) => keys::run(args),
    }
}

/// Warns of keys of a design's file that have no effect beside the others.
pub fn warn(named: &Named) {
    for warning in named.design.warnings(&named.text) {
        exit::say(&format!("warning: {}", warning.in_file(&named.label)));
    }
}

/// Converts a value to JSON in base units, and returns the name of the unit.
fn value(value: &Value) -> (Json, Option<&'static str>) {
    match value {
        Value::Text(text) => (json!(text), None),
        Value::Number(number) => (json!(number), None),
        Value::Flag(flag) => (json!(flag), None),
        Value::Size(size) => (json!(size), Some("bytes")),
        // The design check limits every time to a day, so nanoseconds fit into u64.
        Value::Time(time) => (json!(time.as_nanos() as u64), Some("ns")),
        Value::List(values) => {
            let (values, units): (Vec<_>, Vec<_>) = values.iter().map(self::value).unzip();
            (json!(values), units.first().copied().flatten())
        }
    }
}
