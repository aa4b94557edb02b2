//! The processes of a watched run, and their `/proc/PID/status`, kept open.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use host::process::{KeptLoad, KeptStatus, Resident, Stat};
use host::{ReadError, Root, process};
use sys::exits::Exits;
use units::Pid;

use super::bounds::Ends;
use super::observed::Killed;
use crate::process_tree::ProcessTree;

/// Files kept open at most: a launcher may have 1024 descriptors, and passes none on.
const MAX_FILES: usize = 128;
/// A process that has memory of its own took this many faults, at least.
const MIN_FAULTS: u64 = 8;
/// Births looked at for processes that left the tree.
const MAX_ORPHANS: u64 = 64;
/// Births believed where pids began again from the lowest.
const WRAPPED: u64 = 1 << 15;

pub(super) struct Members {
    root: Root,
    tree: ProcessTree,
    pids: Vec<Pid>,
    /// Of all that were there when `pids` was read, those that ended and were not waited for too.
    stats: BTreeMap<Pid, Stat>,
    files: BTreeMap<Pid, KeptStatus>,
    load: Option<KeptLoad>,
    /// The newest pid on the machine when `pids` was read: while it stays, nobody was born.
    newest: Option<Pid>,
    /// Whether `stats` are of now.
    is_fresh: bool,
    /// Those that had ended when `pids` was read.
    gone: Vec<Pid>,
    /// Processes that may be of the tree and cannot be told from others.
    lost: u64,
    /// Our process group.
    group: Option<Pid>,
    /// Whether orphans there may be of others than the tree: a shell that is the first process of a container has other
    /// children in its group.
    is_group_shared: bool,
    /// Who becomes the parent of orphans: the first process, and a manager of services that we are below.
    reapers: BTreeSet<Pid>,
    exits: Option<Exits>,
    /// Those that a signal killed, as the kernel told.
    killed: Vec<Killed>,
}

impl Members {
    /// Of a tree whose births are counted from now on.
    pub(super) fn new(root: Root, tree: ProcessTree) -> Self {
        let load = KeptLoad::open(&root).ok();
        let stats = BTreeMap::new();
        let own = process::stat(&root, sys::param::own_pid()).ok();
        let reapers = reapers(&root, own.as_ref());
        let is_group_shared = own
            .as_ref()
            .is_some_and(|own| own.group != sys::param::own_pid() && reapers.contains(&own.parent));
        let group = own.map(|own| own.group);
        let files = BTreeMap::new();
        Self {
            root,
            tree,
            pids: Vec::new(),
            stats,
            files,
            load,
            newest: None,
            is_fresh: false,
            gone: Vec::new(),
            lost: 0,
            group,
            is_group_shared,
            reapers,
            exits: None,
            killed: Vec::new(),
        }
    }

    /// From now on the kernel is asked what processes held that ended, if it may be.
    pub(super) fn listen(&mut self) {
        // Elsewhere it has other numbers for them.
        let is_first = process::is_in_first_namespace(&self.root);
        let cpus = self.root.read("/sys/devices/system/cpu/possible").ok().filter(|_| is_first);
        self.exits = cpus.and_then(|cpus| Exits::listen(cpus.trim()).ok());
    }

    pub(super) fn pids(&self) -> &[Pid] {
        &self.pids
    }

    /// How many may be of the tree and were not counted.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Those that a signal killed; `None` if the kernel does not tell, or told of more than we keep.
    pub(super) fn killed(&mut self) -> Option<Vec<Killed>> {
        self.exits.is_some().then(|| std::mem::take(&mut self.killed))
    }

    /// As it was when they were found.
    pub(super) fn parent(&self, pid: Pid) -> Option<Pid> {
        self.stats.get(&pid).map(|stat| stat.parent)
    }

    /// As it is, if that was read already, or is `wanted`.
    pub(super) fn stat(&self, pid: Pid, wanted: bool) -> Option<Stat> {
        match self.is_fresh {
            true => self.stats.get(&pid).cloned(),
            false if wanted => process::stat(&self.root, pid).ok(),
            false => None,
        }
    }

