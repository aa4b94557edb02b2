//! What differs between a wanted state and the machine. Reads; writes nothing.

use serde::{Deserialize, Serialize};
use units::PageSize;

use super::wanted::{MinFree, Wanted};
use crate::Root;
use crate::journal::Knob;
use crate::pool::mounts::{self, MountOutcome, MountPlan};
use crate::pool::shm::recommended_min_free;
use crate::pool::{PoolError, Request, SpecError, Status, check_overcommit, overcommit, words};
use crate::text;

/// The way to a wanted state: only what differs is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pools to resize.
    pub requests: Vec<Request>,
    /// Overcommit limits: size, now, wanted.
    pub overcommits: Vec<(PageSize, u64, u64)>,
    /// Other settings.
    pub settings: Vec<Raise>,
    /// Mounts to make.
    pub mounts: Vec<MountPlan>,
}

/// A setting and its wanted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise {
    /// The setting.
    pub knob: Knob,
    /// Its value.
    pub now: u64,
    /// Its wanted value.
    pub wanted: u64,
}

/// One difference, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The pool, setting or mount.
    pub what: String,
    /// As it is.
    pub now: String,
    /// As it should be.
    pub wanted: String,
}

/// Compares the machine with the wanted state.
pub fn plan(root: &Root, wanted: &Wanted) -> Result<Plan, PoolError> {
    let mut plan = Plan::default();
    if !wanted.pages.is_empty() || !wanted.mounts.is_empty() {
        let status = Status::read(root)?;
        plan.pools(&status, wanted)?;
        plan.mounts(root, &status, wanted)?;
    }
    let number = |knob: &Knob| text::number(root, knob.path());
    if let Some(group) = &wanted.shm_group {
        let (knob, gid) = (Knob::hugetlb_shm_group(), mounts::group_id(root, group)?);
        let now = number(&knob)?;
        plan.setting(knob, now, gid.into(), now != u64::from(gid));
    }
    if let Some(bytes) = wanted.shmmax {
        let knob = Knob::shmmax();
        let now = number(&knob)?;
        plan.setting(knob, now, bytes.bytes(), now < bytes.bytes());
    }
    let kbytes = match wanted.min_free_kbytes {
        None => None,
        Some(MinFree::KBytes(kbytes)) => Some(kbytes),
        Some(MinFree::Recommended) => recommended_min_free(root)?,
    };
    if let Some(kbytes) = kbytes {
        let knob = Knob::min_free_kbytes();
        let now = number(&knob)?;
        plan.setting(knob, now, kbytes, now < kbytes);
    }
    Ok(plan)
}

impl Plan {
    /// Whether the machine is as wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Everything that differs, in words.
    pub fn differences(&self) -> Vec<Difference> {
        let pools = self.requests.iter().map(|one| Difference {
            what: words::pool(one.size, one.node),
            now: format!("{} pages", one.before),
            wanted: format!("{} pages", one.target),
        });
        let limits = self.overcommits.iter().map(|(size, now, wanted)| Difference {
            what: format!("overcommit of {size} pages"),
            now: now.to_string(),
            wanted: wanted.to_string(),
        });
        let settings = self.settings.iter().map(|one| Difference {
            what: one.knob.to_string(),
            now: one.now.to_string(),
            wanted: one.wanted.to_string(),
        });
        let mounts = self.mounts.iter().map(|one| Difference {
            what: one.point.display().to_string(),
            now: "not mounted".to_string(),
            wanted: one.options(),
        });
        pools.chain(limits).chain(settings).chain(mounts).collect()
    }

    fn setting(&mut self, knob: Knob, now: u64, wanted: u64, differs: bool) {
        if differs {
            self.settings.push(Raise { knob, now, wanted });
        }
    }

    fn pools(&mut self, status: &Status, wanted: &Wanted) -> Result<(), PoolError> {
        let mut seen = Vec::new();
        for pages in &wanted.pages {
            let size = status.size(pages.size)?;
            // `default` may be one of the sizes that are named as well.
            if seen.contains(&(size, pages.node)) {
                return Err(SpecError::Twice(size).into());
            }
            seen.push((size, pages.node));
            let before = status.persistent(size, pages.node)?;
            let target = crate::pool::Amount::Pages(pages.count).pages(size, before)?;
            if before != target {
                self.requests.push(Request { size, node: pages.node, before, target });
            }
            if let Some(limit) = pages.overcommit {
                check_overcommit(status, size, limit)?;
                let now = overcommit(status, size)?;
                if now != limit {
                    self.overcommits.push((size, now, limit));
                }
            }
        }
        Ok(())
    }

    fn mounts(&mut self, root: &Root, status: &Status, wanted: &Wanted) -> Result<(), PoolError> {
        if wanted.mounts.is_empty() {
            return Ok(());
        }
        let there = mounts::mounts(root)?;
        for mount in &wanted.mounts {
            let size = status.size(mount.size)?;
            let plan = mounts::plan(root, &mount.owner, size, mount.limits)?;
            if self.mounts.iter().any(|other| other.point == plan.point) {
                let point = plan.point.display();
                return Err(PoolError::Mount(format!(
                    "{point} is specified twice; specify it once"
                )));
            }
            if plan.check(&there)? == MountOutcome::New {
                self.mounts.push(plan);
            }
        }
        Ok(())
    }
}
