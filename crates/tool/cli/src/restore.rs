//! `superpage restore`: restores what a killed superpage left changed.

use std::path::PathBuf;

use host::Root;
use host::journal;
use serde_json::{Value, json};
use sys::scratch::{self, Left};

use crate::exit::{self, Done, Failure};
use operations::pool_guard::{self, is_left_changed};

/// Restore settings that a killed superpage left changed, and remove its directories.
///
/// The old value of every setting is saved before it is changed, and restored when superpage ends, also after ^C or a
/// crash. This command is needed only after kill -9. Settings that others changed meanwhile are left alone and reported
/// (exit code 1), as are directories below TMPDIR that cannot be removed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let restored = journal::restore_orphans(&pool_guard::journal_dir(), &Root::real())?;
    let removed = scratch::remove_left(&std::env::temp_dir());
    if args.json {
        let directories: Vec<_> = removed.iter().map(directory).collect();
        let body = json!({ "restored": restored, "directories": directories });
        exit::print_json("superpage.restore/1", body)?;
    } else if restored.is_empty() && removed.is_empty() {
        exit::print("nothing to restore\n")?;
    } else {
        for restoration in &restored {
            exit::print(&format!("{restoration}\n"))?;
        }
        for directory in &removed {
            match directory {
                Ok(path) => exit::print(&format!("{}: removed\n", path.display()))?,
                Err(left) => exit::print(&format!("{left}\n"))?,
            }
        }
    }
    let is_left = restored.iter().any(|restoration| is_left_changed(&restoration.outcome))
        || removed.iter().any(Result::is_err);
    Ok(if is_left { Done::Negative } else { Done::Fine })
}

fn directory(removed: &Result<PathBuf, Left>) -> Value {
    match removed {
        Ok(path) => json!({ "path": path, "removed": true }),
        Err(Left { path, why }) => {
            json!({ "path": path, "removed": false, "why": why.to_string() })
        }
    }
}