    /// Finds them anew only if a process was born anywhere since: that costs a read per process on kernels
    /// without CONFIG_PROC_CHILDREN. Returns how many may have been born and ended since, unseen.
    pub(super) fn renew(&mut self) -> u64 {
        let newest = self.load.as_mut().and_then(|load| load.newest_pid().ok());
        self.is_fresh = newest.is_none() || newest != self.newest;
        if !self.is_fresh {
            return 0;
        }
        let mut found: BTreeMap<Pid, Stat> = self.found().into_iter().collect();
        let born = match (self.newest, newest) {
            (Some(before), Some(now)) if now >= before => (now.0 - before.0) as u64,
            // Before the first time, all since the first of them.
            (None, Some(now)) => match found.keys().min() {
                Some(first) if *first <= now => (now.0 - first.0) as u64 + 1,
                _ => WRAPPED,
            },
            _ => WRAPPED,
        };
        if let Some(newest) = newest.filter(|_| born <= MAX_ORPHANS) {
            self.adopt(&mut found, newest.0 - born as i32 + 1..=newest.0);
        }
        let unseen = unseen(&self.stats, &found, born);
        self.files.retain(|pid, _| self.pids.contains(pid));
        self.gone = self.stats.keys().filter(|pid| !found.contains_key(pid)).copied().collect();
        (self.stats, self.newest) = (found, newest);
        unseen
    }

    /// Adds those of these pids that left the tree before they were seen in it: their parents ended, and they
    /// are in our group still, or in a session of the tree's.
    fn adopt(&mut self, found: &mut BTreeMap<Pid, Stat>, born: RangeInclusive<i32>) {
        for pid in born.map(Pid).filter(|pid| !found.contains_key(pid)).collect::<Vec<_>>() {
            let Ok(stat) = process::stat(&self.root, pid) else { continue };
            if !self.reapers.contains(&stat.parent) || !self.is_process(pid) {
                continue;
            }
            let is_in_group = Some(stat.group) == self.group;
            let is_ours = found.contains_key(&stat.session)
                || self.stats.contains_key(&stat.session)
                || is_in_group && !self.is_group_shared && !self.has_others_in_group(found);
            if !is_ours {
                // A daemon, of this tree or of the machine's; or an orphan in a group whose others look the same.
                self.lost += u64::from(stat.session == pid || is_in_group);
                continue;
            }
            for (pid, stat) in process::tree_with_stat(&self.root, pid) {
                if !stat.is_dead() && !found.contains_key(&pid) {
                    self.pids.push(pid);
                }
                found.insert(pid, stat);
            }
        }
    }

    /// Whether our group has processes that are neither ours nor above us, such as other jobs of a script: an orphan may be
    /// theirs.
    fn has_others_in_group(&self, found: &BTreeMap<Pid, Stat>) -> bool {
        let own = sys::param::own_pid();
        if self.group == Some(own) {
            return false;
        }
        let own_parent = process::stat(&self.root, own).ok().map(|stat| stat.parent);
        let above = from_upwards(&self.root, own_parent).map(|(pid, _)| pid);
        let above: BTreeSet<Pid> = above.chain([own]).collect();
        let names = self.root.list("/proc").unwrap_or_default();
        names.iter().filter_map(|name| name.parse().ok().map(Pid)).any(|pid| {
            let is_known =
                above.contains(&pid) || found.contains_key(&pid) || self.stats.contains_key(&pid);
            let stat = if is_known { None } else { process::stat(&self.root, pid).ok() };
            stat.is_some_and(|stat| {
                Some(stat.group) == self.group && !self.reapers.contains(&stat.parent)
            })
        })
    }

    /// Whether it is no thread of another.
    fn is_process(&self, pid: Pid) -> bool {
        let status = self.root.read(&format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains(&format!("\nTgid:\t{pid}\n")))
    }

