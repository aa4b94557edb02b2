//! Computes bounds of the peak of a process tree, from ticks and looks. Pure.
//!
//! `/proc/PID/status` counts a page for each process that maps it. For the *lower bound*, a process adds the memory
//! that it cannot have inherited by its fork. For the *upper bound*, it adds all of its memory; if it was forked, only
//! the memory that it allocated or faulted since, because copying a page is a fault. A look counts each page once, and
//! improves the bounds of earlier and later ticks too.
//!
//! A *span* is the time between two ticks. Processes present in a span may have held their memory at the same time,
//! each up to its high-water mark if that rose. For a process that ended, the kernel reports the mark (taskstats), if
//! permitted. Otherwise a process whose size was steady is assumed to have ended at that size. A process that was not
//! steady, or was never seen, may have held as much as the largest of all processes. See docs/decisions/watch.md#1.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use host::process::Resident;
use units::{ByteSize, Pid};

/// Maximum ratio of the bounds for which their middle is within 5 % of the truth.
const MAX_RATIO: f64 = 1.1;
/// Maximum error of the kernel's counters, in bytes.
const IMPRECISE: u64 = 1 << 20;
/// Maximum number of spans whose bounds a later look may still improve.
const MAX_OPEN: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub pid: Pid,
    pub parent: Option<Pid>,
    pub anon: u64,
    pub file: u64,
    pub shmem: u64,
    /// Bytes on pages of a hugetlb pool.
    pub pool: u64,
    /// High-water mark in bytes, without the pool.
    pub high_water: u64,
    /// Address of the stack, which identifies the executed program; `None` if not read.
    pub image: Option<u64>,
    /// Number of faults; `None` if not read.
    pub faults: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// Maximum number of processes that were both born and ended in the span.
    pub unseen: u64,
    /// Processes or threads that ended: process, and maximum memory in bytes.
    pub known: Vec<(Pid, u64)>,
    /// Whether so much time has passed since the last tick that a process may have reached its peak and ended.
    pub is_long: bool,
    /// Known lifetimes of processes; the memory of processes that ran one after the other does not add up.
    pub lives: BTreeMap<Pid, Life>,
}

/// The period in which a process executed its program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Start; zero if unknown.
    pub began: Duration,
    /// End; [`Duration::MAX`] if unknown, or still running.
    pub ended: Duration,
}

impl Default for Life {
    fn default() -> Self {
        Self { began: Duration::ZERO, ended: Duration::MAX }
    }
}

/// Lower and upper bound in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub at_least: u64,
    pub at_most: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    part: Part,
    high_water_ever: u64,
    image: Option<u64>,
    faults: Option<u64>,
    /// Upper bound of the anonymous bytes inherited by its fork.
    inherited: u64,
    /// Upper bound of the bytes that no other process counts.
    own: u64,
    /// Whether the process had the same size at two ticks.
    is_steady: bool,
}

/// Contribution of a process to a span.
#[derive(Clone, Copy, Debug)]
struct Share {
    pid: Pid,
    held: u64,
    own: u64,
}

/// A span whose upper bound a later look may lower.
#[derive(Debug)]
struct Open {
    shares: Vec<Share>,
    at_most: u64,
    unknown: u64,
}

#[derive(Debug)]
struct Look {
    counted: u64,
    held: BTreeMap<Pid, HeldAtLook>,
}

