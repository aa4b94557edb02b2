//! Limits of a rule's executor, and the ledger of what all executors made. See
//! docs/decisions/manage.md#8.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::{MemInfo, Root, cgroup};
use live::{Call, Latency, Supervisor};
use services::Process;
use units::{ByteSize, PageSize, Pid};

use super::lock;
use super::status::{Pause, Status};
use crate::config::Limits;
use crate::memory::{Memory, has_locked};
use crate::realtime::Realtime;
use crate::record::Record;

/// Calls by which the rate is adapted.
const WINDOW: usize = 50;
/// Share of time for calls that take too long. Memory of a process is stalled at most for this share, and only the
/// superpage that is being made.
const LONG_CALLS_SHARE: f64 = 0.1;
/// Calls of which the status has percentiles.
const LATEST: usize = 10_000;
/// How long a reading of the machine's memory is believed.
const READING: Duration = Duration::from_millis(100);
/// Time for which a range is left alone after a failure; doubled after each further one.
const LEAST_REST: Duration = Duration::from_millis(500);
/// Longest such time.
const MOST_REST: Duration = Duration::from_secs(600);
/// Why no superpage is made in a control group.
const SHORT_GROUP: &str = "the control group has too little memory left";
/// Why no superpage is made of locked memory: the kernel splits it only once the program unlocks it.
const LOCKED: &str = "the memory is locked (mlock): it could not be split again";
/// How long it is believed that a process has no locked memory.
const UNLOCKED: Duration = Duration::from_secs(1);
/// Pause where memory is short or a realtime task is running.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// What was made, and what must not be made now.
#[derive(Debug)]
pub struct Ledger {
    root: Root,
    dir: PathBuf,
    superpage: PageSize,
    processes: BTreeMap<Pid, Process>,
    records: BTreeMap<Pid, Record>,
    /// When a range that was given back may have a superpage again.
    until: BTreeMap<(Pid, u64), Instant>,
    /// Failures in a row.
    failures: BTreeMap<(Pid, u64), u8>,
    /// Processes without locked memory, and when that was read.
    unlocked: BTreeMap<Pid, Instant>,
    /// The address of the superpage that was looked at last, to give it back.
    looked_to: BTreeMap<Pid, u64>,
    realtime: Realtime,
    memory: (Option<Instant>, Option<MemInfo>),
    calls: VecDeque<Duration>,
    made: u64,
    filled_pages: u64,
    longest: Duration,
    /// Attempts without a superpage, by reason.
    unmade: BTreeMap<&'static str, u64>,
    pause: Option<Pause>,
    rate: Option<f64>,
    /// Why the last record could not be written.
    unrecorded: Option<String>,
}

impl Ledger {
    pub fn new(root: Root, dir: PathBuf, superpage: PageSize) -> Self {
        Self {
            realtime: Realtime::new(&root),
            root,
            dir,
            superpage,
            processes: BTreeMap::new(),
            records: BTreeMap::new(),
            until: BTreeMap::new(),
            failures: BTreeMap::new(),
            unlocked: BTreeMap::new(),
            looked_to: BTreeMap::new(),
            memory: (None, None),
            calls: VecDeque::new(),
            made: 0,
            filled_pages: 0,
            longest: Duration::ZERO,
            unmade: BTreeMap::new(),
            pause: None,
            rate: None,
            unrecorded: None,
        }
    }

    /// Forgets all processes but these. Files of ended processes are removed.
    pub fn retain(&mut self, processes: &[Process]) {
        self.processes = processes.iter().map(|process| (process.pid, process.clone())).collect();
        let ended: Vec<Pid> =
            self.records.keys().filter(|pid| !self.processes.contains_key(pid)).copied().collect();
        for pid in ended {
            if let Some(record) = self.records.remove(&pid)
                && !record.is_of_running(&self.root)
            {
                let _ = record.keep(&[]);
            }
        }
        let now = Instant::now();
        let processes = &self.processes;
        self.until.retain(|(pid, _), until| processes.contains_key(pid) && *until > now);
        self.failures.retain(|(pid, _), _| processes.contains_key(pid));
        self.unlocked.retain(|pid, _| processes.contains_key(pid));
        self.looked_to.retain(|pid, _| processes.contains_key(pid));
    }

    /// The next superpages, at most `count`, that were made in a process: in the order of addresses, the first after the
    /// last.
    pub fn next_made(&mut self, pid: Pid, count: usize) -> Vec<u64> {
        let from = self.looked_to.get(&pid).copied().unwrap_or(0);
        let Ok(record) = self.record(pid) else { return Vec::new() };
        let above = record.starts().filter(|start| *start > from);
        let below = record.starts().filter(|start| *start <= from);
        let next: Vec<u64> = above.chain(below).take(count).collect();
        self.looked_to.extend(next.last().map(|last| (pid, *last)));
        next
    }