    /// Whether the kernel tells of those that end.
    pub(super) fn hears_ends(&self) -> bool {
        self.exits.is_some()
    }

    /// Whether a tick found this process.
    pub(super) fn was_seen(&self, pid: Pid) -> bool {
        self.stats.contains_key(&pid) || self.gone.contains(&pid)
    }

    /// Whether a process of the tree may have that number. A process of another namespace knows itself by another, small number.
    pub(super) fn may_be(&self, pid: Pid) -> bool {
        self.stats.keys().min().is_some_and(|first| *first <= pid)
    }

    /// What the kernel told of those that ended since it was asked last, after `unseen` were born and ended.
    pub(super) fn ends(&mut self, unseen: u64, is_long: bool) -> Ends {
        let told = self.exits.as_ref().map(Exits::ended);
        if matches!(told, Some(Err(_))) {
            self.exits = None; // too many for us
        }
        let Some(Ok(told)) = told else { return Ends { unseen, is_long, ..Ends::default() } };
        let mut tree: BTreeSet<Pid> = self.stats.keys().chain(&self.gone).copied().collect();
        // Children end before their parents, mostly.
        let mut known = Vec::new();
        for ended in told.iter().rev() {
            if tree.contains(&ended.process) || tree.contains(&ended.parent) {
                tree.insert(ended.process);
                known.push((ended.process, ended.high_water.bytes()));
                if let Some(signal) = ended.signal {
                    self.killed.push(Killed { pid: ended.process, signal });
                }
            }
        }
        Ends { known, is_long, ..Ends::default() }
    }

    /// The tree, and those that left it when their parents ended.
    fn found(&mut self) -> Vec<(Pid, Stat)> {
        let mut found = self.tree.processes();
        let mut seen: BTreeSet<Pid> = found.iter().map(|(pid, _)| *pid).collect();
        for pid in std::mem::take(&mut self.pids) {
            if seen.contains(&pid) {
                continue;
            }
            let before = self.stats.get(&pid).map(|stat| stat.start_ticks);
            let tree = process::tree_with_stat(&self.root, pid);
            if tree.first().is_some_and(|(_, stat)| Some(stat.start_ticks) == before) {
                // Below it may be what was found already: trees change while they are read.
                found.extend(tree.into_iter().filter(|(pid, _)| seen.insert(*pid)));
            }
        }
        let live = found.iter().filter(|(_, stat)| !stat.is_dead());
        self.pids = live.map(|(pid, _)| *pid).collect();
        found
    }

    pub(super) fn status(&mut self, pid: Pid) -> Result<Resident, ReadError> {
        if let Some(file) = self.files.get_mut(&pid) {
            let status = file.read();
            if status.as_ref().is_err_and(ReadError::is_gone) {
                self.files.remove(&pid);
            }
            return status;
        }
        let mut file = KeptStatus::open(&self.root, pid)?;
        let status = file.read();
        if self.files.len() < MAX_FILES {
            self.files.insert(pid, file);
        }
        status
    }

    /// Faults without I/O that they took; `None` if one is gone.
    pub(super) fn minor_faults(&self) -> Option<u64> {
        self.pids.iter().map(|pid| self.stat(*pid, true).map(|stat| stat.minor_faults)).sum()
    }
}

/// The first process, and ancestors of ours that manage services: what they start has orphans brought to them.
fn reapers(root: &Root, own: Option<&Stat>) -> BTreeSet<Pid> {
    let above = from_upwards(root, own.map(|own| own.parent));
    let managers = above.filter(|(_, stat)| stat.name == "systemd").map(|(pid, _)| pid);
    managers.chain([Pid(1)]).collect()
}

/// A process, its parent and so on, without the first.
fn from_upwards(root: &Root, pid: Option<Pid>) -> impl Iterator<Item = (Pid, Stat)> {
    let read =
        |pid: Pid| (pid.0 > 1).then(|| Some((pid, process::stat(root, pid).ok()?))).flatten();
    std::iter::successors(pid.and_then(read), move |(_, stat)| read(stat.parent))
}

