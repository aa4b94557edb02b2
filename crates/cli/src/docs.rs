//! Completions and man pages, from the same definitions as the flags.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::exit::{self, Done, Failure};
use crate::files;

/// Print shell completions.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell.
    shell: clap_complete::Shell,
}

/// Write man pages into a directory.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Existing directory for superpage.1, superpage-run.1 and so on.
    directory: PathBuf,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,
}

/// Written by hand: the options of these commands are not clap's.
const LEGACY: [(&str, &str); 4] = [
    ("hugeadm.8", include_str!("../../../docs/man/hugeadm.8")),
    ("hugectl.8", include_str!("../../../docs/man/hugectl.8")),
    ("hugeedit.8", include_str!("../../../docs/man/hugeedit.8")),
    ("pagesize.1", include_str!("../../../docs/man/pagesize.1")),
];

pub fn completions(args: CompletionsArgs) -> Result<Done, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "superpage", &mut text);
    exit::print(&String::from_utf8_lossy(&text))?;
    Ok(Done::Fine)
}

pub fn man(args: ManArgs) -> Result<Done, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!("{}: {error}; give an existing directory", args.directory.display()))
    };
    let made = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir()
        .map_err(Failure::cannot)?;
    clap_mangen::generate_to(crate::Cli::command(), made.path()).map_err(Failure::cannot)?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(made.path()).map_err(Failure::cannot)? {
        let entry = entry.map_err(Failure::cannot)?;
        let text = std::fs::read(entry.path()).map_err(Failure::cannot)?;
        pages.push((args.directory.join(entry.file_name()), text));
    }
    pages.extend(LEGACY.map(|(name, text)| (args.directory.join(name), text.into())));
    std::fs::read_dir(&args.directory).map_err(failed)?;
    for (path, _) in &pages {
        files::check_new(path, args.force)?;
    }
    for (path, text) in pages {
        files::write(&path, text)?;
    }
    Ok(Done::Fine)
}

#[cfg(test)]
mod tests;
