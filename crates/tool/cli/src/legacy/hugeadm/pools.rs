//! `--pool-pages-min` and `--pool-pages-max`: set a pool's bounds through its persistent pages and overcommit limit.
//!
//! A maximum above the minimum is a limit that somebody set; it stays when the minimum moves, as in libhugetlbfs. A
//! maximum equal to the minimum is no limit and moves with the minimum. libhugetlbfs instead turned pages removed from
//! a shrinking pool into overcommit. Pages that could not be allocated do not become overcommit either.

use std::thread::sleep;
use std::time::Duration;

use host::journal::{Journal, Knob};
use host::pool::{self, Options, Outcome, PoolError, SpecError, Status};
use units::{NodeId, PageSize};

use super::lists::Bounds;
use super::options::{Bound, Request};
use super::swap::Swapping;
use super::{Completion, Context, refused};
use crate::exit::{self, Failure};
use crate::pool::progress::Watcher;
use crate::pool::show;
use operations::pool_guard;

/// A change of one pool's bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Page size of the pool.
    pub size: PageSize,
    /// Bounds before.
    pub from: Bounds,
    /// Bounds wanted.
    pub to: Bounds,
    /// Resize only on these nodes; empty: the kernel chooses.
    nodes: Vec<NodeId>,
}

impl Step {
    /// Returns whether the pool takes pages from free memory.
    pub fn grows(&self) -> bool {
        self.to.min > self.from.min
    }

    /// Returns the overcommit limit in pages for a pool that has `now` pages; `None` if this step does not change the
    /// limit.
    fn overcommit_with(&self, now: u64) -> Option<u64> {
        // After an incomplete growth the maximum stays, or rises to the pages allocated.
        let max = match self.grows() && now != self.to.min {
            true => self.from.max.max(now),
            false => self.to.max,
        };
        let changes = self.from.overcommit() != self.to.overcommit();
        changes.then_some(max.saturating_sub(now))
    }
}

/// Returns the steps of a request; each starts where the previous one ends. Writes nothing; rejects invalid changes.
pub fn plan(context: &Context, status: &Status, request: &Request) -> Result<Vec<Step>, Failure> {
    let nodes = if request.obey_mempolicy { policy_nodes(context) } else { Vec::new() };
    let mut steps: Vec<Step> = Vec::new();
    for (bound, spec) in &request.adjustments {
        let size = status.size(spec.pool).map_err(refused)?;
        let earlier = steps.iter().rev().find(|step| step.size == size).map(|step| step.to);
        let read = || Bounds::from_pool(status.pool(size).ok()?);
        let unknown = || PoolError::Unknown { size, what: "how many pages it has" };
        let from = earlier.or_else(read).ok_or_else(|| refused(unknown()))?;
        let base = if *bound == Bound::Min { from.min } else { from.max };
        let target = match spec.change.target(size, base) {
            Err(SpecError::BelowZero { has, by, .. }) => {
                context.voice.warn(format!("the pool has {has} pages, {by} less is none"));
                0
            }
            target => target.map_err(|error| refused(error.into()))?,
        };
        if *bound == Bound::Max && target < from.min {
            return Err(Failure::usage(format!(
                "a maximum of {target} is below the pool's minimum of {}; lower that first, with \
                 --pool-pages-min",
                from.min
            )));
        }
        let to = bounded(from, *bound, target);
        pool::check_overcommit(status, size, to.overcommit()).map_err(refused)?;
        steps.push(Step { size, from, to, nodes: nodes.clone() });
    }
    let requests: Vec<pool::Request> = steps.iter().flat_map(Step::whole).collect();
    pool::check_headroom(context.root, status, &requests).map_err(refused)?;
    Ok(steps)
}