/// How many of the `born`, all births on the machine, may be processes of this tree that have ended as well. A
/// parent that waited for one has its faults, and those of the ones that were seen are known.
fn unseen(before: &BTreeMap<Pid, Stat>, now: &BTreeMap<Pid, Stat>, born: u64) -> u64 {
    let mut others = born;
    let mut faults = 0u64;
    for (pid, stat) in now {
        let known = before.get(pid).filter(|known| known.start_ticks == stat.start_ticks);
        let threads = known.map_or(0, |known| known.threads);
        others = others.saturating_sub(stat.threads.saturating_sub(threads));
        let waited = known.map_or(0, |known| known.children_minor_faults);
        faults += stat.children_minor_faults.saturating_sub(waited);
    }
    let gone = before.iter().filter(|(pid, _)| !now.contains_key(pid));
    let known: u64 = gone.map(|(_, stat)| stat.minor_faults + stat.children_minor_faults).sum();
    others.min(faults.saturating_sub(known) / MIN_FAULTS)
}

// When a watch within budget looks: pure, from what its ticks found.
//
// One look at the end of a plateau says more than many before it. So a look is made where the program has
// stopped growing; while it grows, only what [`GROWING`] allows is spent, for programs that never stop.
// See docs/decisions/watch.md#4.

/// Share of one CPU's time that ticks and looks may take together, where the program has one CPU or many.
/// See docs/decisions/watch.md#3.
pub const BUDGET: f64 = 0.008;
/// What a program of a few tenths of a second may cost beyond that, so that it is seen at all.
pub(super) const CREDIT: Duration = Duration::from_millis(3);
/// Between ticks, at least; in the first half second an eighth of the time passed.
const PAUSE: Duration = Duration::from_millis(25);
const MIN_PAUSE: Duration = Duration::from_millis(1);
const EARLY: Duration = Duration::from_millis(500);
/// Where the resident size is within this share of what it was a tick ago, it has stopped growing.
const STEADY: f64 = 0.01;
/// The share of the budget that looks at a growing program may take.
const GROWING: f64 = 0.6;
/// While the program grows, memory grown by this factor and by these bytes since the last look is worth another.
const GROWN: f64 = 1.2;
const GROWN_BYTES: u64 = 8 << 20;
/// A look is old after this part of the time that passed, but not sooner than this.
const OLD: u32 = 16;
const OLD_AT_LEAST: Duration = Duration::from_millis(15);
/// The share of it that others leave to the first look at a level well above the last.
const NOT_MUCH_HIGHER: f64 = 0.75;
const AGAIN: f64 = 0.9;

/// What ticks and looks found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Since the program was started.
    pub elapsed: Duration,
    /// Bytes it holds.
    pub held: u64,
    /// How long it has held about as much.
    pub level_for: Duration,
    /// When the last look was, since the program was started, and what it held then.
    pub looked: Option<(Duration, u64)>,
    /// What looks took and [`charged`] for ticks, and the part of it that was looks at a growing program.
    pub spent: Duration,
    pub spent_growing: Duration,
}

/// Why one would look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reason {
    /// It has stopped growing, well above the last look or a little.
    MuchHigher,
    Higher,
    /// It is still growing.
    Growing,
    /// What lies where may change while the size stays.
    Old,
}

impl Facts {
    /// Why to look, if a look is affordable.
    pub(super) fn reason(&self) -> Option<Reason> {
        if self.held == 0 {
            return None;
        }
        let (at, before) = self.looked.unwrap_or_default();
        let is_above = |ratio: f64| self.held as f64 > before as f64 * ratio + f64::from(1 << 20);
        let is_level = !self.level_for.is_zero();
        match self.looked {
            None if is_level => Some(Reason::MuchHigher),
            Some(_) if is_level && is_above(1.25) => Some(Reason::MuchHigher),
            Some(_) if is_level && is_above(1.02) => Some(Reason::Higher),
            _ if !is_level && self.held as f64 > before as f64 * GROWN + GROWN_BYTES as f64 => {
                Some(Reason::Growing)
            }
            Some(_) if self.elapsed > at + (self.elapsed / OLD).max(OLD_AT_LEAST) => {
                Some(Reason::Old)
            }
            _ => None,
        }
    }

