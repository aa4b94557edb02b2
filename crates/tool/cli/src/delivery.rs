//! Delivers the reports of commands that run a program: chooses format and destination.

use std::path::PathBuf;

use operations::json::{SchemaFirst, to_json};
use serde_json::Value;

use crate::exit::{self, Failure};
use crate::files;

/// Report flags of commands that run a program; each command documents its own `--quiet`.
#[derive(Debug, clap::Args)]
pub struct ReportFlags {
    /// Print what would be done; do nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Print the report as JSON, one line on standard error; with --dry-run the plan, on standard output.
    #[arg(long)]
    pub json: bool,

    /// Write the report to FILE as JSON, also with --quiet.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long, requires = "output")]
    force: bool,
}

impl ReportFlags {
    /// Fails before the program runs if the report cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        self.output.as_ref().map_or(Ok(()), |path| files::check_new(path, self.force))
    }

    /// Writes the report to `--output`. Unless `quiet`, also prints it as JSON or calls `in_words`. Failures are only
    /// printed, because the exit code is the program's.
    pub fn deliver(&self, quiet: bool, document: impl FnOnce() -> Value, in_words: impl FnOnce()) {
        let is_printed = self.json && !quiet;
        if self.output.is_some() || is_printed {
            self.write(document(), is_printed);
        }
        if !quiet && !self.json {
            in_words();
        }
    }

    fn write(&self, document: Value, is_printed: bool) {
        let document = SchemaFirst(&document);
        let line = serde_json::to_string(&document).expect("a JSON value") + "\n";
        if let Some(path) = &self.output
            && let Err(why) =
                to_json(&document).and_then(|text| files::write(path, self.force, text))
        {
            exit::say(&format!("{why}; the report is printed"));
            exit::print_aside(&line);
            return;
        }
        if is_printed {
            exit::print_aside(&line);
        }
    }
}