/// Memory of a process at a look. The process may grow or shrink meanwhile, so it is read at the tick before and again
/// after.
#[derive(Debug)]
struct HeldAtLook {
    /// The smaller of the two readings, in bytes.
    at_least: u64,
    /// The larger of the two readings, in bytes.
    at_most: u64,
    /// The larger of the two readings of anonymous memory, in bytes.
    anon_at_most: u64,
    /// Number of faults before the look.
    faults: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Bounds {
    page: u64,
    known: BTreeMap<Pid, Known>,
    /// Known maxima of processes whose end no tick has observed yet.
    ended: BTreeMap<Pid, u64>,
    look: Option<Look>,
    open: Vec<Open>,
    at_least: u64,
    /// Upper bounds in bytes, keyed by the number of further processes of unknown size.
    at_most: BTreeMap<u64, u64>,
    unseen: u64,
    /// Whether any process was seen.
    has_seen: bool,
    /// The only process until now; `None`: several, or none.
    only: Option<Pid>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peak {
    pub at_least: u64,
    /// Upper bounds in bytes, keyed by the number of further processes of unknown size.
    pub at_most: BTreeMap<u64, u64>,
    /// Number of processes that ended between two ticks and were never seen, or never seen steady.
    pub unseen: u64,
    /// Whether there was only one process. Its own high-water mark is then the peak, without pages of a pool.
    pub is_of_one: bool,
}

impl Part {
    /// Reads memory from `/proc/PID/status`; leaves parent and faults unknown.
    pub(super) fn new(pid: Pid, status: &Resident) -> Self {
        let bytes = |part: Option<ByteSize>| part.map_or(0, ByteSize::bytes);
        Self {
            pid,
            parent: None,
            anon: bytes(status.anon.or(status.rss)),
            file: bytes(status.file),
            shmem: bytes(status.shmem),
            pool: bytes(status.hugetlb),
            high_water: bytes(status.peak_rss),
            image: None,
            faults: None,
        }
    }

    fn held(&self) -> u64 {
        self.anon + self.file + self.shmem + self.pool
    }

    fn peak(&self) -> u64 {
        (self.high_water + self.pool).max(self.held())
    }
}

impl Range {
    /// Returns whether the middle of the bounds is within 5 % of the truth.
    pub(super) fn is_near(self) -> bool {
        self.at_most as f64 <= MAX_RATIO * self.at_least as f64
    }

    /// Returns the middle of the bounds in bytes, if it is within 5 % of the truth.
    pub(super) fn middle(self) -> Option<u64> {
        self.is_near().then(|| self.at_least + self.at_most.saturating_sub(self.at_least) / 2)
    }
}

impl Peak {
    /// Returns the upper bound in bytes if no process held more than `largest`; `None` if `largest` is needed and
    /// unknown.
    pub(super) fn at_most(&self, largest: Option<u64>) -> Option<u64> {
        let bound = |(unknown, known): (&u64, &u64)| match (*unknown, largest) {
            (0, _) => Some(*known),
            (unknown, Some(largest)) => Some(known.saturating_add(unknown.saturating_mul(largest))),
            (_, None) => None,
        };
        let bounds: Option<Vec<u64>> = self.at_most.iter().map(bound).collect();
        bounds?.into_iter().max()
    }
}

impl Bounds {
    pub(super) fn new(page: u64) -> Self {
        Self {
            page,
            known: BTreeMap::new(),
            ended: BTreeMap::new(),
            look: None,
            open: Vec::new(),
            at_least: 0,
            at_most: BTreeMap::new(),
            unseen: 0,
            has_seen: false,
            only: None,
        }
    }

    /// Returns whether the next tick should read the executed program and the faults.
    pub(super) fn wants_stat(&self, pid: Pid) -> bool {
        let Some(known) = self.known.get(&pid) else { return true };
        let shares = |look: &Look| {
            let held: u64 = look.held.values().map(|it| it.at_most).sum();
            held > look.counted + look.counted / 20
        };
        let is_large = known.part.held() > self.at_least / 50;
        is_large && (known.own < known.part.held() || self.look.as_ref().is_some_and(shares))
    }

    /// Adds a tick; `parts` has parents before children.
    pub(super) fn tick(&mut self, parts: &[Part], ends: &Ends) -> Range {
        let is_first = !self.has_seen;
        self.has_seen |= !parts.is_empty();
        let others =
            parts.iter().map(|part| part.pid).chain(ends.known.iter().map(|(pid, _)| *pid));
        match others.clone().next().filter(|_| is_first) {
            Some(first) => {
                self.only = Some(first).filter(|first| others.clone().all(|pid| pid == *first))
            }
            None => self.only = self.only.filter(|only| others.clone().all(|pid| pid == *only)),
        }
        if !self.has_seen && ends.unseen == 0 && ends.known.is_empty() {
            return self.range(parts); // the first process has not begun, or has already ended: nothing is known
        }
        let mut before = std::mem::take(&mut self.known);
        let mut shares = Vec::with_capacity(parts.len());
        for part in parts {
            let known = before.get(&part.pid).copied();
            let now = match known {
                Some(known) if !known.has_executed(part) => known.after(part, self.page),
                None if !is_first => self.first_seen(part, &before),
                // The first process was executed too.
                _ => Known::new(part, 0, part.held()),
            };
            shares.push(now.share(known.as_ref(), ends.is_long));
            self.known.insert(part.pid, now);
            self.at_least = self.at_least.max(part.peak());
        }
        before.retain(|pid, _| !self.known.contains_key(pid));
        self.end_span(shares, before.values(), ends);
        let range = self.range(parts);
        self.at_least = self.at_least.max(range.at_least);
        range
    }

    /// Raises the lower bound: the tree held `held` bytes at one time.
    pub(super) fn saw(&mut self, held: u64) {
        self.at_least = self.at_least.max(held);
    }

    /// Returns the bytes of all processes but one at the last tick; a page counts for each process that maps it.
    pub(super) fn held_by_others(&self, pid: Pid) -> u64 {
        let others = self.known.values().filter(|known| known.part.pid != pid);
        others.map(|known| known.part.held()).sum()
    }

    /// Adds a look: the bytes counted after a tick, and the processes' memory after the look, which may be late or
    /// slow.
    pub(super) fn look(&mut self, counted: u64, after: &[Part]) {
        let held = |(pid, known): (&Pid, &Known)| {
            let before = &known.part;
            let now = after.iter().find(|part| part.pid == *pid).unwrap_or(before);
            let held = HeldAtLook {
                at_least: before.held().min(now.held()),
                at_most: before.held().max(now.held()),
                anon_at_most: before.anon.max(now.anon),
                faults: known.faults,
            };
            (*pid, held)
        };
        let held = self.known.iter().map(held).collect();
        let look = Look { counted, held };
        for mut span in std::mem::take(&mut self.open) {
            span.at_most = span.at_most.min(look.counted + look.more_before(&span.shares));
            self.close(span);
        }
        self.look = Some(look);
        self.at_least = self.at_least.max(counted);
    }

    /// Ends the computation: all processes have ended since the last tick.
    pub(super) fn end(mut self, ends: &Ends) -> Peak {
        let known = std::mem::take(&mut self.known);
        self.end_span(Vec::new(), known.values(), ends);
        for span in std::mem::take(&mut self.open) {
            self.close(span);
        }
        let is_of_one =
            self.only.is_some_and(|only| ends.known.iter().all(|(pid, _)| *pid == only));
        Peak { at_least: self.at_least, at_most: self.at_most, unseen: self.unseen, is_of_one }
    }

    fn first_seen(&self, part: &Part, before: &BTreeMap<Pid, Known>) -> Known {
        let parent = part.parent.and_then(|pid| self.known.get(&pid));
        let images = parent.and_then(|parent| parent.image).zip(part.image);
        match (parent, images) {
            (Some(parent), Some((of_parent, own))) if of_parent == own => {
                let most = parent.high_water_ever.min(part.high_water);
                let inherited = most.saturating_sub(part.file.min(parent.part.file));
                Known::new(part, inherited, own_of_forked(part, parent, before, self.page))
            }
            (Some(_), Some(_)) => Known::new(part, 0, part.held()),
            _ => Known::new(part, part.high_water, part.held()),
        }
    }

    fn end_span<'a>(
        &mut self,
        mut shares: Vec<Share>,
        gone: impl Iterator<Item = &'a Known>,
        ends: &Ends,
    ) {
        for (pid, high_water) in &ends.known {
            let most = self.ended.entry(*pid).or_default();
            *most = (*most).max(*high_water);
            self.at_least = self.at_least.max(*high_water);
        }
        let mut unknown = ends.unseen;
        for known in gone {
            let share = Share { pid: known.part.pid, held: known.part.held(), own: known.own };
            match self.ended.remove(&share.pid).filter(|_| known.part.pool == 0) {
                Some(most) => {
                    let more = most.saturating_sub(known.part.high_water.max(share.held));
                    let held = share.held.max(most);
                    shares.push(Share { held, own: share.own + more, ..share });
                }
                None if known.is_steady && !ends.is_long => shares.push(share),
                None => unknown += 1,
            }
        }
        let known = &self.known;
        self.ended.retain(|pid, most| {
            let lives = known.contains_key(pid);
            if !lives {
                shares.push(Share { pid: *pid, held: *most, own: *most });
            }
            lives
        });
        self.unseen += unknown;
        // If no process was seen, the first one existed nevertheless. It is not added to `unseen`, because
        // the last processes are expected to end after the last tick.
        unknown += u64::from(!self.has_seen && shares.is_empty());
        let sum = most_at_once(&shares, &ends.lives);
        let counted = self.look.as_ref().map(|look| self.more_since(look, &shares));
        let at_most = counted.map_or(sum, |counted| sum.min(counted));
        self.open.push(Open { shares, at_most, unknown });
        if self.open.len() > MAX_OPEN {
            let oldest = self.open.remove(0);
            self.close(oldest);
        }
    }

    fn close(&mut self, span: Open) {
        let most = self.at_most.entry(span.unknown).or_default();
        *most = (*most).max(span.at_most);
    }

    /// Returns the bytes counted at the last look plus all bytes added since.
    fn more_since(&self, look: &Look, shares: &[Share]) -> u64 {
        let held: u64 = look.held.values().map(|it| it.at_most).sum();
        let mut copied = 0u64;
        let mut sum = look.counted;
        for share in shares {
            let Some(then) = look.held.get(&share.pid) else {
                sum += share.own;
                continue;
            };
            sum += share.held.saturating_sub(then.at_least);
            let now = self.known.get(&share.pid).and_then(|known| known.faults);
            let faults = now.zip(then.faults).map(|(now, then)| now.saturating_sub(then));
            copied += faults.map_or(0, |faults| faults * self.page);
        }
        sum + copied.min(held.saturating_sub(look.counted))
    }

    fn range(&self, parts: &[Part]) -> Range {
        let mut at_most = 0;
        let (mut own, mut shmem, mut file, mut pool) = (0, 0, 0, 0);
        for part in parts {
            let known = &self.known[&part.pid];
            at_most += known.own;
            own += part.anon.saturating_sub(known.inherited);
            shmem = shmem.max(part.shmem);
            file = file.max(part.file);
            pool = pool.max(part.pool);
        }
        let largest = parts.iter().map(Part::held).max().unwrap_or(0);
        let mut at_least = largest.max(own + shmem + file + pool);
        if let Some(look) = &self.look {
            let share = |part: &Part| {
                let own = self.known[&part.pid].own;
                Share { pid: part.pid, held: part.held(), own }
            };
            let shares: Vec<Share> = parts.iter().map(share).collect();
            at_most = at_most.min(self.more_since(look, &shares));
            at_least = at_least.max(self.left_of(look, parts));
        }
        Range { at_least, at_most: at_most.max(at_least) }
    }

    /// Returns the minimum that remains of the bytes counted at the last look, plus new anonymous memory.
    fn left_of(&self, look: &Look, parts: &[Part]) -> u64 {
        let mut come = 0u64;
        let mut gone: u64 = look.held.values().map(|it| it.at_most).sum();
        for part in parts {
            match look.held.get(&part.pid) {
                Some(then) => {
                    come += part.anon.saturating_sub(then.anon_at_most);
                    gone -= then.at_most.min(part.held());
                }
                None => come += part.anon.saturating_sub(self.known[&part.pid].inherited),
            }
        }
        look.counted.saturating_sub(gone) + come
    }
}

impl Look {
    /// Returns the additional bytes in an earlier span: memory released since, and memory of ended processes.
    fn more_before(&self, shares: &[Share]) -> u64 {
        let more = |share: &Share| match self.held.get(&share.pid) {
            Some(then) => share.held.saturating_sub(then.at_least),
            None => share.own,
        };
        shares.iter().map(more).sum()
    }
}

impl Known {
    fn new(part: &Part, inherited: u64, own: u64) -> Self {
        Self {
            part: *part,
            high_water_ever: part.high_water,
            image: part.image,
            faults: part.faults,
            inherited,
            own,
            is_steady: false,
        }
    }