fn bounded(from: Bounds, bound: Bound, target: u64) -> Bounds {
    match bound {
        Bound::Min if target >= from.min => Bounds { min: target, max: from.max.max(target) },
        Bound::Min if from.overcommit() == 0 => Bounds { min: target, max: target },
        Bound::Min => Bounds { min: target, max: from.max },
        Bound::Max => Bounds { min: from.min, max: target },
    }
}

impl Step {
    /// Returns the step as a request for the whole machine.
    fn whole(&self) -> Option<pool::Request> {
        let Self { size, from, to, .. } = *self;
        (from.min != to.min).then_some(pool::Request {
            size,
            node: None,
            before: from.min,
            target: to.min,
        })
    }

    /// Returns the step as requests for the machine, or for each of its nodes. Growth is spread evenly over the nodes,
    /// as the kernel does for nr_hugepages_mempolicy. Shrinking is spread over the nodes that have pages.
    fn requests(&self, status: &Status) -> Result<Vec<pool::Request>, PoolError> {
        let Self { size, to, .. } = *self;
        let before = status.persistent(size, None)?;
        if self.nodes.is_empty() {
            return Ok(vec![pool::Request { size, node: None, before, target: to.min }]);
        }
        let has = |node: &NodeId| status.persistent(size, Some(*node));
        let have = self.nodes.iter().map(has).collect::<Result<Vec<_>, _>>()?;
        let grows = to.min >= before;
        let most = |has: &u64| if grows { u64::MAX } else { *has };
        let shares =
            split_evenly(before.abs_diff(to.min), &have.iter().map(most).collect::<Vec<_>>());
        let request = |((node, before), share): ((&NodeId, u64), u64)| {
            let target =
                if grows { before.saturating_add(share) } else { before.saturating_sub(share) };
            pool::Request { size, node: Some(*node), before, target }
        };
        Ok(self.nodes.iter().zip(have).zip(shares).map(request).collect())
    }
}

/// Splits `pages` as evenly as the limits `most` allow. The sum of the returned numbers of pages is smaller if the
/// limits are too small.
fn split_evenly(mut pages: u64, most: &[u64]) -> Vec<u64> {
    let mut shares = vec![0; most.len()];
    loop {
        let open: Vec<usize> = (0..most.len()).filter(|at| shares[*at] < most[*at]).collect();
        if pages == 0 || open.is_empty() {
            return shares;
        }
        let (each, rest) = (pages / open.len() as u64, pages % open.len() as u64);
        for (place, at) in open.into_iter().enumerate() {
            let share = each + u64::from((place as u64) < rest);
            let share = share.min(most[at] - shares[at]);
            shares[at] += share;
            pages -= share;
        }
    }
}

/// Carries out the steps in order. If requested, adds temporary swap before them and removes it
/// afterwards.
pub fn carry_out(
    context: &Context,
    request: &Request,
    steps: &[Step],
    swapping: Option<Swapping>,
) -> Result<Completion, Failure> {
    if context.dry_run {
        if let Some(swapping) = &swapping {
            exit::print(&swapping.commands_before())?;
        }
        for step in steps {
            let status = Status::read(context.root).map_err(refused)?;
            exit::print(&commands(step, &status)?)?;
        }
        if let Some(swapping) = &swapping {
            exit::print(&swapping.commands_after())?;
        }
        return Ok(Completion::Full);
    }
    let mut watcher = Watcher::new(context.voice.level() < 2)?;
    let swap = swapping.map(|swapping| swapping.begin(context)).transpose()?;
    let mut ended = Completion::Full;
    for step in steps {
        if one(context, request, step, &mut watcher)? == Completion::Part {
            ended = Completion::Part;
        }
        if let Some(signal) = stopped(&watcher) {
            // Remove the swap first: `die_by` does not return.
            drop(swap);
            sys::signal::die_by(signal);
            return Ok(Completion::Part);
        }
    }
    Ok(ended)
}

fn stopped(watcher: &Watcher) -> Option<i32> {
    match watcher.end(exit::Done::Fine) {
        exit::Done::Signal(signal) => Some(signal),
        _ => None,
    }
}

