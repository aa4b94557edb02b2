//! Finds the processes of a watched run, and keeps their `/proc/PID/status` open.

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

/// Maximum number of files kept open. A launcher may have only 1024 descriptors; children inherit none of these.
const MAX_FILES: usize = 128;
/// Minimum number of faults of a process that has memory of its own.
const MIN_FAULTS: u64 = 8;
/// Maximum number of new pids that are checked for processes that left the tree.
const MAX_ORPHANS: u64 = 64;
/// Number of births assumed after the pids wrapped around.
const WRAPPED: u64 = 1 << 15;

pub(super) struct Members {
    root: Root,
    tree: ProcessTree,
    pids: Vec<Pid>,
    /// Stats of all processes, including zombies, from the time when `pids` was read.
    stats: BTreeMap<Pid, Stat>,
    files: BTreeMap<Pid, KeptStatus>,
    load: Option<KeptLoad>,
    /// The newest pid on the machine when `pids` was read. While it stays the same, no process was born.
    newest: Option<Pid>,
    /// Whether `stats` is current.
    is_fresh: bool,
    /// Processes that had ended when `pids` was read.
    gone: Vec<Pid>,
    /// Number of processes that may belong to the tree but cannot be told from others.
    lost: u64,
    group: Option<Pid>,
    /// Whether orphans in our group may belong to other trees: a shell that is the first process of a container has
    /// other children in its group.
    is_group_shared: bool,
    /// Processes that adopt orphans: the first process, and the service manager above us.
    reapers: BTreeSet<Pid>,
    exits: Option<Exits>,
    /// Processes that a signal killed, as reported by the kernel.
    killed: Vec<Killed>,
}

impl Members {
    /// Creates the members of a tree, and counts its births from now on.
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

    /// Starts listening to the kernel's reports on ended processes, if permitted.
    pub(super) fn listen(&mut self) {
        // In other namespaces our pids differ from those in the kernel's reports.
        let is_first = process::is_in_first_namespace(&self.root);
        let cpus = self.root.read("/sys/devices/system/cpu/possible").ok().filter(|_| is_first);
        self.exits = cpus.and_then(|cpus| Exits::listen(cpus.trim()).ok());
    }

    pub(super) fn pids(&self) -> &[Pid] {
        &self.pids
    }

    /// Returns the number of processes that may belong to the tree but were not counted.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the processes that a signal killed; `None` if the kernel does not report them, or reported more than we
    /// keep.
    pub(super) fn killed(&mut self) -> Option<Vec<Killed>> {
        self.exits.is_some().then(|| std::mem::take(&mut self.killed))
    }

    /// Returns the parent that the process had when the members were found.
    pub(super) fn parent(&self, pid: Pid) -> Option<Pid> {
        self.stats.get(&pid).map(|stat| stat.parent)
    }

    /// Returns the current stat, if it was read already or is `wanted`.
    pub(super) fn stat(&self, pid: Pid, wanted: bool) -> Option<Stat> {
        match self.is_fresh {
            true => self.stats.get(&pid).cloned(),
            false if wanted => process::stat(&self.root, pid).ok(),
            false => None,
        }
    }