    /// Returns whether the process executes another program than at the last tick.
    fn has_executed(&self, part: &Part) -> bool {
        let is_other = self.image.zip(part.image).is_some_and(|(before, now)| before != now);
        is_other || part.high_water + IMPRECISE < self.part.high_water
    }

    fn after(&self, part: &Part, page: u64) -> Self {
        let before = &self.part;
        let came = part.anon.saturating_sub(before.anon)
            + part.file.saturating_sub(before.file)
            + part.shmem.saturating_sub(before.shmem)
            + part.pool.saturating_sub(before.pool);
        let own = if self.own >= before.held() {
            part.held()
        } else {
            match (self.faults, part.faults) {
                (Some(then), Some(now)) => self.own + came + now.saturating_sub(then) * page,
                _ => part.held(),
            }
        };
        let is_as_before = |then: u64, now: u64| now.abs_diff(then) <= now / 100 + IMPRECISE / 4;
        Self {
            part: *part,
            high_water_ever: self.high_water_ever.max(part.high_water),
            image: part.image.or(self.image),
            faults: part.faults.or(self.faults),
            inherited: self.inherited.min(part.high_water),
            own: own.min(part.held()),
            is_steady: is_as_before(before.held(), part.held())
                && is_as_before(before.high_water, part.high_water),
        }
    }

