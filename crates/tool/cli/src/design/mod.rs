//! `superpage design`: superpage designs as files, over `design`.

mod as_live;
mod check;
mod diff;
mod explain;
mod list;
pub mod recipe;
mod show;

use std::path::Path;

pub use as_live::as_live;

use design::{Design, DesignError, Value, designs};
use serde_json::{Value as Json, json};

use crate::exit::{Done, Failure};
use crate::files;

/// List, show, check, compare and explain superpage designs.
///
/// Without a subcommand, lists them. A design is a TOML file that says when superpages are
/// allocated, prepared, mapped, unmapped and deallocated. To write your own, start from an existing
/// one: `superpage design show freebsd > mine.toml`.
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
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        None => list::run(args.list),
        Some(Command::List(args)) => list::run(args),
        Some(Command::Show(args)) => show::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Explain(args)) => explain::run(args),
    }
}

/// A design as it was named on the command line.
pub struct Named {
    /// The preset's name, or the file.
    pub label: String,
    /// Where it was read from: none for a preset.
    pub file: Option<String>,
    /// The file with its comments.
    pub text: String,
    /// What it says.
    pub design: Design,
}

/// Finds a design by its name or alias, or reads the file. What has a slash or ends in `.toml` is a
/// file, and so is what exists as one and is no preset.
pub fn load(word: &str) -> Result<Named, Failure> {
    let looks_like_file = word.contains('/') || word.ends_with(".toml");
    let preset = designs::preset(word);
    let preset = match preset {
        Ok(preset) if !looks_like_file => preset,
        Err(error) if !looks_like_file && !Path::new(word).is_file() => {
            return Err(Failure::usage(format!("{error}; or give a file")));
        }
        _ => {
            let text = read(word)?;
            let design = Design::from_toml(word, &text)?;
            let file = Some(word.to_string());
            return Ok(Named { label: word.to_string(), file, text, design });
        }
    };
    let (label, text) = (preset.name.to_string(), preset.text.to_string());
    Ok(Named { label, file: None, text, design: preset.design()? })
}

/// More than any design.
const MAX_BYTES: u64 = 1 << 20;

fn read(file: &str) -> Result<String, Failure> {
    if file.is_empty() {
        return Err(Failure::usage("empty file name; give a design file"));
    }
    files::text(Path::new(file), MAX_BYTES, "a design file")
}

impl From<DesignError> for Failure {
    /// A line for each mistake, by line.
    fn from(error: DesignError) -> Self {
        match &error {
            // What is no TOML has mistakes from there on that are none.
            DesignError::File { file, problems } if problems[0].key.is_empty() => {
                let more = match problems.len() {
                    1 => String::new(),
                    count => format!("; and {} more: superpage design check {file}", count - 1),
                };
                Self::usage(format!("{}{more}", problems[0].in_file(file)))
            }
            DesignError::File { file, problems } => {
                Self::mistakes(problems.iter().map(|problem| problem.in_file(file)))
            }
            _ => Self::usage(error),
        }
    }
}

/// A value in base units, and which those are.
fn value(value: &Value) -> (Json, Option<&'static str>) {
    match value {
        Value::Text(text) => (json!(text), None),
        Value::Number(number) => (json!(number), None),
        Value::Flag(flag) => (json!(flag), None),
        Value::Size(size) => (json!(size), Some("bytes")),
        // A check bounds every time by a day: the nanoseconds fit.
        Value::Time(time) => (json!(time.as_nanos() as u64), Some("ns")),
        Value::List(values) => {
            let (values, units): (Vec<_>, Vec<_>) = values.iter().map(self::value).unzip();
            (json!(values), units.first().copied().flatten())
        }
    }
}
