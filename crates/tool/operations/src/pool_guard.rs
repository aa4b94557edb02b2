//! Raises a hugetlb pool for a run, shared with other superpage commands.
//!
//! Raises the overcommit limit, not the pool. The kernel then takes pages from free memory when a program maps them,
//! reserves them, so that the program's faults cannot fail, and frees them when the program unmaps them. While other
//! arms run, the machine has all its memory.

use std::path::PathBuf;

use host::journal::{
    Claim, Journal, JournalError, Knob, KnobWriter, Outcome, Restoration, SharedKnob,
};
use host::pool::{self, PoolError, Request, Status};
use host::{MemInfo, Root};
use launch::{Pages, Recipe};
use units::{ByteSize, PageSize};

use crate::Failure;

/// Whether hugetlb pools may be lent pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolPolicy {
    /// Raise the pool's overcommit limit, and restore it afterwards (root).
    Lend,
    /// Use the pool as it is.
    Keep,
}

/// Raised limits and grown pools; dropping the guard, or [`OvercommitGuard::restore`], restores everything.
#[derive(Default)]
pub struct OvercommitGuard {
    shares: Vec<SharedKnob>,
    /// Journal of knobs that no other command shares.
    journal: Option<Journal>,
    /// The changes made, as text.
    pub raised: Vec<String>,
    /// Why pools could not be raised.
    pub refused: Vec<Failure>,
}

/// Returns the directory of the settings journal. It is on disk to survive a kill -9. Root owns it, because the journal
/// says what to write into /proc and /sys.
pub fn journal_dir() -> PathBuf {
    PathBuf::from("/var/lib/superpage/journal")
}

/// Restores settings left by killed commands, before a new change is planned. Returns what was restored.
pub fn restore_orphaned(root: &Root) -> Vec<Restoration> {
    // Ignore errors here: the change that follows fails too, and reports the reason.
    host::journal::restore_dead(&journal_dir(), root, &|| true).unwrap_or_default()
}

/// Raises the pools that arms need, if the policy allows it. Also returns why a pool was not raised.
pub fn raise_for_arms(
    policy: PoolPolicy,
    recipes: &[&Recipe],
    facts: &launch::Facts,
    goes_on: &dyn Fn() -> bool,
) -> (OvercommitGuard, Option<Failure>) {
    if policy == PoolPolicy::Keep {
        return (OvercommitGuard::default(), None);
    }
    let mut guard = raise(recipes, None, facts, goes_on);
    let refused = guard.refused.pop();
    (guard, refused)
}

/// Raises every pool that `recipes` need, shared with other commands. If a pool fails, [`OvercommitGuard::refused`] has
/// the reason, and the other pools are still raised.
///
/// With `grow`, the pools grow by that many bytes now, with compaction if needed. Without `grow`, they grow as programs
/// request pages. Stops getting pages when `goes_on` returns false.
pub fn raise(
    recipes: &[&Recipe],
    grow: Option<ByteSize>,
    facts: &launch::Facts,
    goes_on: &dyn Fn() -> bool,
) -> OvercommitGuard {
    let mut guard = OvercommitGuard::default();
    for size in pools_of(recipes, grow.is_some(), facts) {
        if !facts.may_change_settings {
            guard.refused.push(needs_root(size, grow));
            continue;
        }
        let raised = match grow {
            Some(bytes) => guard.grow(size, bytes, goes_on).map(|got| {
                if goes_on() {
                    say_if_short(size, got, bytes);
                }
            }),
            None => guard.raise(size, goes_on),
        };
        if let Err(why) = raised {
            guard.refused.push(why);
        }
    }
    guard
}

fn needs_root(size: PageSize, grow: Option<ByteSize>) -> Failure {
    let knob = match grow {
        Some(_) => Knob::hugetlb_pool(size),
        None => Knob::hugetlb_overcommit(size),
    };
    Failure::cannot(format!(
        "the hugetlb pool of {size} has too few free pages, and raising {knob} needs root"
    ))
}