fn one(
    context: &Context,
    request: &Request,
    step: &Step,
    watcher: &mut Watcher,
) -> Result<Completion, Failure> {
    let mut outcomes = resize(context, step, watcher)?;
    let mut attempts = if request.hard { HARD_ATTEMPTS } else { 0 };
    while attempts > 0 && outcomes.iter().any(|one| !one.is_full()) {
        if stopped(watcher).is_some() {
            break;
        }
        sleep(HARD_PAUSE);
        let got = |outcomes: &[Outcome]| outcomes.iter().map(|one| one.got).sum::<u64>();
        let before = got(&outcomes);
        outcomes = resize(context, step, watcher)?;
        attempts = if got(&outcomes) > before { HARD_ATTEMPTS } else { attempts - 1 };
    }
    if stopped(watcher).is_some() {
        // The step was already undone.
        return Ok(Completion::Part);
    }
    let status = Status::read(context.root).map_err(refused)?;
    let now = status.persistent(step.size, None).map_err(refused)?;
    let failed =
        |why: &str| format!("failed to set pool minimum to {} became {now}: {why}", step.to.min);
    for outcome in &outcomes {
        if outcome.is_full() {
            context.voice.inform(show::outcome(outcome));
        } else {
            context.voice.warn(failed(&show::outcome(outcome)));
        }
    }
    if now != step.to.min && outcomes.iter().all(Outcome::is_full) {
        context.voice.warn(failed(match step.nodes.is_empty() || step.grows() {
            true => "something else resizes it too",
            false => "the nodes of the memory policy have no more of its pages",
        }));
    }
    if let Some(overcommit) = step.overcommit_with(now)
        && pool::overcommit(&status, step.size).is_ok_and(|set| set != overcommit)
    {
        let mut journal = Journal::open(&pool_guard::journal_dir(), context.root)?;
        let set = pool::set_overcommit(context.root, &mut journal, step.size, overcommit);
        let (_, got) = set.map_err(refused)?;
        journal.keep()?;
        context.voice.inform(format!("pages of {} made on demand: {got} at most", step.size));
    }
    Ok(if now == step.to.min { Completion::Full } else { Completion::Part })
}

/// Number of --hard retries that may pass without a new page, as in libhugetlbfs.
const HARD_ATTEMPTS: u32 = 5;
/// Pause between retries, for swapping and writeback.
const HARD_PAUSE: Duration = Duration::from_secs(6);

fn resize(context: &Context, step: &Step, watcher: &mut Watcher) -> Result<Vec<Outcome>, Failure> {
    let status = Status::read(context.root).map_err(refused)?;
    let requests = step.requests(&status).map_err(refused)?;
    let (dir, options) = (pool_guard::journal_dir(), Options::default());
    let applied = pool::apply(context.root, &dir, &requests, options, &mut |p| watcher.step(p));
    let applied = applied.map_err(refused)?;
    context.complain(&applied.inherited);
    Ok(applied.outcomes)
}

fn commands(step: &Step, status: &Status) -> Result<String, Failure> {
    let mut text = String::new();
    // The dry run applies no earlier steps, so print from the step's own start, not the machine's state.
    let changes = step.from.min != step.to.min;
    for request in step.requests(status).map_err(refused)? {
        if changes && request.before != request.target {
            let knob = match request.node {
                None => Knob::hugetlb_pool(step.size),
                Some(node) => Knob::hugetlb_node_pool(node, step.size),
            };
            text += &format!("echo {} > {knob}\n", request.target);
        }
    }
    if step.from.overcommit() != step.to.overcommit() {
        let knob = Knob::hugetlb_overcommit(step.size);
        text += &format!("echo {} > {knob}\n", step.to.overcommit());
    }
    Ok(text)
}