    /// Updates the members, but only if any process on the machine was born since, because an update reads every
    /// process on kernels without CONFIG_PROC_CHILDREN. Returns the number of processes that may have been born and
    /// ended since, unseen.
    pub(super) fn renew(&mut self) -> u64 {
        let newest = self.load.as_mut().and_then(|load| load.newest_pid().ok());
        self.is_fresh = newest.is_none() || newest != self.newest;
        if !self.is_fresh {
            return 0;
        }
        let mut found: BTreeMap<Pid, Stat> = self.found().into_iter().collect();
        let born = match (self.newest, newest) {
            (Some(before), Some(now)) if now >= before => (now.0 - before.0) as u64,
            // At the first update, count all births since the first member.
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

    /// Adds new processes that left the tree before they were seen in it: their parents ended, and they are still in
    /// our group, or in a session of the tree.
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
                // The process is a daemon of this tree or of the machine, or an orphan in a group that others share.
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

    /// Returns whether our group has processes that are neither descendants nor ancestors of ours, such as other jobs
    /// of a script. An orphan may then be theirs.
    fn has_others_in_group(&self, found: &BTreeMap<Pid, Stat>) -> bool {
        let own = sys::param::own_pid();
        if self.group == Some(own) {
            return false;
        }
        let own_parent = process::stat(&self.root, own).ok().map(|stat| stat.parent);
        let above = from_upwards(&self.root, own_parent).map(|(pid, _)| pid);
        let above: BTreeSet<Pid> = above.chain([own]).collect();
        process::pids(&self.root).unwrap_or_default().into_iter().any(|pid| {
            let is_known =
                above.contains(&pid) || found.contains_key(&pid) || self.stats.contains_key(&pid);
            let stat = if is_known { None } else { process::stat(&self.root, pid).ok() };
            stat.is_some_and(|stat| {
                Some(stat.group) == self.group && !self.reapers.contains(&stat.parent)
            })
        })
    }

    fn is_process(&self, pid: Pid) -> bool {
        let status = self.root.read(&format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains(&format!("\nTgid:\t{pid}\n")))
    }

    pub(super) fn hears_ends(&self) -> bool {
        self.exits.is_some()
    }

    pub(super) fn was_seen(&self, pid: Pid) -> bool {
        self.stats.contains_key(&pid) || self.gone.contains(&pid)
    }

    /// Returns whether the pid may be a process of the tree. A process inside another namespace reports a different,
    /// small pid.
    pub(super) fn may_be(&self, pid: Pid) -> bool {
        self.stats.keys().min().is_some_and(|first| *first <= pid)
    }

    /// Returns the kernel's reports on processes that ended since the last call, after `unseen` were born and ended.
    pub(super) fn ends(&mut self, unseen: u64, is_long: bool) -> Ends {
        let told = self.exits.as_ref().map(Exits::ended);
        if matches!(told, Some(Err(_))) {
            self.exits = None; // more reports than we can read
        }
        let Some(Ok(told)) = told else { return Ends { unseen, is_long, ..Ends::default() } };
        let mut tree: BTreeSet<Pid> = self.stats.keys().chain(&self.gone).copied().collect();
        // Children mostly end before their parents, so start with the latest report.
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

    /// Returns the tree, and the processes that left it when their parents ended.
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
                // Skip known processes: trees change while they are read.
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

    /// Returns the number of faults without I/O of all processes; `None` if a process is gone.
    pub(super) fn minor_faults(&self) -> Option<u64> {
        self.pids.iter().map(|pid| self.stat(*pid, true).map(|stat| stat.minor_faults)).sum()
    }
}

/// Returns the first process, and our ancestors that manage services and adopt their orphans.
fn reapers(root: &Root, own: Option<&Stat>) -> BTreeSet<Pid> {
    let above = from_upwards(root, own.map(|own| own.parent));
    let managers = above.filter(|(_, stat)| stat.name == "systemd").map(|(pid, _)| pid);
    managers.chain([Pid(1)]).collect()
}

fn from_upwards(root: &Root, pid: Option<Pid>) -> impl Iterator<Item = (Pid, Stat)> {
    let read =
        |pid: Pid| (pid.0 > 1).then(|| Some((pid, process::stat(root, pid).ok()?))).flatten();
    std::iter::successors(pid.and_then(read), move |(_, stat)| read(stat.parent))
}

/// Returns an upper bound of the number of this tree's processes that were born and have ended; `born` is the number
/// of births on the whole machine. A waiting parent inherits its child's faults, and the faults of seen processes
/// are known.
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

// Decides when a watch within budget looks. Pure; uses the results of its ticks.
//
// One look at the end of a plateau is worth more than many before it. So the watch looks when the program has stopped
// growing. While it grows, looks spend only the share [`GROWING`], for programs that never stop growing.
// See docs/decisions/watch.md#4.

/// Maximum share of one CPU's time for ticks and looks together, however many CPUs the program has.
/// See docs/decisions/watch.md#3.
pub const BUDGET: f64 = 0.008;
/// Additional time permitted, so that a program of a few tenths of a second is observed at all.
pub(super) const CREDIT: Duration = Duration::from_millis(3);
/// Minimum pause between ticks; in the first half second, an eighth of the elapsed time.
const PAUSE: Duration = Duration::from_millis(25);
const MIN_PAUSE: Duration = Duration::from_millis(1);
const EARLY: Duration = Duration::from_millis(500);
/// Relative change of the resident size between two ticks below which the program has stopped growing.
const STEADY: f64 = 0.01;
/// Maximum share of the budget for looks at a growing program.
const GROWING: f64 = 0.6;
/// A growing program is looked at again once it holds GROWN times the bytes of the last look, plus [`GROWN_BYTES`].
const GROWN: f64 = 1.2;
/// Bytes of this growth that no factor scales.
const GROWN_BYTES: u64 = 8 << 20;
/// A look is old after 1/OLD of the elapsed time.
const OLD: u32 = 16;
/// Minimum age of an old look.
const OLD_AT_LEAST: Duration = Duration::from_millis(15);
/// Shares of the budget up to which other looks may spend. The rest is kept for the first look at a level well above
/// the last.
const NOT_MUCH_HIGHER: f64 = 0.75;
const AGAIN: f64 = 0.9;

/// Results of the ticks and looks until now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Time since the start of the program.
    pub elapsed: Duration,
    /// Bytes held.
    pub held: u64,
    /// Duration of the current level.
    pub level_for: Duration,
    /// Time of the last look since the start of the program, and bytes held then.
    pub looked: Option<(Duration, u64)>,
    /// Time spent on looks, plus the time [`charged`] for ticks.
    pub spent: Duration,
    /// The part of `spent` for looks at a growing program.
    pub spent_growing: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reason {
    /// The program has stopped growing, with much more memory than at the last look.
    MuchHigher,
    /// The program has stopped growing, with slightly more memory than at the last look.
    Higher,
    /// The program is still growing.
    Growing,
    /// The last look is old: the page sizes may change while the size stays the same.
    Old,
}

impl Facts {
    /// Returns the reason to look, if a look is affordable.
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

    /// Returns whether a look of that price stays within the budget, which is the share `rate` of the time. A level is
    /// expected to last as long again as it has lasted.
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

/// Returns whether the memory is about the same as at the previous tick.
pub(super) fn is_steady(before: u64, held: u64) -> bool {
    held.abs_diff(before) as f64 <= STEADY * held as f64
}

/// Returns the time of ticks that is charged to looks: at most half the budget. On machines with many births ticks take
/// longer, and looks must not stop because of this.
pub(super) fn charged(ticks: Duration, elapsed: Duration) -> Duration {
    ticks.min(elapsed.mul_f64(BUDGET / 2.0))
}

/// Returns the pause after a tick. Ticks take at most half the budget, because a look must be affordable before it is
/// made. A short program may be at its peak for only milliseconds before it ends, so in the first half second ticks may
/// take one part in 25.
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
            major_faults: 0,
            cpu_ticks: 0,
            children_cpu_ticks: 0,
            threads,
            start_ticks: 5,
            mapped: 1 << 20,
            resident_pages: 0,
            stack_start: 0,
            policy: 0,
        }
    }

    #[test]
    fn who_was_never_seen_left_its_faults_with_who_waited_for_it() {
        let before = BTreeMap::from([(Pid(10), stat(50, 0, 1)), (Pid(11), stat(900, 0, 1))]);
        let now = |waited, threads| BTreeMap::from([(Pid(10), stat(60, waited, threads))]);
        // There are no births, or births that are threads, or the parent waited only for the known process.
        assert_eq!(unseen(&before, &now(5_000, 1), 0), 0);
        assert_eq!(unseen(&before, &now(5_000, 4), 3), 0);
        assert_eq!(unseen(&before, &now(900, 1), 3), 0);
        // The parent waited for one more process, and there were at most three births.
        assert_eq!(unseen(&before, &now(910, 1), 3), 1);
        assert_eq!(unseen(&before, &now(5_000, 1), 3), 3);
        // Births elsewhere do not count if the faults give a smaller bound.
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

    /// Returns facts at 0.3 s after the start, with 300 MiB.
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
        // A look is old after a sixteenth of the time, whatever the current size.
        let again =
            |at, before| Facts { looked: Some((millis(at), before * MIB)), ..level }.reason();
        assert_eq!((again(290.0, 300), again(280.0, 300)), (None, Some(Reason::Old)));
        assert_eq!(again(280.0, 900), Some(Reason::Old));
    }

    #[test]
    fn looks_at_growth_leave_enough_for_the_plateau() {
        // A look takes half a millisecond; the program grows for 0.3 s, and then stays.
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
        // Looks at growth may spend three fifths of 5.2 ms.
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