/// Says what [`raise`] would do, and why pools would not be raised. Updates `facts` accordingly.
pub fn preview(
    recipes: &[&Recipe],
    grow: Option<ByteSize>,
    facts: &mut launch::Facts,
) -> (Vec<String>, Vec<Failure>) {
    let sizes = pools_of(recipes, grow.is_some(), facts);
    let (mut words, mut refused) = (Vec::new(), Vec::new());
    for size in sizes {
        if !facts.may_change_settings {
            refused.push(needs_root(size, grow));
            continue;
        }
        if let Some(bytes) = grow {
            let pages = bytes.bytes().div_ceil(size.bytes());
            if let Some(pool) = facts.pools.iter_mut().find(|pool| pool.size == size) {
                (pool.total, pool.free) = (pool.total + pages, pool.free + pages);
            }
            words.push(format!("{} grown by {pages}", Knob::hugetlb_pool(size)));
            continue;
        }
        let pages = match limit_to_raise(size) {
            // Only a write shows whether the kernel accepts a limit for gigantic pages.
            Ok(_) if facts.pools.iter().any(|pool| pool.size == size && pool.is_gigantic) => {
                refused.push(PoolError::GiganticOvercommit { size }.into());
                continue;
            }
            Ok(pages) => pages,
            Err(why) => {
                refused.push(why);
                continue;
            }
        };
        if let Some(pool) = facts.pools.iter_mut().find(|pool| pool.size == size) {
            pool.overcommit_left = pool.overcommit_left.max(pages);
        }
        words.push(format!("{} raised to {pages}", Knob::hugetlb_overcommit(size)));
    }
    (words, refused)
}

fn pools_of(recipes: &[&Recipe], grows: bool, facts: &launch::Facts) -> Vec<PageSize> {
    let asked = recipes.iter().filter_map(|recipe| pool_size(recipe, grows, facts));
    let mut sizes: Vec<PageSize> =
        asked.filter(|size| facts.pools.iter().any(|pool| pool.size == *size)).collect();
    sizes.sort();
    sizes.dedup();
    sizes
}

fn pool_size(recipe: &Recipe, grows: bool, facts: &launch::Facts) -> Option<PageSize> {
    match recipe.pages {
        // `auto` uses a pool that has free pages. Without THP it also uses a pool that may grow. See
        // docs/decisions/launch.md#4.
        Pages::Auto if !grows && facts.has_thp() => None,
        Pages::Hugetlb(None) | Pages::Auto => facts.pools.first().map(|pool| pool.size),
        Pages::Hugetlb(Some(size)) => Some(size),
        _ if recipe.asks_itself_for_pool() => facts.pools.first().map(|pool| pool.size),
        _ => None,
    }
}

impl OvercommitGuard {
    /// Sets a knob until the guard is dropped or the knob is set again.
    pub fn set(&mut self, knob: &Knob, value: &str) -> Result<(), JournalError> {
        if self.journal.is_none() {
            let journal = Journal::open(&journal_dir(), &Root::real())?;
            say_restored(journal.inherited());
            self.journal = Some(journal);
        }
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        journal.set(knob, value).map(|_| ())
    }

    fn raise(&mut self, size: PageSize, goes_on: &dyn Fn() -> bool) -> Result<(), Failure> {
        let (root, knob) = (Root::real(), Knob::hugetlb_overcommit(size));
        // Claim at least this limit, so that an administrator's higher limit stays.
        let want = Claim::AtLeast(limit_to_raise(size)?);
        let before = knob.read(&root)?;
        let share = SharedKnob::raise(&journal_dir(), &root, &knob, want, goes_on);
        let share = match share {
            // Most kernels accept no limit for gigantic pages.
            Err(_) if Status::read(&root).is_ok_and(|status| status.is_gigantic(size)) => {
                return Err(PoolError::GiganticOvercommit { size }.into());
            }
            share => share?,
        };
        say_restored(share.inherited());
        let got = share.written().got.clone();
        if got != before {
            let bytes = got.parse::<u64>().ok().map(|pages| pages.saturating_mul(size.bytes()));
            let bytes = bytes.map_or("unknown".to_string(), |bytes| ByteSize(bytes).to_string());
            self.raised.push(format!("{knob} set to {got} ({bytes}), restored afterwards"));
        }
        self.shares.push(share);
        Ok(())
    }

