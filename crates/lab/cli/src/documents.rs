//! What `superpage lab` prints, for a program that calls it: the same words, the same checks, the same bytes.

use clap::Parser;
use lab::analysis::Figures;

use cli::exit::{self, Failure};

pub use lab::Going;

/// A result.
#[derive(Debug)]
pub struct Printed {
    /// As `--json` prints it.
    pub json: String,
    /// As a table.
    pub text: String,
    /// What the table of a run or a comparison is made of, a line each; the speed-up is over the first.
    pub figures: Vec<Figures>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Only<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

/// The words after a subcommand, read.
pub(crate) fn parse<A: clap::Args>(words: &[String]) -> Result<A, Failure> {
    let read = Only::<A>::try_parse_from(words);
    read.map(|only| only.args).map_err(|error| Failure::usage(exit::mistake(&error, &[])))
}

/// `superpage lab run`.
///
/// # Errors
/// What the command would say, or that `going` broke.
pub fn run(words: &[String], going: Going) -> Result<Printed, Failure> {
    crate::run::printed(&parse(words)?, going)
}

/// `superpage lab compare`.
///
/// # Errors
/// As [`run`].
pub fn compare(words: &[String], going: Going) -> Result<Printed, Failure> {
    crate::compare::printed(&parse(words)?, going)
}

/// `superpage lab table`.
///
/// # Errors
/// As [`run`].
pub fn table(words: &[String], going: Going) -> Result<Printed, Failure> {
    crate::table::printed(&parse(words)?, going)
}

/// The tables that there are, as `superpage lab table list --json` prints them.
///
/// # Errors
/// None but of JSON.
pub fn tables() -> Result<String, Failure> {
    crate::table::list_json()
}
