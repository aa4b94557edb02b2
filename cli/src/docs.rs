//! Completions and man pages, from the same definitions as the flags.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::exit::{self, Done, Failure};

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Write the man pages into a directory.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Where to; superpage.1, superpage-run.1 and so on are written there.
    directory: PathBuf,
}

pub fn completions(args: CompletionsArgs) -> Result<Done, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "superpage", &mut text);
    exit::print(&String::from_utf8_lossy(&text))?;
    Ok(Done::Fine)
}

pub fn man(args: ManArgs) -> Result<Done, Failure> {
    clap_mangen::generate_to(crate::Cli::command(), &args.directory).map_err(|error| {
        Failure::usage(format!("{}: {error}; give an existing directory", args.directory.display()))
    })?;
    Ok(Done::Fine)
}
