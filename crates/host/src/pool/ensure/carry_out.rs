//! Going to a wanted state, under one journal.

use std::ops::ControlFlow;
use std::path::Path;

use super::plan::Plan;
use crate::Root;
use crate::journal::{Journal, Restoration};
use crate::pool::resize::{check_headroom, resize_all};
use crate::pool::{
    HeadroomRule, Options, Outcome, PoolError, Progress, Shortage, Status, WhyShort, mounts,
    set_overcommit,
};

/// What going there came to.
#[derive(Debug)]
pub struct Ensured {
    /// Of each pool that was resized.
    pub outcomes: Vec<Outcome>,
    /// What was put back, if it was stopped or all was to be had or nothing.
    pub given_back: Option<Vec<Restoration>>,
    /// What an earlier killed superpage had left, undone first.
    pub inherited: Vec<Restoration>,
}

impl Ensured {
    /// Whether the machine is as wanted.
    pub fn is_full(&self) -> bool {
        self.given_back.is_none() && self.outcomes.iter().all(Outcome::is_full)
    }
}

/// Carries a plan out. Settings first (they cost nothing and may help the pools grow), then pools,
/// then mounts. An error puts back everything that was done. Mounts are made on the real machine
/// only.
pub fn carry_out(
    root: &Root,
    journal_dir: &Path,
    plan: &Plan,
    options: Options,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Ensured, PoolError> {
    let nothing = || Ensured { outcomes: Vec::new(), given_back: None, inherited: Vec::new() };
    if plan.is_empty() {
        return Ok(nothing());
    }
    if options.headroom == HeadroomRule::Check && !plan.requests.is_empty() {
        check_headroom(root, &Status::read(root)?, &plan.requests)?;
    }
    let mut journal = Journal::open(journal_dir, root)?;
    let inherited = journal.inherited().to_vec();
    for setting in &plan.settings {
        journal.set(&setting.knob, &setting.wanted.to_string())?;
    }
    for (size, _, limit) in &plan.overcommits {
        set_overcommit(root, &mut journal, *size, *limit)?;
    }
    let outcomes = resize_all(root, &mut journal, &plan.requests, options, progress)?;
    let stopped = outcomes.iter().any(|one| one.why_short == Some(WhyShort::Stopped));
    let short = outcomes.iter().any(|one| !one.is_full());
    if stopped || (short && options.shortage == Shortage::GiveBack) {
        return Ok(Ensured { outcomes, given_back: Some(journal.restore()), inherited });
    }
    make_mounts(plan)?;
    journal.keep()?;
    Ok(Ensured { outcomes, given_back: None, inherited })
}

/// All of them or none.
fn make_mounts(plan: &Plan) -> Result<(), PoolError> {
    for (index, mount) in plan.mounts.iter().enumerate() {
        if let Err(error) = mounts::make(mount) {
            for made in &plan.mounts[..index] {
                let _ = mounts::remove(&made.point);
            }
            return Err(error);
        }
    }
    Ok(())
}
