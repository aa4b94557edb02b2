//! Results of `superpage lab` for programs that call it: with the arguments, checks and output of the command.

use clap::Parser;
use lab::analysis::Figures;

use cli::exit::{self, Failure};

pub use lab::Going;

/// The result of a command.
#[derive(Debug)]
pub struct Printed {
    /// The output of `--json`.
    pub json: String,
    /// The output as a table.
    pub text: String,
    /// The figures in the table of a run or a comparison, one per row. Speedups are over the first row.
    pub figures: Vec<Figures>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Only<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

/// Parses the arguments of a subcommand.
pub(crate) fn parse<A: clap::Args>(words: &[String]) -> Result<A, Failure> {
    let read = Only::<A>::try_parse_from(words);
    read.map(|only| only.args).map_err(|error| Failure::usage(exit::mistake(&error, &[])))
}

/// Runs `superpage lab run`.
///
/// # Errors
/// The error of the command, or that `going` cancelled it.
pub fn run(words: &[String], going: Going) -> Result<Printed, Failure> {
    crate::run::printed(&parse(words)?, going)
}

/// Runs `superpage lab compare`.
///
/// # Errors
/// As [`run`].
pub fn compare(words: &[String], going: Going) -> Result<Printed, Failure> {
    crate::compare::printed(&parse(words)?, going)
}

/// Runs `superpage lab table`.
///
/// # Errors
/// As [`run`].
pub fn table(words: &[String], going: Going) -> Result<Printed, Failure> {
    crate::table::printed(&parse(words)?, going)
}

/// Returns the list of tables, as `superpage lab table list --json` prints it.
///
/// # Errors
/// JSON cannot represent the list.
pub fn tables() -> Result<String, Failure> {
    crate::table::list_json()
}
