//! `superpage restore`: put back what a killed superpage left changed.

use host::Root;
use host::journal::{self, Outcome};

use crate::exit::{self, Done, Failure};
use crate::pool_guard;

/// Restore settings that a killed superpage left changed.
///
/// The old value of every setting is saved before it is changed, and restored when superpage ends,
/// also after ^C or a crash. This command is needed only after kill -9. Settings that were changed
/// by others meanwhile are left alone and reported (exit code 1).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let restored = journal::restore_orphans(&pool_guard::journal_dir(), &Root::real())?;
    if args.json {
        let document = serde_json::json!({ "schema": "superpage.restore/1", "restored": restored });
        exit::print(&format!("{document:#}\n"))?;
    } else if restored.is_empty() {
        exit::print("nothing to restore\n")?;
    } else {
        for restoration in &restored {
            exit::print(&format!("{restoration}\n"))?;
        }
    }
    let left = restored.iter().any(|restoration| is_left_changed(&restoration.outcome));
    Ok(if left { Done::Negative } else { Done::Fine })
}

/// Whether somebody should look: a setting is, or may be, not what it was.
pub fn is_left_changed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Restored { to, got, .. } => to != got,
        Outcome::AlreadyRestored { .. }
        | Outcome::OtherBoot { .. }
        | Outcome::HalfWritten { .. }
        | Outcome::Gone { .. } => false,
        Outcome::ChangedElsewhere { .. }
        | Outcome::Failed { .. }
        | Outcome::OwnerAlive { .. }
        | Outcome::Rejected { .. }
        | Outcome::OtherVersion { .. } => true,
    }
}