/// Returns the nodes of this process's memory policy (numactl); empty if it names none.
fn policy_nodes(context: &Context) -> Vec<NodeId> {
    let Ok(text) = context.root.read("/proc/self/numa_maps") else {
        context.voice.warn(
            "this kernel knows no memory policies; the pool is resized wherever the kernel likes",
        );
        return Vec::new();
    };
    // A mapping without its own policy, such as the program's text, shows the process's policy.
    let policy = text.lines().next().and_then(|line| line.split_ascii_whitespace().nth(1));
    policy.map_or(Vec::new(), nodes_of)
}

/// Parses the nodes in `bind:0-1,3`, `prefer:1`, `interleave=static:0`; empty for `default` and `local`.
fn nodes_of(policy: &str) -> Vec<NodeId> {
    let Some((_, list)) = policy.split_once(':') else { return Vec::new() };
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    list.split(',').filter_map(range).flatten().map(NodeId).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_move_as_documented() {
        let bounds = |min, max| Bounds { min, max };
        for (from, bound, target, to) in [
            // Growing keeps the maximum, or raises it.
            (bounds(0, 0), Bound::Min, 10, bounds(10, 10)),
            (bounds(0, 20), Bound::Min, 10, bounds(10, 20)),
            // Shrinking leaves no overcommit behind.
            (bounds(10, 10), Bound::Min, 0, bounds(0, 0)),
            (bounds(10, 15), Bound::Min, 4, bounds(4, 15)),
            (bounds(10, 10), Bound::Max, 30, bounds(10, 30)),
            (bounds(10, 30), Bound::Max, 10, bounds(10, 10)),
        ] {
            assert_eq!(bounded(from, bound, target), to);
        }
    }

    #[test]
    fn pages_are_dealt_to_nodes_that_have_them() {
        for (pages, most, shares) in [
            (7, &[u64::MAX; 3][..], &[3, 2, 2][..]),
            (6, &[0, 10], &[0, 6]),
            (6, &[1, 10, 2], &[1, 3, 2]),
            (9, &[1, 10, 2], &[1, 6, 2]),
            (1, &[0, 0, 1], &[0, 0, 1]),
            (5, &[2, 2], &[2, 2]),
            (0, &[2], &[0]),
            (5, &[], &[]),
        ] {
            assert_eq!(split_evenly(pages, most), shares, "{pages} of {most:?}");
        }
    }

    #[test]
    fn the_overcommit_limit_is_set_by_steps_that_change_it() {
        let size = PageSize::new(2 << 20).unwrap();
        let bounds = |(min, max)| Bounds { min, max };
        let after = |from, to, now| {
            let (from, to) = (bounds(from), bounds(to));
            Step { size, from, to, nodes: Vec::new() }.overcommit_with(now)
        };
        assert_eq!(after((0, 20), (10, 20), 10), Some(10));
        assert_eq!(after((0, 0), (10, 10), 10), None);
        assert_eq!(after((10, 10), (10, 30), 10), Some(20));
        // The pool grew only in part.
        assert_eq!(after((0, 20), (10, 20), 4), Some(16));
        assert_eq!(after((0, 8), (10, 10), 9), Some(0));
        assert_eq!(after((0, 0), (10, 10), 4), None);
        // An incomplete shrink must not allow overcommit for the removed pages.
        assert_eq!(after((10, 10), (4, 4), 8), None);
        assert_eq!(after((10, 15), (4, 15), 8), Some(7));
    }

    #[test]
    fn policies_name_nodes() {
        let nodes = |ids: &[u32]| ids.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        for (policy, ids) in [
            ("default", &[][..]),
            ("local", &[]),
            ("bind:0", &[0]),
            ("bind:0-2,5", &[0, 1, 2, 5]),
            ("prefer:1", &[1]),
            ("interleave=static:0,2", &[0, 2]),
            ("bind:x", &[]),
        ] {
            assert_eq!(nodes_of(policy), nodes(ids), "{policy}");
        }
    }
}
