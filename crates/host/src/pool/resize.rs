//! Resizing pools: check everything, shrink first, grow in steps, read back, report.
//!
//! One journal covers a whole call of [`apply`]: killed anywhere in between, `superpage restore`
//! puts every pool back; ended by itself, what was got stays (or, asked so, nothing does).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use units::NodeId;

use super::error::PoolError;
use super::grow::{self, End, Growable};
use super::headroom::Headroom;
use super::outcome::{
    Applied, Compaction, HeadroomRule, Options, Outcome, Progress, Request, Shortage, WhyShort,
};
use super::spec::Spec;
use super::status::Status;
use crate::journal::{Journal, Knob, KnobWriter};
use crate::{FreeContiguity, Root, ZoneFree, compaction};

/// Turns specs into requests, judged by the pools as they are. Nothing is written.
pub fn resolve(
    status: &Status,
    specs: &[Spec],
    node: Option<NodeId>,
) -> Result<Vec<Request>, PoolError> {
    let mut requests: Vec<Request> = Vec::new();
    for spec in specs {
        let size = status.size(spec.pool)?;
        let before = status.persistent(size, node)?;
        let target = spec.change.target(size, before)?;
        if requests.iter().any(|request| request.size == size) {
            return Err(super::SpecError::Twice(size).into());
        }
        requests.push(Request { size, node, before, target });
    }
    Ok(requests)
}

/// Refuses what cannot fit, all requests together. Nothing is written.
pub fn check_headroom(root: &Root, status: &Status, requests: &[Request]) -> Result<(), PoolError> {
    let bytes = |pages: u64, request: &Request| pages.saturating_mul(request.size.bytes());
    // By node: what is asked of one takes nothing of another.
    let (mut taken, mut freed) = (BTreeMap::new(), BTreeMap::new());
    let add = |to: &mut BTreeMap<Option<NodeId>, u64>, node, bytes| {
        let sum: &mut u64 = to.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    };
    let of = |all: &BTreeMap<Option<NodeId>, u64>, node: Option<NodeId>| match node {
        None => all.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)),
        node => all.get(&node).copied().unwrap_or(0),
    };
    // Those that shrink are carried out first.
    for request in requests {
        // Pages of a shrinking pool that are in use give nothing back yet.
        let free = status.pool(request.size)?.free.unwrap_or(0);
        let pages = request.before.saturating_sub(request.target).min(free);
        add(&mut freed, request.node, bytes(pages, request));
    }
    for request in requests {
        // Surplus pages become persistent ones first: they are in the pool already.
        let surplus = status.surplus(request.size, request.node)?.unwrap_or(0);
        let pages = request.target.saturating_sub(request.before.saturating_add(surplus));
        if pages == 0 {
            continue;
        }
        add(&mut taken, request.node, bytes(pages, request));
        let headroom = Headroom::read(root, request.node)?;
        let what = "how much memory is available (--force skips this check)";
        let headroom = headroom.ok_or(PoolError::Unknown { size: request.size, what })?;
        let needed = of(&taken, request.node).saturating_sub(of(&freed, request.node));
        headroom.check(pages, request.size, needed)?;
    }
    Ok(())
}

