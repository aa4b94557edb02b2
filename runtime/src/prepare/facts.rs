//! What the thread looks at before it works: who else runs, how much memory there is, who waits for it.
//!
//! The descriptors are in a table of the thread's own: the program's numbers are the program's.
//!
//! # Safety
//! System calls on descriptors and buffers of our own.

use std::ffi::{CStr, c_int};

use ::ahead::Refill;

use super::superpages;
use crate::limits;
use crate::raw;
use crate::source::first_number;

/// Room that is left to others, at least: an eighth of what there is, or this.
const LEAST_MARGIN: usize = 64 << 20;
/// Share of the last ten seconds in which somebody waited for memory, in percent, that is too much.
const TOO_MUCH: usize = 10;
/// How often what changes slowly is read again.
const SLOW_US: u64 = 20_000;
/// And all the rest: two superpages or three may be populated meanwhile.
const FAST_US: u64 = 400;
/// Groups within groups that are looked at.
const DEEPEST: usize = 4;

/// What was seen last.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// Tasks that run or want to, without the thread itself.
    pub running: Option<u64>,
    /// Thousandths of a CPU that nobody else had a use for.
    pub spare: Option<u64>,
    /// CPUs that the thread may use.
    pub cpus: u64,
    /// Superpages that may be taken.
    pub headroom: Option<u64>,
    /// Somebody waits for memory, or a limit is close.
    pub is_pressed: bool,
}

/// The files, and when they were read.
pub struct Files {
    load: Option<c_int>,
    cpu: Cpu,
    memory: Option<c_int>,
    pressure: Option<c_int>,
    /// Limit and use of each memory cgroup around us.
    groups: [Option<(c_int, c_int)>; DEEPEST],
    /// When the slow ones were read.
    read_us: u64,
    /// When the last look was, and what was seen; `None` after a rest.
    last: Option<(u64, Seen)>,
    /// Of the machine, in bytes: to spare, and whether it is short.
    machine: (Option<usize>, bool),
    cpus: u64,
    /// Whether the CPUs we may use are all there are: only then does the load say something about them.
    has_all_cpus: bool,
}

impl Files {
    /// Opens what there is.
    pub fn open() -> Self {
        let open = |path: &CStr| raw::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        let mut groups = [None; DEEPEST];
        let mut used = 0;
        limits::each_memory_group(|limit, usage| {
            if used < DEEPEST
                && let (Some(limit), Some(usage)) = (open(limit), open(usage))
            {
                groups[used] = Some((limit, usage));
                used += 1;
            }
        });
        let (cpus, has_all_cpus) = cpus();
        Self {
            load: open(c"/proc/loadavg"),
            cpu: Cpu {
                idle: open(c"/proc/uptime"),
                own: open(c"/proc/thread-self/schedstat"),
                before: None,
                spare: None,
            },
            memory: open(c"/proc/meminfo"),
            pressure: open(c"/proc/pressure/memory"),
            groups,
            read_us: 0,
            last: None,
            machine: (None, false),
            cpus,
            has_all_cpus,
        }
    }

    /// Looks again, unless it did so just now.
    pub fn look(&mut self, now_us: u64) -> Seen {
        if let Some((then_us, seen)) = self.last
            && now_us - then_us < FAST_US
        {
            return seen;
        }
        if self.read_us == 0 || now_us - self.read_us >= SLOW_US {
            self.read_us = now_us.max(1);
            self.machine = self.machine();
            (self.cpus, self.has_all_cpus) = cpus();
        }
        let (mut room, mut is_pressed) = self.machine;
        for (limit, usage) in self.groups.iter().flatten() {
            let (Some(limit), Some(usage)) = (read_number(*limit), read_number(*usage)) else {
                continue;
            };
            // Without one, v1 says a number near 2^63 and v2 a word.
            let margin = (limit / 8).max(LEAST_MARGIN);
            let left = limit.saturating_sub(usage);
            is_pressed |= left < margin / 4;
            let spare = left.saturating_sub(margin);
            room = Some(room.map_or(spare, |room| room.min(spare)));
        }
        // Of a part of the CPUs the load says nothing; of a single one, that it is not idle.
        let says_something = self.has_all_cpus || self.cpus == 1;
        let running = if says_something { self.running() } else { None };
        let spare = if says_something { self.cpu.look() } else { None };
        let headroom = room.map(superpages);
        let seen = Seen { running, spare, cpus: self.cpus, headroom, is_pressed };
        self.last = Some((now_us, seen));
        seen
    }

    /// After a rest everything may be another.
    pub fn forget(&mut self) {
        self.last = None;
    }

