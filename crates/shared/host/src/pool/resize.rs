//! Resizing pools: check everything, shrink first, grow in steps, read back, report.
//!
//! One journal covers a whole call of [`apply`]. After a kill at any point, `superpage restore` restores every pool.
//! After a normal end the new sizes stay, or all pools return to their old sizes if requested.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use units::{ByteSize, NodeId, PageSize};

use super::outcome::{
    Applied, Compaction, HeadroomRule, Options, Outcome, PoolError, Progress, Request, Shortage,
    WhyShort,
};
use super::spec::Spec;
use super::status::Status;
use crate::journal::{Journal, JournalError, Knob, KnobWriter};
use crate::{FreeContiguity, MemInfo, ReadError, Root, ZoneFree, hugetlb, root, zones};

/// Turns specs into requests, by the current pools. Writes nothing.
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

/// Refuses requests that do not fit in memory together. Writes nothing.
pub fn check_headroom(root: &Root, status: &Status, requests: &[Request]) -> Result<(), PoolError> {
    let bytes = |pages: u64, request: &Request| pages.saturating_mul(request.size.bytes());
    // Count each node separately: a request to one node takes nothing from another.
    let (mut taken, mut freed) = (BTreeMap::new(), BTreeMap::new());
    let add = |to: &mut BTreeMap<Option<NodeId>, u64>, node, bytes| {
        let sum: &mut u64 = to.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    };
    let of = |all: &BTreeMap<Option<NodeId>, u64>, node: Option<NodeId>| match node {
        None => all.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)),
        node => all.get(&node).copied().unwrap_or(0),
    };
    // Shrinking requests are executed first.
    for request in requests {
        // Pages in use stay allocated when a pool shrinks, so they free no memory yet.
        let free = status.pool(request.size)?.free.unwrap_or(0);
        let pages = request.before.saturating_sub(request.target).min(free);
        add(&mut freed, request.node, bytes(pages, request));
    }
    for request in requests {
        // A growing pool first turns its surplus pages, which it already has, into persistent
        // pages.
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

/// Executes the requests, shrinking ones first. Calls `progress` after every step. If `progress` stops the call,
/// restores all pools.
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

/// Resizes pools under a journal that the caller keeps or restores; ends early if `progress` stops
/// it.
pub(super) fn resize_all(
    root: &Root,
    journal: &mut Journal,
    requests: &[Request],
    options: Options,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Vec<Outcome>, PoolError> {
    // Undoing a killed command's changes may have shrunk the pools after the requests were made.
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
        // An error drops the journal, which restores all changes made so far.
        outcomes[index] = resize(root, journal, requests[index], options, progress)?;
        if matches!(outcomes[index].why_short, Some(WhyShort::Stopped)) {
            break;
        }
    }
    Ok(outcomes)
}

/// Resizes one pool through a journal or a shared knob, which the caller keeps or restores. The caller must enforce
/// `options.headroom`: see [`check_headroom`].
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
        // Count at most the pages to remove: other programs may have surplus pages too.
        outcome.still_in_use = surplus.min(before - target);
    } else if target > before {
        let may = options.compaction == Compaction::WhenNeeded;
        let first = may && !is_contiguous(root, request);
        // A step of 1 GiB takes milliseconds, which limits the delay of a stop.
        let step = ((1u64 << 30) / size.bytes()).max(1);
        let done = grow_in_steps(&mut kernel, before, target, step, first, may)?;
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
        // A refused compaction is not an error, because the growth may still succeed.
        zones::compact(self.root, self.request.node).is_ok()
    }

    fn report(&mut self, now: u64, compacting: bool) -> ControlFlow<()> {
        (self.progress)(&Progress { request: self.request, now, compacting })
    }
}