/// Carries the requests out: those that shrink first. `progress` is told after every step, and may
/// stop it, which puts everything back.
pub fn apply(
    root: &Root,
    journal_dir: &Path,
    requests: &[Request],
    options: Options,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Applied, PoolError> {
    if options.headroom == HeadroomRule::Check {
        check_headroom(root, &Status::read(root)?, requests)?;
    }
    if requests.iter().all(|request| request.before == request.target) {
        let outcomes = requests.iter().map(unchanged).collect();
        return Ok(Applied { outcomes, given_back: None, inherited: Vec::new() });
    }
    let mut journal = Journal::open(journal_dir, root)?;
    let inherited = journal.inherited().to_vec();
    let outcomes = resize_all(root, &mut journal, requests, options, progress)?;
    let stopped = outcomes.iter().any(|one| one.why_short == Some(WhyShort::Stopped));
    let short = outcomes.iter().any(|one| !one.is_full());
    let given_back = if stopped || (short && options.shortage == Shortage::GiveBack) {
        Some(journal.restore())
    } else {
        journal.keep()?;
        None
    };
    Ok(Applied { outcomes, given_back, inherited })
}

/// Resizes pools under a journal that the caller keeps or restores; ends early when told to stop.
pub(super) fn resize_all(
    root: &Root,
    journal: &mut Journal,
    requests: &[Request],
    options: Options,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Vec<Outcome>, PoolError> {
    // What a killed command left was given back since they were made.
    let status = Status::read(root)?;
    let mut requests = requests.to_vec();
    for request in &mut requests {
        request.before = status.persistent(request.size, request.node)?;
    }
    let requests = &requests[..];
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|index| requests[*index].target > requests[*index].before);
    let mut outcomes: Vec<Outcome> = requests.iter().map(unchanged).collect();
    for index in order {
        // An error drops the journal, which puts back what was done so far.
        outcomes[index] = resize(root, journal, requests[index], options, progress)?;
        if matches!(outcomes[index].why_short, Some(WhyShort::Stopped)) {
            break;
        }
    }
    Ok(outcomes)
}

/// Resizes one pool by a journal, or a share in it, that the caller keeps or restores. `options.headroom` is the
/// caller's business: see [`check_headroom`].
pub fn resize(
    root: &Root,
    journal: &mut dyn KnobWriter,
    request: Request,
    options: Options,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome, PoolError> {
    let began = Instant::now();
    let mut kernel = Kernel { root, journal, request, progress };
    let Request { size, before, target, .. } = request;
    let mut outcome = unchanged(&request);
    if target < before {
        outcome.got = kernel.set(target)?;
        outcome.why_short = (outcome.got != target).then_some(WhyShort::NotShrunk);
        let status = Status::read(root)?;
        let surplus = status.surplus(size, request.node)?.unwrap_or(0);
        // Only as many as were to go: others' overcommitted pages are none of ours.
        outcome.still_in_use = surplus.min(before - target);
    } else if target > before {
        let may = options.compaction == Compaction::WhenNeeded;
        let first = may && !lies_ready(root, request);
        // A step of 1 GiB takes milliseconds; it is what a stop has to wait for.
        let step = ((1u64 << 30) / size.bytes()).max(1);
        let done = grow::grow_in_steps(&mut kernel, before, target, step, first, may)?;
        (outcome.got, outcome.rounds, outcome.compactions) =
            (done.got, done.rounds, done.compactions);
        outcome.why_short = match done.end {
            End::Reached => None,
            End::Stopped => Some(WhyShort::Stopped),
            End::NoMemory => Some(out_of_memory(root, request.node)),
            End::Stalled => Some(why_stalled(root, request, target - done.got.min(target))),
        };
    }
    outcome.milliseconds = began.elapsed().as_millis() as u64;
    Ok(outcome)
}

fn unchanged(request: &Request) -> Outcome {
    Outcome {
        size: request.size,
        node: request.node,
        asked: request.target,
        before: request.before,
        got: request.before,
        rounds: 0,
        compactions: 0,
        still_in_use: 0,
        milliseconds: 0,
        why_short: None,
    }
}

struct Kernel<'a> {
    root: &'a Root,
    journal: &'a mut dyn KnobWriter,
    request: Request,
    progress: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
}

impl Growable for Kernel<'_> {
    fn set(&mut self, pages: u64) -> Result<u64, PoolError> {
        let Request { size, node, .. } = self.request;
        let knob = match node {
            None => Knob::hugetlb_pool(size),
            Some(node) => Knob::hugetlb_node_pool(node, size),
        };
        let written = self.journal.set(&knob, &pages.to_string())?;
        let unknown = PoolError::Unknown { size, what: "how many pages it got" };
        written.got.parse().map_err(|_| unknown)
    }

    fn spare(&mut self) -> Option<u64> {
        let headroom = Headroom::read(self.root, self.request.node).ok()??;
        let above = headroom.available.bytes().saturating_sub(headroom.floor().bytes());
        Some(above / self.request.size.bytes())
    }

    fn compact(&mut self) -> bool {
        // Without compaction the growth may still succeed, so a refusal is no error.
        compaction::compact(self.root, self.request.node).is_ok()
    }

    fn report(&mut self, now: u64, compacting: bool) -> ControlFlow<()> {
        (self.progress)(&Progress { request: self.request, now, compacting })
    }
}

/// Whether the free blocks hold all that is asked for, so that compaction would gain nothing.
fn lies_ready(root: &Root, request: Request) -> bool {
    let ready = contiguity(root, request).and_then(|found| found.superpages);
    ready.is_some_and(|pages| pages >= request.target - request.before)
}

fn contiguity(root: &Root, request: Request) -> Option<FreeContiguity> {
    let mut zones = ZoneFree::read(root).ok()?;
    zones.retain(|zone| request.node.is_none_or(|node| zone.node == node));
    Some(FreeContiguity::from_zones(&zones, root.page_size(), request.size))
}

fn out_of_memory(root: &Root, node: Option<NodeId>) -> WhyShort {
    let headroom = Headroom::read(root, node).ok().flatten();
    WhyShort::Memory { available: headroom.map(|headroom| headroom.available) }
}

fn why_stalled(root: &Root, request: Request, missing: u64) -> WhyShort {
    let bytes = missing.saturating_mul(request.size.bytes());
    match contiguity(root, request) {
        Some(found) if found.free.bytes() >= bytes.min(1 << 30) => {
            WhyShort::Fragmented { free: found.free, in_superpages: found.in_superpages }
        }
        _ => out_of_memory(root, request.node),
    }
}