    fn running(&self) -> Option<u64> {
        let mut buffer = [0; 128];
        // 0.20 0.18 0.12 1/80 11206
        let text = read(self.load?, &mut buffer)?;
        let fourth = text.split(|&byte| byte == b' ').nth(3)?;
        Some((first_number(fourth)? as u64).saturating_sub(1))
    }

    fn machine(&self) -> (Option<usize>, bool) {
        let mut buffer = [0; 2048];
        let room = self.memory.and_then(|fd| {
            let text = read(fd, &mut buffer)?;
            let (all, free) = (field(text, b"MemTotal:")?, field(text, b"MemAvailable:")?);
            Some(free.saturating_sub((all / 8).max(LEAST_MARGIN / 1024)) * 1024)
        });
        let mut buffer = [0; 256];
        let waited = self.pressure.and_then(|fd| {
            let text = read(fd, &mut buffer)?;
            field(text, b"some avg10=")
        });
        (room, waited.is_some_and(|percent| percent >= TOO_MUCH))
    }
}

/// What the CPUs did lately.
struct Cpu {
    idle: Option<c_int>,
    own: Option<c_int>,
    /// When a period began, and what the counters were then, in ms: up, idle, run, waited.
    before: Option<[u64; 4]>,
    /// Of the last whole period.
    spare: Option<u64>,
}

/// The counters of idle time are in hundredths of a second.
const PERIOD_MS: u64 = 50;

impl Cpu {
    fn look(&mut self) -> Option<u64> {
        let now = self.counters()?;
        let [period, idle, own, waited] = match self.before {
            Some(before) => std::array::from_fn(|at| now[at].saturating_sub(before[at])),
            None => [0; 4],
        };
        if period >= PERIOD_MS {
            self.spare = Some(Refill::spare(period, idle, own, waited));
        }
        if period >= PERIOD_MS || self.before.is_none() {
            self.before = Some(now);
        }
        self.spare
    }

    fn counters(&self) -> Option<[u64; 4]> {
        let mut buffer = [0; 128];
        // 58123.45 101234.56: since the machine started, and idle, all CPUs together
        let mut words = read(self.idle?, &mut buffer)?.split(|&byte| byte == b' ');
        let (up, idle) = (hundredths(words.next()?)?, hundredths(words.next()?)?);
        let mut buffer = [0; 128];
        // 1234567 12345 67: ns run, ns waited for a CPU, turns
        let mut words = read(self.own?, &mut buffer)?.split(|&byte| byte == b' ');
        let mut ms = || Some(first_number(words.next()?)? as u64 / 1_000_000);
        Some([up * 10, idle * 10, ms()?, ms()?])
    }
}

/// `123.45` as 12345.
fn hundredths(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.')?;
    let whole = first_number(&text[..point])? as u64;
    Some(whole * 100 + first_number(&text[point..])? as u64)
}

/// The number behind `key`.
fn field(text: &[u8], key: &[u8]) -> Option<usize> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    first_number(&text[at + key.len()..])
}

fn read_number(fd: c_int) -> Option<usize> {
    let mut buffer = [0; 64];
    first_number(read(fd, &mut buffer)?)
}

/// The file from its beginning, as much as fits.
fn read(fd: c_int, buffer: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: a descriptor and a buffer of our own.
    let got = unsafe { raw::call!(SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), 0) };
    Some(&buffer[..usize::try_from(got).ok().filter(|got| *got > 0)?])
}

/// How many CPUs this thread may use, and whether that is all of them.
fn cpus() -> (u64, bool) {
    // As many CPUs as Linux can be built for (CONFIG_NR_CPUS up to 8192).
    let mut mask = [0u64; 128];
    // SAFETY: a buffer of that size, which the kernel fills in part.
    let got =
        unsafe { raw::call!(SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    let allowed: u32 = mask.iter().map(|word| word.count_ones()).sum();
    let mut buffer = [0; 256];
    let online = crate::source::read_file(c"/sys/devices/system/cpu/online", &mut buffer);
    let online = online.map_or(0, count_of_list);
    if got <= 0 { (1, false) } else { (u64::from(allowed), u64::from(allowed) == online) }
}

/// How many numbers a list like `0-3,7` names.
fn count_of_list(text: &[u8]) -> u64 {
    let parts = text.split(|&byte| byte == b',');
    let count = |part: &[u8]| {
        let first = first_number(part)?;
        let last = part
            .iter()
            .position(|&byte| byte == b'-')
            .map_or(Some(first), |dash| first_number(&part[dash..]))?;
        Some((last.saturating_sub(first) + 1) as u64)
    };
    parts.filter_map(count).sum()
}
