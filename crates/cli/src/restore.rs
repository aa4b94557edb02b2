//! `superpage restore`: put back what a killed superpage left changed.

use host::Root;
use host::journal::{self, Outcome};

use crate::exit::{self, Done, Failure};
use crate::loan;

/// Put back settings that a killed superpage left changed.
///
/// Every setting is written down before it is changed, and put back when superpage ends, also on
/// ^C or a crash. Only a kill -9 leaves it to this command. What somebody else changed meanwhile
/// is left alone and reported (exit 1).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let restored = journal::restore_orphans(&loan::journal_dir(), &Root::real())?;
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
