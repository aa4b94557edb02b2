//! Shell completions and man pages, generated from the clap definitions.

use std::ffi::OsString;
use std::path::PathBuf;

pub use clap_complete::Shell;

use crate::exit::{self, Done, Failure};
use crate::{files, lab};

/// Print shell completions.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell.
    pub shell: Shell,
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

/// Hand-written man pages of the commands that do not use clap.
const LEGACY: [(&str, &str); 4] = [
    ("hugeadm.8", include_str!("../../../../docs/man/hugeadm.8")),
    ("hugectl.8", include_str!("../../../../docs/man/hugectl.8")),
    ("hugeedit.8", include_str!("../../../../docs/man/hugeedit.8")),
    ("pagesize.1", include_str!("../../../../docs/man/pagesize.1")),
];

/// Prints the shell completions of `command`.
pub fn completions(args: &CompletionsArgs, command: clap::Command) -> Result<Done, Failure> {
    exit::print(&script(args, command))?;
    Ok(Done::Fine)
}

/// Generates the shell completions of `command`.
pub fn script(args: &CompletionsArgs, mut command: clap::Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "superpage", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes the generated man pages of `command` and the hand-written ones.
pub fn man(args: &ManArgs, command: clap::Command) -> Result<Done, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!("{}: {error}; give an existing directory", args.directory.display()))
    };
    let made = sys::scratch::Scratch::new(None).map_err(Failure::cannot)?;
    clap_mangen::generate_to(command, made.path()).map_err(Failure::cannot)?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(made.path()).map_err(Failure::cannot)? {
        let entry = entry.map_err(Failure::cannot)?;
        let text = std::fs::read(entry.path()).map_err(Failure::cannot)?;
        pages.push((args.directory.join(entry.file_name()), text));
    }
    pages.extend(LEGACY.map(|(name, text)| (args.directory.join(name), text.into())));
    let keys = args.directory.join("superpage-design.5");
    pages.push((keys, crate::design::keys::man().into()));
    std::fs::read_dir(&args.directory).map_err(failed)?;
    for (path, _) in &pages {
        files::check_new(path, args.force)?;
    }
    for (path, text) in pages {
        files::write(&path, args.force, text)?;
    }
    Ok(Done::Fine)
}

/// Prints completions of `superpage` and `superpage-lab`.
pub fn completions_of_both(args: &CompletionsArgs) -> Result<Done, Failure> {
    let shell = args.shell.to_string();
    lab::run_for_both(["completions", &shell].map(OsString::from).to_vec())?;
    completions(args, crate::command())
}

/// Writes man pages of `superpage` and `superpage-lab`.
pub fn man_of_both(args: &ManArgs) -> Result<Done, Failure> {
    let mut words = vec![OsString::from("man")];
    words.extend(args.force.then(|| OsString::from("--force")));
    words.extend([OsString::from("--"), args.directory.clone().into()]);
    lab::run_for_both(words)?;
    man(args, crate::command())
}

#[cfg(test)]
mod tests;