    /// Grows the pool itself by `bytes`. Returns the number of pages added. Partial growth is no failure, because the
    /// program may fall back.
    ///
    /// # Errors
    /// The machine lacks memory, or growing is not permitted.
    pub fn grow(
        &mut self,
        size: PageSize,
        bytes: ByteSize,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let (root, pages) = (Root::real(), bytes.bytes().div_ceil(size.bytes()));
        let (knob, want) = (Knob::hugetlb_pool(size), Claim::Plus(pages));
        let status = Status::read(&root)?;
        let before = status.persistent(size, None)?;
        let request = Request { size, node: None, before, target: before + pages };
        pool::check_headroom(&root, &status, &[request])?;
        let mut got = 0;
        let change = &mut |knobs: &mut dyn KnobWriter, from, to| {
            let request = Request { size, node: None, before: from, target: to };
            let options = pool::Options::default();
            let step = &mut |_: &_| match goes_on() {
                true => std::ops::ControlFlow::Continue(()),
                false => std::ops::ControlFlow::Break(()),
            };
            let outcome = pool::resize(&root, knobs, request, options, step)?;
            got = outcome.got.saturating_sub(from);
            Ok::<(), PoolError>(())
        };
        let share = SharedKnob::raise_by(&journal_dir(), &root, &knob, want, change, goes_on)?;
        say_restored(share.inherited());
        self.shares.push(share);
        let amount = ByteSize(got.saturating_mul(size.bytes()));
        self.raised.push(format!("the pool of {size} pages grown by {got} ({amount})"));
        Ok(got)
    }

    /// Restores everything. Returns one line per setting that could not be restored.
    pub fn restore(mut self) -> Vec<String> {
        self.put_back()
    }

    fn put_back(&mut self) -> Vec<String> {
        let shares = self.shares.drain(..).filter_map(SharedKnob::restore);
        let mut restored: Vec<Restoration> = shares.collect();
        restored.extend(self.journal.take().into_iter().flat_map(Journal::restore));
        let left = restored.iter().filter(|one| is_left_changed(&one.outcome));
        left.map(ToString::to_string).collect()
    }
}

/// Restores everything and prints what could not be restored.
impl Drop for OvercommitGuard {
    fn drop(&mut self) {
        self.put_back().iter().for_each(|line| crate::reporter::say(line));
    }
}

fn say_if_short(size: PageSize, got: u64, bytes: ByteSize) {
    let pages = bytes.bytes().div_ceil(size.bytes());
    if got < pages {
        crate::reporter::say(&format!(
            "the pool of {size} pages was grown by {got} of {pages}: memory is too fragmented, or too little is free"
        ));
    }
}

fn say_restored(restored: &[Restoration]) {
    for restoration in restored {
        crate::reporter::say(&format!("left by a killed superpage: {restoration}"));
    }
}

/// Returns the overcommit limit in pages: the surplus pages in use, and nine tenths of available memory. The limit only
/// permits a program to take pages. It exceeds the program's need on purpose: a forked child that writes needs pages
/// beyond the reservation.
fn limit_to_raise(size: PageSize) -> Result<u64, Failure> {
    let status = Status::read(&Root::real())?;
    let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
    let available = available.ok_or_else(|| {
        Failure::cannot("/proc/meminfo does not say how much memory is available; use --pool keep")
    })?;
    let surplus = status.surplus(size, None)?.unwrap_or(0);
    Ok(surplus + share_of(available, size))
}

fn share_of(available: ByteSize, size: PageSize) -> u64 {
    available.bytes() / 10 * 9 / size.bytes()
}

/// Returns whether a setting is, or may be, still changed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_by_nine_tenths_of_what_is_free() {
        let size = PageSize::new(2 << 20).unwrap();
        assert_eq!(share_of(ByteSize::gib(20), size), 9216);
        assert_eq!(share_of(ByteSize(0), size), 0);
    }
}
