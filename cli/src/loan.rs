//! Lending a hugetlb pool to a run: the one setting this command changes, through the journal.
//!
//! What is raised is the overcommit limit, not the pool: pages are then taken from free memory
//! when a program maps them (and reserved, so that its faults cannot fail) and go back when it
//! unmaps them. Between the runs of other arms nothing is missing from the machine.

use std::path::PathBuf;

use launch::{Pages, Recipe};
use machine::journal::{Journal, JournalError, Knob};
use machine::pool::{self, Request, Status};
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

/// A loan under way, or none: dropping it, or [`Loan::give_back`], puts everything back.
#[derive(Default)]
pub struct Loan {
    journal: Option<Journal>,
    /// What was changed, in words.
    pub lent: Vec<String>,
    /// Why a pool could not be lent to.
    pub refused: Vec<Failure>,
}

/// Where settings are written down before they are changed. On disk, because it must outlive a
/// kill -9; in a directory of root's, because it says what to write into /proc and /sys.
pub fn journal_dir() -> PathBuf {
    PathBuf::from("/var/lib/superpage/journal")
}

/// What arms are lent, if the policy allows it, and why a pool of theirs was not lent to.
pub fn for_arms(
    policy: PoolPolicy,
    recipes: &[&Recipe],
    facts: &launch::Facts,
) -> (Loan, Option<Failure>) {
    if policy == PoolPolicy::Keep {
        return (Loan::default(), None);
    }
    match lend(recipes, None, facts) {
        Ok(mut lent) => {
            lent.complain();
            let refused = lent.refused.pop();
            (lent, refused)
        }
        Err(why) => (Loan::default(), Some(why)),
    }
}

/// Lends to every pool that `recipes` ask for. A pool that cannot be lent to is noted in
/// [`Loan::refused`]; the others are lent to all the same.
///
/// With `grow`, the pools are grown by that much at once, which compacts memory where it must;
/// without, they may grow as pages are asked for.
pub fn lend(
    recipes: &[&Recipe],
    grow: Option<ByteSize>,
    facts: &launch::Facts,
) -> Result<Loan, Failure> {
    let mut loan = Loan { journal: None, lent: Vec::new(), refused: Vec::new() };
    for size in pools_of(recipes, facts) {
        if loan.journal.is_none() {
            loan.journal = Some(Journal::open(&journal_dir(), &Root::real())?);
        }
        let lent = match grow {
            Some(bytes) => loan.grow(size, bytes),
            None => loan.raise(size),
        };
        if let Err(why) = lent {
            loan.refused.push(why);
        }
    }
    Ok(loan)
}

/// What [`lend`] would do, in words; `facts` become what they would then be.
pub fn pretend(
    recipes: &[&Recipe],
    grow: Option<ByteSize>,
    facts: &mut launch::Facts,
) -> Vec<String> {
    let sizes = pools_of(recipes, facts);
    let mut words = Vec::new();
    for size in sizes {
        if let Some(bytes) = grow {
            let pages = bytes.bytes().div_ceil(size.bytes());
            if let Some(pool) = facts.pools.iter_mut().find(|pool| pool.size == size) {
                (pool.total, pool.free) = (pool.total + pages, pool.free + pages);
            }
            words.push(format!("{} grown by {pages}", Knob::hugetlb_pool(size)));
            continue;
        }
        let Ok(pages) = pages_to_lend(size) else { continue };
        if let Some(pool) = facts.pools.iter_mut().find(|pool| pool.size == size) {
            pool.overcommit_left = pool.overcommit_left.max(pages);
        }
        words.push(format!("{} raised to {pages}", Knob::hugetlb_overcommit(size)));
    }
    words
}

fn pools_of(recipes: &[&Recipe], facts: &launch::Facts) -> Vec<PageSize> {
    let asked = recipes.iter().filter_map(|recipe| pool_size(recipe, facts));
    let mut sizes: Vec<PageSize> =
        asked.filter(|size| facts.pools.iter().any(|pool| pool.size == *size)).collect();
    sizes.sort();
    sizes.dedup();
    sizes
}