/// Whether free blocks of this size suffice for all requested pages, so that compaction would gain
/// nothing.
fn is_contiguous(root: &Root, request: Request) -> bool {
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

// The overcommit limit: the maximum number of surplus pages that the kernel makes for a pool on
// demand.

/// Maximum number of surplus pages of `size`.
pub fn overcommit(status: &Status, size: PageSize) -> Result<u64, PoolError> {
    let limit = status.pool(size)?.overcommit;
    limit.ok_or(PoolError::Unknown { size, what: "its overcommit limit" })
}

/// Refuses a limit that this kernel does not accept, before any write.
pub fn check_overcommit(status: &Status, size: PageSize, pages: u64) -> Result<(), PoolError> {
    status.pool(size)?;
    // The kernel refuses every value for gigantic pages, even their current value 0.
    if status.is_gigantic(size) && pages > 0 {
        return Err(PoolError::GiganticOvercommit { size });
    }
    Ok(())
}

/// Sets the maximum number of surplus pages of `size`; returns the old and the new limit. Allocates no memory. The
/// caller keeps or restores the journal.
pub fn set_overcommit(
    root: &Root,
    journal: &mut Journal,
    size: PageSize,
    pages: u64,
) -> Result<(u64, u64), PoolError> {
    let status = Status::read(root)?;
    check_overcommit(&status, size, pages)?;
    let before = overcommit(&status, size)?;
    match journal.set(&Knob::hugetlb_overcommit(size), &pages.to_string()) {
        Ok(written) => {
            let unknown = PoolError::Unknown { size, what: "its overcommit limit" };
            Ok((before, written.got.parse().map_err(|_| unknown)?))
        }
        Err(JournalError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::InvalidInput =>
        {
            Err(PoolError::GiganticOvercommit { size })
        }
        Err(error) => Err(error.into()),
    }
}

// Checks whether pages fit into memory before any page is allocated.

/// Memory available for pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// The node; `None`: the whole machine.
    pub node: Option<NodeId>,
    /// Bytes available without swapping.
    pub available: ByteSize,
    /// Bytes that must stay for the rest of the machine: a twentieth of memory, at least 64 MiB and at most 2 GiB. The
    /// kernel cannot reclaim a pool's pages, so too large a pool wakes the OOM killer instead of returning an error.
    pub margin: ByteSize,
}

impl Headroom {
    /// Reads the available memory of the machine, or of one node.
    pub fn read(root: &Root, node: Option<NodeId>) -> Result<Option<Self>, ReadError> {
        let memory = MemInfo::read(root)?;
        let (Some(available), Some(total)) = (memory.available, memory.total) else {
            return Ok(None);
        };
        let (available, total) = match node {
            None => (available, total),
            Some(node) => match node_memory(root, node)? {
                Some((here, total)) => (here.min(available), total),
                None => return Ok(None),
            },
        };
        Ok(Some(Self { node, available, margin: margin(total) }))
    }

    /// Number of additional pages of `size` that fit.
    pub fn fits(&self, size: PageSize) -> u64 {
        self.available.bytes().saturating_sub(self.margin.bytes()) / size.bytes()
    }

    /// Fails if `bytes` more bytes do not fit; `pages` and `size` are for the message.
    pub fn check(&self, pages: u64, size: PageSize, bytes: u64) -> Result<(), PoolError> {
        let free = self.available.bytes().saturating_sub(self.margin.bytes());
        if bytes <= free {
            return Ok(());
        }
        let place = match self.node {
            None => "the machine".to_string(),
            Some(node) => format!("node {node}"),
        };
        let (available, margin) = (self.available, self.margin);
        let bytes = ByteSize(bytes);
        Err(PoolError::NoHeadroom {
            pages,
            size,
            bytes,
            place,
            available,
            margin,
            fits: self.fits(size),
        })
    }

    /// Bytes that even a forced growth leaves free: a quarter of the margin.
    pub fn floor(&self) -> ByteSize {
        ByteSize(self.margin.bytes() / 4)
    }
}

fn margin(total: ByteSize) -> ByteSize {
    ByteSize((total.bytes() / 20).clamp(64 << 20, 2 << 30))
}

/// Available and total bytes of a node. The kernel estimates MemAvailable only for the whole machine. For a node, the
/// estimate is free memory plus half of the page cache (si_mem_available() subtracts at most half of the page cache as
/// the working set).
fn node_memory(root: &Root, node: NodeId) -> Result<Option<(ByteSize, ByteSize)>, ReadError> {
    let path = format!("{}/node{node}/meminfo", hugetlb::NODES);
    let text = root.read(&path)?;
    let line = |key: &str| {
        let value = text.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found.split_ascii_whitespace().last() == Some(key)).then_some(value)
        });
        value.and_then(root::bytes)
    };
    let file = line("Active(file)").zip(line("Inactive(file)"));
    let file = file.map_or(0, |(active, inactive)| active.saturating_add(inactive) / 2);
    let known = line("MemFree").zip(line("MemTotal"));
    Ok(known.map(|(free, total)| (ByteSize(free.saturating_add(file)), ByteSize(total))))
}

// Growing a pool in steps, while there is progress, and never beyond the machine's spare memory. The caller provides
// the pool through [`Growable`], so that tests can simulate every sequence of events. See docs/decisions/settings.md#2.

