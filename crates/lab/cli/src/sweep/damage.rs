//! Files of results that cannot be used.

use lab::sweep::Damage;

use cli::exit;

/// Tells of them.
pub(super) fn complain(damaged: &[Damage], consequence: &str) {
    for Damage { path, line, why } in damaged {
        exit::say(&format!("{}:{line}: {why}; {consequence}", path.display()));
    }
}