    fn share(&self, before: Option<&Known>, is_long: bool) -> Share {
        let now = self.part.held();
        let (then, own_then, mark) =
            before.map_or((0, 0, 0), |it| (it.part.held(), it.own, it.part.high_water));
        let ends = now.max(then);
        let rose = self.part.high_water > mark.max(self.part.held() - self.part.pool);
        // A new fork's high-water mark includes the inherited memory.
        let is_new_fork = before.is_none() && self.inherited > 0;
        let held = match (rose && !is_new_fork) || is_long {
            true => ends.max(self.part.peak()),
            false => ends,
        };
        Share { pid: self.part.pid, held, own: self.own.max(own_then) + (held - ends) }
    }
}

/// Returns the maximum bytes of a span's processes at one time. The maximum is reached when a process begins.
fn most_at_once(shares: &[Share], lives: &BTreeMap<Pid, Life>) -> u64 {
    let life = |share: &Share| lives.get(&share.pid).copied().unwrap_or_default();
    let at = |moment: Duration| {
        let is_there = |share: &&Share| {
            let life = life(share);
            life.began <= moment && moment < life.ended
        };
        shares.iter().filter(is_there).map(|share| share.own).sum::<u64>()
    };
    let mut moments: Vec<Duration> = shares.iter().map(|share| life(share).began).collect();
    moments.sort_unstable();
    moments.dedup();
    moments.into_iter().map(at).max().unwrap_or(0)
}

/// Returns the own bytes of a process forked since the last tick: its excess over its parent, plus one page for each of
/// its faults.
fn own_of_forked(part: &Part, parent: &Known, before: &BTreeMap<Pid, Known>, page: u64) -> u64 {
    let Some(faults) = part.faults.filter(|_| part.pool == 0) else { return part.held() };
    let then = before.get(&parent.part.pid).map_or(0, |then| then.part.anon);
    let more = part.anon.saturating_sub(then.min(parent.part.anon))
        + part.file.saturating_sub(parent.part.file)
        + part.shmem.saturating_sub(parent.part.shmem);
    part.held().min(more + faults * page)
}