/// A growable pool: the kernel's, or a misbehaving fake in tests.
pub(super) trait Growable {
    /// Requests `pages` persistent pages; returns the resulting number.
    fn set(&mut self, pages: u64) -> Result<u64, PoolError>;
    /// Number of pages that the pool can still grow before the machine runs out of memory; `None`
    /// if unknown.
    fn spare(&mut self) -> Option<u64>;
    /// Compacts free memory. Returns false if compaction is impossible.
    fn compact(&mut self) -> bool;
    /// Reports progress; the result tells whether to stop.
    fn report(&mut self, pages: u64, compacting: bool) -> ControlFlow<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    pub got: u64,
    /// Number of attempts: 1 if all pages came at once.
    pub rounds: u32,
    pub compactions: u32,
    pub end: End,
}

/// Why the growth ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Reached,
    /// The machine has no more spare memory.
    NoMemory,
    /// The kernel gave no more pages, twice in a row.
    Stalled,
    /// The caller requested a stop.
    Stopped,
}

/// Maximum number of attempts. A pool that still grows needs no more, and each attempt may cost the kernel seconds of
/// reclaim.
const MAX_ROUNDS: u32 = 16;
/// Maximum number of successive attempts that gain no page. Two, because the first may only have triggered the reclaim
/// and compaction that let the second succeed.
const MAX_STALLED: u32 = 2;

/// Grows from `before` to `target` in steps of at most `step` pages.
pub(super) fn grow_in_steps(
    means: &mut impl Growable,
    before: u64,
    target: u64,
    step: u64,
    compact_first: bool,
    may_compact: bool,
) -> Result<Growth, PoolError> {
    let mut done = Growth { got: before, rounds: 1, compactions: 0, end: End::Reached };
    let mut stalled = 0;
    let mut compact = compact_first && may_compact;
    while done.got < target {
        if compact {
            if means.report(done.got, true).is_break() {
                return Ok(Growth { end: End::Stopped, ..done });
            }
            done.compactions += u32::from(means.compact());
        }
        compact = false;
        let spare = means.spare().unwrap_or(u64::MAX);
        let ask = target.min(done.got.saturating_add(step.min(spare).max(1)));
        if spare == 0 {
            return Ok(Growth { end: End::NoMemory, ..done });
        }
        let got = means.set(ask)?;
        // The pool has fewer pages than before: another process is shrinking it. This is no
        // progress either.
        stalled = if got > done.got { 0 } else { stalled + 1 };
        done.got = got;
        if means.report(got, false).is_break() {
            return Ok(Growth { end: End::Stopped, ..done });
        }
        if got < ask {
            if stalled >= MAX_STALLED || done.rounds >= MAX_ROUNDS {
                return Ok(Growth { end: End::Stalled, ..done });
            }
            done.rounds += 1;
            compact = may_compact;
        }
    }
    Ok(done)
}

// Demotion splits free pages of one pool into pages of a smaller size, without releasing the memory in between (1 GiB
// page -> 512 pages of 2 MiB, in about 3 ms).
//
// Demotion is not a setting: the kernel cannot merge the pieces again, so there is nothing to journal. The caller must
// hold the journal's lock nevertheless, so that no other process resizes the pools meanwhile.

/// Result of a demotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demoted {
    /// The pool whose pages were split.
    pub from: PageSize,
    /// The pool that got the smaller pages.
    pub into: PageSize,
    /// Number of pages to split, as requested.
    pub asked: u64,
    /// Number of pages split.
    pub got: u64,
    /// Number of persistent pages of the smaller size before.
    pub pieces_before: u64,
    /// Number of persistent pages of the smaller size after.
    pub pieces: u64,
}

/// The size of the pieces that a page of `size` is split into.
pub fn demotes_into(status: &Status, size: PageSize) -> Result<PageSize, PoolError> {
    let why = "no smaller pool, or a kernel before 5.16";
    status.pool(size)?.demote_size.ok_or(PoolError::NoDemotion { size, why })
}

/// Splits up to `pages` free, unreserved pages of `size`. Needs root.
pub fn demote(
    root: &Root,
    _lock: &mut Journal,
    size: PageSize,
    node: Option<NodeId>,
    pages: u64,
) -> Result<Demoted, PoolError> {
    let status = Status::read(root)?;
    let into = demotes_into(&status, size)?;
    let before = status.persistent(size, node)?;
    let pieces_before = status.persistent(into, node)?;
    let dir = match node {
        None => hugetlb::DIR.to_string(),
        Some(node) => format!("{}/node{node}/hugepages", hugetlb::NODES),
    };
    let path = root.path(&format!("{dir}/{}/demote", root::dir_of_size(size)));
    let written = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{pages}\n").as_bytes()));
    written.map_err(|source| PoolError::action("demote pages", path, source))?;
    let status = Status::read(root)?;
    let got = before.saturating_sub(status.persistent(size, node)?);
    let pieces = status.persistent(into, node)?;
    Ok(Demoted { from: size, into, asked: pages, got, pieces_before, pieces })
}