fn pool_size(recipe: &Recipe, facts: &launch::Facts) -> Option<PageSize> {
    match recipe.pages {
        // What auto would choose, if it had pages.
        Pages::Hugetlb(None) | Pages::Auto => facts.pools.first().map(|pool| pool.size),
        Pages::Hugetlb(Some(size)) => Some(size),
        _ => None,
    }
}

impl Loan {
    /// Sets any knob, for as long as the loan lasts or until it is set again.
    pub fn set(&mut self, knob: &Knob, value: &str) -> Result<(), JournalError> {
        if self.journal.is_none() {
            self.journal = Some(Journal::open(&journal_dir(), &Root::real())?);
            self.complain();
        }
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        journal.set(knob, value).map(|_| ())
    }

    fn raise(&mut self, size: PageSize) -> Result<(), Failure> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let knob = Knob::hugetlb_overcommit(size);
        let pages = pages_to_lend(size)?;
        // An administrator's higher limit stays.
        let now: u64 = knob.read(&Root::real())?.trim().parse().unwrap_or(0);
        if now >= pages {
            return Ok(());
        }
        let written = journal.set(&knob, &pages.to_string())?;
        let bytes = written.got.parse::<u64>().ok().map(|got| got.saturating_mul(size.bytes()));
        let bytes = bytes.map_or("unknown".to_string(), |bytes| ByteSize(bytes).to_string());
        self.lent.push(format!("{knob} set to {} ({bytes}), put back afterwards", written.got));
        Ok(())
    }

    /// Grows the pool itself. A pool that got only a part of it is no failure: the program may fall
    /// back, and is told.
    fn grow(&mut self, size: PageSize, bytes: ByteSize) -> Result<(), Failure> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let (root, pages) = (Root::real(), bytes.bytes().div_ceil(size.bytes()));
        let status = Status::read(&root)?;
        let before = status.persistent(size, None)?;
        let request = Request { size, node: None, before, target: before + pages };
        pool::check_room(&root, &status, &[request])?;
        let options = pool::Options::default();
        let outcome = pool::resize(&root, journal, request, options, &mut |_| {
            std::ops::ControlFlow::Continue(())
        })?;
        let got = outcome.got.saturating_sub(before);
        let amount = ByteSize(got.saturating_mul(size.bytes()));
        self.lent.push(format!("the pool of {size} pages grown by {got} ({amount})"));
        if got < pages {
            crate::exit::say(&format!(
                "the pool of {size} pages was grown by {got} of {pages}: memory is too fragmented, \
                 or too little is free"
            ));
        }
        Ok(())
    }

    /// Says what was put back after an earlier superpage that was killed, and takes note of it.
    pub fn complain(&mut self) {
        for restoration in self.journal.iter().flat_map(|journal| journal.inherited()) {
            crate::exit::say(&format!("left by a killed superpage: {restoration}"));
        }
    }

    /// Puts everything back and says, one line each, what could not be.
    pub fn give_back(mut self) -> Vec<String> {
        let Some(journal) = self.journal.take() else { return Vec::new() };
        let restored = journal.restore();
        let left = restored.iter().filter(|one| crate::restore::is_left_changed(&one.outcome));
        left.map(ToString::to_string).collect()
    }
}

/// However it ends: what could not be put back is said.
impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            let again = Loan { journal: Some(journal), lent: Vec::new(), refused: Vec::new() };
            again.give_back().iter().for_each(|line| crate::exit::say(line));
        }
    }
}

/// Nine tenths of what is available: the limit lets a program take pages, it does not take them.
/// More than it needs on purpose: a forked child that writes needs pages beyond the reservation.
fn pages_to_lend(size: PageSize) -> Result<u64, Failure> {
    let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
    available.map(|available| share_of(available, size)).ok_or_else(|| {
        Failure::cannot("/proc/meminfo does not say how much memory is available; use --pool keep")
    })
}

fn share_of(available: ByteSize, size: PageSize) -> u64 {
    available.bytes() / 10 * 9 / size.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_nine_tenths_of_what_is_free() {
        let size = PageSize::new(2 << 20).unwrap();
        assert_eq!(share_of(ByteSize::gib(20), size), 9216);
        assert_eq!(share_of(ByteSize(0), size), 0);
    }
}