    /// Notes that superpages were given back, and may not be made again for a time.
    pub fn given_back(&mut self, pid: Pid, starts: &[u64], leave_alone: Duration) {
        let until = Instant::now() + leave_alone;
        for start in starts {
            self.until.insert((pid, *start), until);
        }
        if let Ok(record) = self.record(pid) {
            let removed = starts.iter().try_for_each(|start| record.remove(*start));
            self.unrecorded = removed.err().or(self.unrecorded.take());
        }
    }

    pub fn count(&self, status: &mut Status) {
        status.made = self.made;
        status.filled = ByteSize(self.filled_pages * self.root.page_size().bytes());
        status.unmade = self.unmade.iter().map(|(why, count)| (why.to_string(), *count)).collect();
        status.pause = self.pause;
        status.rate = self.rate;
        status.unrecorded.clone_from(&self.unrecorded);
        let calls = self.calls.iter().map(|call| call.as_micros() as u64).collect();
        status.p99_seconds = Latency::from_ticks(calls).map(|latency| latency.p99_seconds);
        status.longest_seconds = (!self.calls.is_empty()).then_some(self.longest.as_secs_f64());
    }

    fn record(&mut self, pid: Pid) -> Result<&mut Record, String> {
        let process = self.processes.get(&pid).ok_or("the process left")?;
        let is_same = |record: &Record| record.is_of(process);
        if !self.records.get(&pid).is_some_and(is_same) {
            self.records.insert(pid, Record::open(&self.root, &self.dir, process)?);
        }
        self.records.get_mut(&pid).ok_or_else(|| "no record".to_string())
    }

    /// Why no superpage may be made now.
    fn obstacle(&mut self, headroom: crate::config::Amount) -> Option<Pause> {
        let now = Instant::now();
        if self.memory.0.is_none_or(|at| now >= at + READING) {
            self.memory = (Some(now), MemInfo::read(&self.root).ok());
        }
        let is_short = match &self.memory.1 {
            Some(MemInfo { available: Some(available), total: Some(total), .. }) => {
                available.bytes() < headroom.bytes(*total).bytes() + 2 * self.superpage.bytes()
            }
            _ => true,
        };
        match () {
            () if is_short => Some(Pause::Memory),
            () if self.realtime.is_running(&self.root) => Some(Pause::Realtime),
            () => None,
        }
    }

    /// Leaves a range alone, longer after each failure: memory may have MADV_NOHUGEPAGE.
    fn has_failed(&mut self, pid: Pid, start: u64, now: Instant) {
        let failures = self.failures.entry((pid, start)).or_default();
        let rest = LEAST_REST.saturating_mul(1 << (*failures).min(16)).min(MOST_REST);
        *failures = failures.saturating_add(1);
        self.until.insert((pid, start), now + rest);
    }

    /// The blocks of a process that are not locked in memory.
    fn without_locked(&mut self, pid: Pid, starts: Vec<u64>, now: Instant) -> Vec<u64> {
        if self.unlocked.get(&pid).is_some_and(|at| now < *at + UNLOCKED) {
            return starts;
        }
        // A process that ended has no superpages to make.
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        match has_locked(&self.root, pid) {
            Ok(true) => {}
            Ok(false) => {
                self.unlocked.insert(pid, now);
                return starts;
            }
            Err(_) => return Vec::new(),
        }
        let Ok(memory) = Memory::open(&self.root, process) else { return Vec::new() };
        let (locked, free): (Vec<u64>, Vec<u64>) =
            starts.into_iter().partition(|start| memory.is_locked(*start));
        for start in &locked {
            self.has_failed(pid, *start, now);
        }
        if !locked.is_empty() {
            *self.unmade.entry(LOCKED).or_default() += locked.len() as u64;
        }
        free
    }

    /// Whether a process's control group has memory for another superpage. Filled pages are charged, and during the call
    /// the copy too.
    fn has_memory(&self, pid: Pid) -> bool {
        let left = cgroup::memory_available_of(&self.root, pid);
        left.is_none_or(|left| left.bytes() >= 8 * self.superpage.bytes())
    }
}

/// Superpages per second, adapted to how long calls take.
#[derive(Debug)]
struct Rate {
    per_second: f64,
    most: f64,
    longest_call: Duration,
    window: Vec<Duration>,
}

impl Rate {
    fn new(limits: &Limits) -> Self {
        let most = f64::from(limits.collapses_per_second);
        let longest_call = limits.longest_call;
        Self { per_second: most, most, longest_call, window: Vec::new() }
    }

