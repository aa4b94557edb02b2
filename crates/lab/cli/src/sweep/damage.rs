//! Reports damaged result files.

use lab::sweep::Damage;

use cli::exit;

/// Prints each damaged file, and the consequence.
pub(super) fn complain(damaged: &[Damage], consequence: &str) {
    for Damage { path, line, why } in damaged {
        exit::say(&format!("{}:{line}: {why}; {consequence}", path.display()));
    }
}