    /// Whether a look of that price keeps within the budget, which is `rate` of the time. What has been at a
    /// level for some time is taken to stay as long again.
    pub(super) fn affords(&self, reason: Reason, price: Duration, rate: f64) -> bool {
        let budget = |time: Duration| time.mul_f64(rate) + CREDIT;
        let (time, share) = match reason {
            Reason::MuchHigher => (self.elapsed + self.level_for, 1.0),
            Reason::Higher => (self.elapsed + self.level_for, NOT_MUCH_HIGHER),
            Reason::Growing => (self.elapsed, 1.0),
            Reason::Old => (self.elapsed, AGAIN),
        };
        let is_left = reason != Reason::Growing
            || self.spent_growing + price <= budget(self.elapsed).mul_f64(GROWING);
        is_left && self.spent + price <= budget(time).mul_f64(share)
    }
}

/// Whether what is held is about what was held a tick before.
pub(super) fn is_steady(before: u64, held: u64) -> bool {
    held.abs_diff(before) as f64 <= STEADY * held as f64
}

/// What of the time that ticks took is taken from looks: half the budget at most. Where much is born on the machine ticks take
/// more, and looks must not end for that.
pub(super) fn charged(ticks: Duration, elapsed: Duration) -> Duration {
    ticks.min(elapsed.mul_f64(BUDGET / 2.0))
}