#[cfg(test)]
mod headroom_tests {
    use super::*;

    #[test]
    fn keeps_a_margin_and_names_what_fits() {
        assert_eq!(margin(ByteSize::gib(24)), ByteSize(ByteSize::gib(24).bytes() / 20));
        assert_eq!(margin(ByteSize::gib(1000)), ByteSize::gib(2));
        assert_eq!(margin(ByteSize::mib(10)), ByteSize::mib(64));
        let size = PageSize::new(2 << 20).unwrap();
        let headroom =
            Headroom { node: None, available: ByteSize::gib(3), margin: ByteSize::gib(1) };
        assert_eq!(headroom.fits(size), 1024);
        assert!(headroom.check(1024, size, 2 << 30).is_ok());
        let error = headroom.check(1025, size, (2 << 30) + (2 << 20)).unwrap_err().to_string();
        assert!(error.contains("at most 1024 more fit"), "{error}");
        let empty = Headroom { node: None, available: ByteSize(0), margin: ByteSize::gib(1) };
        assert_eq!(empty.fits(size), 0);
    }
}

#[cfg(test)]
mod grow_tests {
    use super::*;
    use proptest::prelude::*;

    /// A pool that grows by up to `gives[n]` pages at the n-th write, and by a fixed number of pages per compaction.
    struct Fake {
        has: u64,
        gives: Vec<u64>,
        writes: usize,
        left: u64,
        compactions: u32,
        stop_after: usize,
    }

    impl Growable for Fake {
        fn set(&mut self, pages: u64) -> Result<u64, PoolError> {
            let give = self.gives.get(self.writes).copied().unwrap_or(0);
            self.writes += 1;
            let more = pages.saturating_sub(self.has).min(give).min(self.left);
            self.has += more;
            self.left -= more;
            Ok(self.has)
        }
        fn spare(&mut self) -> Option<u64> {
            Some(self.left)
        }
        fn compact(&mut self) -> bool {
            self.compactions += 1;
            true
        }
        fn report(&mut self, _: u64, _: bool) -> ControlFlow<()> {
            if self.writes >= self.stop_after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }

    fn fake(gives: &[u64]) -> Fake {
        let gives = gives.to_vec();
        Fake { has: 0, gives, writes: 0, left: 1 << 40, compactions: 0, stop_after: usize::MAX }
    }

    #[test]
    fn all_at_once_is_one_round_without_compaction() {
        let mut pool = fake(&[512]);
        let done = grow_in_steps(&mut pool, 0, 512, 512, false, true).unwrap();
        assert_eq!(done, Growth { got: 512, rounds: 1, compactions: 0, end: End::Reached });
    }

    #[test]
    fn goes_on_while_it_makes_progress_and_compacts_between() {
        let mut pool = fake(&[100, 0, 50, 0, 0, 999]);
        let done = grow_in_steps(&mut pool, 0, 512, 512, false, true).unwrap();
        assert_eq!((done.got, done.end, done.rounds), (150, End::Stalled, 5));
        assert_eq!(pool.compactions, 4);
        let mut pool = fake(&[100, 0, 50, 0, 0]);
        grow_in_steps(&mut pool, 0, 512, 512, true, false).unwrap();
        assert_eq!(pool.compactions, 0);
    }

    #[test]
    fn stops_when_told_and_when_memory_is_out() {
        let mut pool = Fake { stop_after: 3, ..fake(&[10; 100]) };
        let done = grow_in_steps(&mut pool, 0, 512, 10, false, false).unwrap();
        assert_eq!((done.got, done.end), (30, End::Stopped));
        let mut pool = Fake { left: 25, ..fake(&[10; 100]) };
        let done = grow_in_steps(&mut pool, 0, 512, 10, false, false).unwrap();
        assert_eq!((done.got, done.end), (25, End::NoMemory));
    }

    proptest! {
        #[test]
        fn always_ends_and_never_claims_more_than_there_is(
            gives in proptest::collection::vec(0u64..100, 0..60),
            left in 0u64..3000, target in 0u64..3000, step in 0u64..700,
        ) {
            let mut pool = Fake { left, ..fake(&gives) };
            let done = grow_in_steps(&mut pool, 0, target, step, true, true).unwrap();
            prop_assert_eq!(done.got, pool.has);
            prop_assert!(done.got <= target.min(left));
            prop_assert_eq!(done.end == End::Reached, done.got == target);
            prop_assert!(done.rounds <= MAX_ROUNDS);
        }
    }
}
