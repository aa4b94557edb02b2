//! Sampling a process's threads by CPU time.
//!
//! One perf event a thread, on the kernel's timer. Threads that start meanwhile are found by reading
//! `/proc/PID/task`; they are sampled from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use host::{ReadError, Root};
use services::Process;
use sys::SysError;
use sys::perf::{Ring, UserSample};
use units::Pid;

/// Most threads sampled at once: those with most CPU time. Each holds a descriptor and up to 128 KiB.
pub const MAX_THREADS: usize = 512;
/// Most samples kept: 40 s of 30 busy threads.
pub const MAX_SAMPLES: usize = 480_000;
/// Interval of looking for new threads.
const LOOK: Duration = Duration::from_millis(250);
/// Interval of reading samples; every ring holds those of a longer time.
const SLEEP: Duration = Duration::from_millis(25);
/// Nanoseconds of a thread's CPU time between samples. Not a multiple of usual periods of programs. A sample costs the
/// thread 17 µs in a guest, whose timer's programming and interrupt each leave it: 1.7 % at one a millisecond, measured.
pub const PERIOD: u64 = 2_500_009;

/// Why a process cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The process ended before it was sampled.
    #[error("the process ended before it was sampled")]
    Ended,
    /// perf refuses.
    #[error(
        "perf may not sample this process ({0}): it needs the process's own user and \
         kernel.perf_event_paranoid of 2 or less, or CAP_PERFMON"
    )]
    Denied(SysError),
    /// No perf, or no registers in its samples.
    #[error("perf gives no samples here: {0}")]
    NoPerf(SysError),
    /// /proc cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What was sampled.
#[derive(Debug, Clone, Default)]
pub struct Sampled {
    /// In the order in which they were read: each thread's by time.
    pub samples: Vec<UserSample>,
    /// Samples that the kernel dropped.
    pub lost: u64,
    /// Seconds from the first look to the last.
    pub seconds: f64,
    /// Threads that were sampled.
    pub threads: usize,
    /// Threads that could not be sampled: more than [`MAX_THREADS`] at once, or refused.
    pub unsampled: usize,
    /// Whether the process ended meanwhile.
    pub ended: bool,
}

/// Samples the threads of one process.
pub struct Sampler<'a> {
    root: &'a Root,
    process: &'a Process,
    rings: BTreeMap<Pid, Ring>,
    seen: BTreeSet<Pid>,
    refused: BTreeSet<Pid>,
    pages: usize,
    result: Sampled,
}

impl<'a> Sampler<'a> {
    /// Opens an event on every thread.
    ///
    /// # Errors
    /// perf refuses every thread, or the process ended.
    pub fn open(root: &'a Root, process: &'a Process) -> Result<Self, SampleError> {
        let threads = threads(root, process.pid)?;
        // Half a second of samples where threads are few: memory that an ordinary user may lock is short.
        let pages = match threads.len() {
            0..=8 => 32,
            9..=32 => 8,
            _ => 4,
        };
        let mut sampler = Self {
            root,
            process,
            rings: BTreeMap::new(),
            seen: BTreeSet::new(),
            refused: BTreeSet::new(),
            pages,
            result: Sampled::default(),
        };
        let error = sampler.look(threads);
        if !sampler.rings.is_empty() {
            return Ok(sampler);
        }
        Err(match error {
            _ if !process.is_running(root) => SampleError::Ended,
            Some(error) if [errno::EACCES, errno::EPERM].contains(&error.errno()) => {
                SampleError::Denied(error)
            }
            Some(error) => SampleError::NoPerf(error),
            None => SampleError::Ended,
        })
    }

    /// Samples for `time`, or until the process ends or `goes_on` returns false; it gets the time since the begin, and the
    /// samples since the last call.
    pub fn run(
        mut self,
        time: Duration,
        mut goes_on: impl FnMut(Duration, &[UserSample]) -> bool,
    ) -> Sampled {
        let begun = Instant::now();
        let (mut looked, mut given) = (begun, 0);
        loop {
            let passed = begun.elapsed();
            let new = &self.result.samples[given..];
            if passed >= time || !goes_on(passed, new) {
                break;
            }
            given = self.result.samples.len();
            let wait = LOOK.min(time - passed);
            // Not longer: what is replayed should be of now.
            std::thread::sleep(SLEEP.min(wait));
            self.drain();
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                match threads(self.root, self.process.pid) {
                    Ok(now) if self.process.is_running(self.root) => {
                        let alive: BTreeSet<Pid> = now.iter().copied().collect();
                        self.rings.retain(|thread, _| alive.contains(thread));
                        self.look(now);
                    }
                    _ => {
                        self.result.ended = true;
                        break;
                    }
                }
            }
        }
        self.drain();
        self.result.seconds = begun.elapsed().as_secs_f64();
        self.result.threads = self.seen.len();
        self.result.unsampled = self.refused.len();
        self.result
    }

    /// Opens events on threads that are new; returns the last error.
    fn look(&mut self, mut threads: Vec<Pid>) -> Option<SysError> {
        let mut last = None;
        if threads.len() > MAX_THREADS {
            let pid = self.process.pid;
            threads
                .sort_by_cached_key(|thread| std::cmp::Reverse(cpu_time(self.root, pid, *thread)));
        }
        for thread in threads {
            if self.rings.contains_key(&thread) {
                continue;
            }
            if self.rings.len() >= MAX_THREADS {
                self.refused.insert(thread);
                continue;
            }
            match Ring::sample_thread(thread, PERIOD, self.pages) {
                Ok(ring) => {
                    self.rings.insert(thread, ring);
                    self.seen.insert(thread);
                    self.refused.remove(&thread);
                }
                Err(error) if error.errno() == errno::ESRCH => {}
                Err(error) => {
                    self.refused.insert(thread);
                    last = Some(error);
                }
            }
        }
        last
    }

    fn drain(&mut self) {
        let Sampled { samples, lost, .. } = &mut self.result;
        for ring in self.rings.values_mut() {
            ring.drain(|record| {
                *lost += record.lost();
                if let Some(sample) = record.user_sample() {
                    match samples.len() < MAX_SAMPLES {
                        true => samples.push(sample),
                        false => *lost += 1,
                    }
                }
            });
        }
    }
}

/// Nanoseconds of CPU time of a thread; 0 if it ended, or if the kernel does not count it.
fn cpu_time(root: &Root, pid: Pid, thread: Pid) -> u64 {
    let text = root.read(&format!("/proc/{pid}/task/{thread}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// The threads of a process, in the order of their ids.
fn threads(root: &Root, pid: Pid) -> Result<Vec<Pid>, SampleError> {
    let names = match root.list(&format!("/proc/{pid}/task")) {
        Err(error) if error.is_gone() => return Err(SampleError::Ended),
        names => names?,
    };
    Ok(names.iter().filter_map(|name| name.parse().ok().map(Pid)).collect())
}

/// Error numbers of perf_event_open(2) that are distinguished.
mod errno {
    pub const EPERM: i32 = 1;
    pub const ESRCH: i32 = 3;
    pub const EACCES: i32 = 13;
}