    /// Adapts the rate after some calls: half if one in fifty took too long, but not fewer than
    /// [`LONG_CALLS_SHARE`] permits; else a quarter more.
    fn adapt(&mut self, took: Duration) {
        self.window.push(took);
        if self.window.len() < WINDOW {
            return;
        }
        self.window.sort_unstable();
        // Of 50 calls: all but one.
        let p99 = self.window[WINDOW - 2];
        let mean = self.window.iter().sum::<Duration>().as_secs_f64() / WINDOW as f64;
        self.per_second = match p99 > self.longest_call {
            true => (self.per_second / 2.0).max(LONG_CALLS_SHARE / mean),
            false => self.per_second * 1.25,
        };
        self.per_second = self.per_second.min(self.most);
        self.window.clear();
    }
}

/// The supervisor of a rule's executor.
pub struct Keeper {
    ledger: Arc<Mutex<Ledger>>,
    limits: Limits,
    rate: Rate,
    next: Instant,
}

impl Keeper {
    pub fn new(ledger: Arc<Mutex<Ledger>>, limits: &Limits) -> Self {
        let rate = Rate::new(limits);
        Self { ledger, limits: limits.clone(), rate, next: Instant::now() }
    }
}

impl Supervisor for Keeper {
    fn pause(&mut self) -> Duration {
        let left = self.next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return left;
        }
        let mut ledger = lock(&self.ledger);
        ledger.pause = ledger.obstacle(self.limits.memory_headroom);
        match ledger.pause {
            Some(_) => {
                self.next = Instant::now() + LONG_PAUSE;
                LONG_PAUSE
            }
            None => Duration::ZERO,
        }
    }

    fn permit(&mut self, pid: Pid, starts: &[u64]) -> Vec<u64> {
        let mut ledger = lock(&self.ledger);
        let now = Instant::now();
        if !ledger.has_memory(pid) {
            *ledger.unmade.entry(SHORT_GROUP).or_default() += starts.len() as u64;
            return Vec::new();
        }
        let may =
            |start: &&u64| ledger.until.get(&(pid, **start)).is_none_or(|until| *until <= now);
        let may: Vec<u64> = starts.iter().filter(may).copied().collect();
        let may = ledger.without_locked(pid, may, now);
        // Nothing is made without a record to undo it.
        let recorded = ledger
            .record(pid)
            .and_then(|record| may.iter().try_for_each(|start| record.add(*start)));
        match recorded {
            Ok(()) => may,
            Err(why) => {
                ledger.unrecorded = Some(why);
                Vec::new()
            }
        }
    }

    fn called(&mut self, call: &Call<'_>) {
        let mut ledger = lock(&self.ledger);
        let now = Instant::now();
        for start in call.permitted.iter().filter(|start| !call.made.contains(start)) {
            ledger.has_failed(call.pid, *start, now);
        }
        for start in call.made {
            ledger.failures.remove(&(call.pid, *start));
        }
        let unmade = call.permitted.iter().filter(|start| !call.made.contains(start));
        if let Ok(record) = ledger.record(call.pid) {
            let removed: Result<(), String> =
                unmade.copied().try_for_each(|start| record.remove(start));
            ledger.unrecorded = removed.err().or(ledger.unrecorded.take());
        }
        if let Some(why) = call.failure {
            *ledger.unmade.entry(why).or_default() +=
                (call.permitted.len() - call.made.len()) as u64;
        }
        ledger.made += call.made.len() as u64;
        ledger.filled_pages += call.filled_pages;
        if call.took.is_zero() {
            return; // nothing was tried
        }
        ledger.longest = ledger.longest.max(call.took);
        ledger.calls.push_back(call.took);
        if ledger.calls.len() > LATEST {
            ledger.calls.pop_front();
        }
        drop(ledger);
        self.rate.adapt(call.cpu);
        let rate = self.rate.per_second;
        lock(&self.ledger).rate = Some(rate);
        let calls = call.permitted.len().max(1) as f64;
        self.next = Instant::now() + Duration::from_secs_f64(calls / rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_make_fewer_superpages_but_have_a_tenth_of_the_time() {
        let mut rate = Rate::new(&Limits::default());
        let mut calls = |count: usize, took: Duration| {
            (0..count * WINDOW).for_each(|_| rate.adapt(took));
            rate.per_second
        };
        let ms = Duration::from_millis;
        assert_eq!(calls(3, ms(1)), 100.0);
        assert_eq!(calls(1, ms(4)), 50.0);
        assert_eq!(calls(5, ms(4)), 25.0); // 4 ms each: a tenth of a second
        assert_eq!(calls(5, ms(40)), 2.5);
        assert_eq!(calls(1, ms(1)), 3.125);
        assert_eq!(calls(30, ms(1)), 100.0);
    }

    #[test]
    fn one_slow_call_in_fifty_does_not_lower_the_rate() {
        let mut rate = Rate::new(&Limits::default());
        (0..WINDOW - 1).for_each(|_| rate.adapt(Duration::from_millis(1)));
        rate.adapt(Duration::from_millis(30));
        assert_eq!(rate.per_second, 100.0);
    }
}
