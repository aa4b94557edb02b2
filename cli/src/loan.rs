//! Lending a hugetlb pool to a run: the one setting this command changes, through the journal.
//!
//! What is raised is the overcommit limit, not the pool: pages are then taken from free memory
//! when a program maps them (and reserved, so that its faults cannot fail) and go back when it
//! unmaps them. Between the runs of other arms nothing is missing from the machine.

use std::path::PathBuf;

use launch::{Pages, Recipe};
use machine::journal::{Journal, Knob};
use machine::{MemInfo, Root};
use units::{ByteSize, PageSize};

use crate::exit::Failure;

/// Whether hugetlb pools may be lent pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolPolicy {
    /// Raise the overcommit limit of a pool that is short, and put it back afterwards (root).
    Lend,
    /// Use the pools as they are.
    Keep,
}

/// A loan under way: dropping it, or [`Loan::give_back`], puts everything back.
pub struct Loan {
    journal: Journal,
    /// What was changed, in words.
    pub lent: Vec<String>,
}

/// Where settings are written down before they are changed. On disk, because it must outlive a
/// kill -9; in a directory of root's, because it says what to write into /proc and /sys.
pub fn journal_dir() -> PathBuf {
    PathBuf::from("/var/lib/superpage/journal")
}

/// Lends to every pool that `recipes` ask for and that has less than `needed` to give. `None` if
/// none asks.
pub fn lend(recipes: &[&Recipe], facts: &launch::Facts) -> Result<Option<Loan>, Failure> {
    let mut sizes: Vec<PageSize> = recipes.iter().filter_map(|r| pool_size(r, facts)).collect();
    sizes.sort();
    sizes.dedup();
    if sizes.is_empty() {
        return Ok(None);
    }
    let mut loan = Loan { journal: Journal::open(&journal_dir(), &Root::real())?, lent: vec![] };
    for size in sizes {
        loan.raise(size)?;
    }
    Ok(Some(loan))
}

fn pool_size(recipe: &Recipe, facts: &launch::Facts) -> Option<PageSize> {
    match recipe.pages {
        Pages::Hugetlb(None) => facts.pools.first().map(|pool| pool.size),
        Pages::Hugetlb(Some(size)) => Some(size),
        _ => None,
    }
}

impl Loan {
    fn raise(&mut self, size: PageSize) -> Result<(), Failure> {
        let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
        let Some(available) = available else {
            return Err(Failure::cannot("/proc/meminfo does not say how much memory is available"));
        };
        let pages = pages_to_lend(available, size);
        let knob = Knob::hugetlb_overcommit(size);
        let written = self.journal.set(&knob, &pages.to_string())?;
        self.lent.push(format!(
            "{knob} set to {} ({}), put back afterwards",
            written.got,
            ByteSize(written.got.parse::<u64>().unwrap_or(0).saturating_mul(size.bytes()))
        ));
        Ok(())
    }

    /// Puts everything back and says, one line each, what could not be.
    pub fn give_back(self) -> Vec<String> {
        let restored = self.journal.restore();
        let left = restored.iter().filter(|one| crate::restore::is_left_changed(&one.outcome));
        left.map(ToString::to_string).collect()
    }
}

/// Nine tenths of what is available: the limit lets a program take pages, it does not take them.
/// More than it needs on purpose: a forked child that writes needs pages beyond the reservation.
fn pages_to_lend(available: ByteSize, size: PageSize) -> u64 {
    available.bytes() / 10 * 9 / size.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_nine_tenths_of_what_is_free() {
        let size = PageSize::new(2 << 20).unwrap();
        assert_eq!(pages_to_lend(ByteSize::gib(20), size), 9216);
        assert_eq!(pages_to_lend(ByteSize(0), size), 0);
    }
}