/// How long to rest after a tick. Ticks take half the budget at most; a look is paid for before it is made. A program of
/// a few tenths of a second may be at its peak for milliseconds and end: so long, ticks may take a twenty-fifth.
pub(super) fn pause(ticked: Duration, elapsed: Duration) -> Duration {
    match elapsed < EARLY {
        true => (elapsed / 8).clamp(MIN_PAUSE, PAUSE).max(ticked * 25),
        false => PAUSE.max(ticked.div_f64(BUDGET / 2.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(minor_faults: u64, children_minor_faults: u64, threads: u64) -> Stat {
        Stat {
            name: "a".to_string(),
            state: 'S',
            parent: Pid(1),
            group: Pid(1),
            session: Pid(1),
            minor_faults,
            children_minor_faults,
            threads,
            start_ticks: 5,
            mapped: 1 << 20,
            stack_start: 0,
        }
    }

    #[test]
    fn who_was_never_seen_left_its_faults_with_who_waited_for_it() {
        let before = BTreeMap::from([(Pid(10), stat(50, 0, 1)), (Pid(11), stat(900, 0, 1))]);
        let now = |waited, threads| BTreeMap::from([(Pid(10), stat(60, waited, threads))]);
        // Nobody was born, the births are threads, nobody was waited for but the one that is known.
        assert_eq!(unseen(&before, &now(5_000, 1), 0), 0);
        assert_eq!(unseen(&before, &now(5_000, 4), 3), 0);
        assert_eq!(unseen(&before, &now(900, 1), 3), 0);
        // One more, of at most three births.
        assert_eq!(unseen(&before, &now(910, 1), 3), 1);
        assert_eq!(unseen(&before, &now(5_000, 1), 3), 3);
        // Births of others do not count where the faults tell less.
        assert_eq!(unseen(&before, &now(917, 1), 3_000), 2);
    }
}

#[cfg(test)]
mod when_tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn millis(millis: f64) -> Duration {
        Duration::from_secs_f64(millis / 1e3)
    }

    /// 0.3 s after the start, 300 MiB.
    fn facts() -> Facts {
        Facts {
            elapsed: millis(300.0),
            held: 300 * MIB,
            level_for: Duration::ZERO,
            looked: None,
            spent: Duration::ZERO,
            spent_growing: Duration::ZERO,
        }
    }

    #[test]
    fn ticks_leave_half_the_budget_to_looks_however_long_they_take() {
        for micros in [1, 50, 1_000, 100_000] {
            let took = Duration::from_micros(micros);
            let share = |elapsed| took.as_secs_f64() / pause(took, elapsed).as_secs_f64();
            assert!(share(EARLY) <= BUDGET / 2.0 + 1e-9, "{micros} us");
            assert!(share(millis(100.0)) <= 0.04 + 1e-9, "{micros} us");
        }
    }

    #[test]
    fn dear_ticks_leave_half_the_budget_to_looks() {
        let (second, cheap) = (Duration::from_secs(1), millis(1.0));
        assert_eq!(charged(cheap, second), cheap);
        assert_eq!(charged(second, second), second.mul_f64(BUDGET / 2.0));
    }

    #[test]
    fn a_program_of_a_fifth_of_a_second_has_a_tick_in_its_last_eighth() {
        let (mut at, mut ticks) = (Duration::ZERO, 0);
        while at < millis(200.0) {
            assert!(pause(Duration::from_micros(30), at) <= (at / 8).max(MIN_PAUSE));
            at += pause(Duration::from_micros(30), at);
            ticks += 1;
        }
        assert!(ticks < 50, "{ticks}");
    }

    #[test]
    fn a_plateau_is_looked_at_and_growth_seldom() {
        let growing = facts();
        assert_eq!(growing.reason(), Some(Reason::Growing));
        let level = Facts { level_for: millis(20.0), ..facts() };
        assert_eq!(level.reason(), Some(Reason::MuchHigher));
        let price = millis(5.0);
        assert!(!growing.affords(Reason::Growing, price, BUDGET));
        assert!(level.affords(Reason::MuchHigher, price, BUDGET));
        let cases = [(30, Reason::MuchHigher), (200, Reason::MuchHigher), (280, Reason::Higher)];
        for (before, reason) in cases {
            let looked = Some((millis(200.0), before * MIB));
            assert_eq!(Facts { looked, ..level }.reason(), Some(reason), "{before}");
        }
        // Old after a sixteenth of the time, however much is held now.
        let again =
            |at, before| Facts { looked: Some((millis(at), before * MIB)), ..level }.reason();
        assert_eq!((again(290.0, 300), again(280.0, 300)), (None, Some(Reason::Old)));
        assert_eq!(again(280.0, 900), Some(Reason::Old));
    }

    #[test]
    fn looks_at_growth_leave_enough_for_the_plateau() {
        // A look is half a millisecond; the program grows for 0.3 s, and then stays.
        let price = millis(0.5);
        let (mut facts, mut looks) = (facts(), 0);
        for tick in 1..15 {
            facts.elapsed = millis(20.0 * f64::from(tick));
            while facts.affords(Reason::Growing, price, BUDGET) {
                facts.spent += price;
                facts.spent_growing += price;
                looks += 1;
            }
        }
        // Three fifths of 5.2 ms.
        assert_eq!(looks, 6);
        let level = Facts { elapsed: millis(300.0), level_for: millis(20.0), ..facts };
        assert!(level.affords(Reason::MuchHigher, 5 * price, BUDGET));
    }

    #[test]
    fn a_level_may_be_paid_for_by_its_own_length() {
        let at = |level| Facts { level_for: millis(level), spent: millis(3.0), ..facts() };
        let price = millis(2.8);
        assert!(!at(20.0).affords(Reason::MuchHigher, price, BUDGET));
        assert!(at(70.0).affords(Reason::MuchHigher, price, BUDGET));
    }

    #[test]
    fn nothing_held_is_not_looked_at() {
        assert_eq!(Facts { held: 0, level_for: millis(20.0), ..facts() }.reason(), None);
    }

    #[test]
    fn what_is_steady_differs_by_a_hundredth() {
        assert!(is_steady(0, 0) && is_steady(99, 100) && is_steady(101, 100));
        assert!(!is_steady(98, 100) && !is_steady(0, 1));
    }
}
