//! Raising a hugetlb pool for a run: the one setting this command changes, beside whoever else does.
//!
//! What is raised is the overcommit limit, not the pool: pages are then taken from free memory
//! when a program maps them (and reserved, so that its faults cannot fail) and go back when it
//! unmaps them. Between the runs of other arms nothing is missing from the machine.

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

/// Raised limits and grown pools, or none: dropping it, or [`OvercommitGuard::restore`], puts everything back.
#[derive(Default)]
pub struct OvercommitGuard {
    shares: Vec<SharedKnob>,
    /// For knobs that are set for this command alone.
    journal: Option<Journal>,
    /// What was changed, in words.
    pub raised: Vec<String>,
    /// Why a pool could not be raised.
    pub refused: Vec<Failure>,
}

/// Where settings are written down before they are changed. On disk, because it must outlive a
/// kill -9; in a directory of root's, because it says what to write into /proc and /sys.
pub fn journal_dir() -> PathBuf {
    PathBuf::from("/var/lib/superpage/journal")
}

/// Gives back what killed commands left, before it is decided what is to change; what that was.
pub fn give_back_of_the_dead(root: &Root) -> Vec<Restoration> {
    // Where it cannot be, the change fails too, and says why.
    host::journal::restore_dead(&journal_dir(), root, &|| true).unwrap_or_default()
}

/// Raises what arms need, if the policy allows it; why a pool of theirs was not raised.
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

/// Raises every pool that `recipes` ask for, beside whoever else does. A pool that cannot be raised is noted
/// in [`OvercommitGuard::refused`]; the others are raised all the same.
///
/// With `grow`, the pools are grown by that much at once, which compacts memory where it must;
/// without, they may grow as pages are asked for. Once `goes_on` is false no more pages are got.
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

/// What [`raise`] would do, in words, and why a pool would not be raised; `facts` become what they would then be.
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
            // Whether this kernel takes a limit of these is seen when it is written.
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
        // It takes a pool that has pages, or where there is no THP one that may grow. See docs/decisions/launch.md#4.
        Pages::Auto if !grows && facts.has_thp() => None,
        Pages::Hugetlb(None) | Pages::Auto => facts.pools.first().map(|pool| pool.size),
        Pages::Hugetlb(Some(size)) => Some(size),
        _ if recipe.asks_itself_for_pool() => facts.pools.first().map(|pool| pool.size),
        _ => None,
    }
}

impl OvercommitGuard {
    /// Sets any knob, for as long as the guard lasts or until it is set again.
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
        // An administrator's higher limit stays: at least this.
        let want = Claim::AtLeast(limit_to_raise(size)?);
        let before = knob.read(&root)?;
        let share = SharedKnob::raise(&journal_dir(), &root, &knob, want, goes_on);
        let share = match share {
            // Most kernels take no limit of gigantic pages.
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

    /// Grows the pool itself by so many bytes; returns by how many pages. A part of them is no failure: the program may
    /// fall back.
    ///
    /// # Errors
    /// The machine cannot spare so much, or does not let us.
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

    /// Puts everything back and says, one line each, what could not be.
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

/// However it ends: what could not be put back is said.
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

/// Says what was put back after an earlier superpage that was killed.
fn say_restored(restored: &[Restoration]) {
    for restoration in restored {
        crate::reporter::say(&format!("left by a killed superpage: {restoration}"));
    }
}

/// What is on demand already, and nine tenths of what is available: the limit lets a program take pages, it
/// does not take them. More than it needs on purpose: a forked child that writes needs pages beyond the
/// reservation.
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

/// Whether a setting is, or may be, not as it was before it was changed.
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
