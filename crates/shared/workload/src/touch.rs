//! `touch`: the page-fault test of 2005 (Lameter, "pft"): first touch of fresh memory.
//!
//! Each repetition allocates fresh memory, lets every thread write `lines` cache lines in each page of its share, and
//! frees it. The timed region is allocation and touch, because a design may prepare memory at either; freeing and
//! verification are not timed. The columns are those of the table of 2005 ("Gb Rep Threads CLine User System Wall
//! flt/cpu/s fault/wsec"), with one difference: faults are counted by the kernel. In 2005 each page was a fault. Today
//! one fault may map 512 pages, so the number of faults per second falls when the test gets faster. So the figure of
//! merit is the number of base pages touched per second, which on base pages equals the old column; the counted faults
//! are reported too. One line per page favours early zeroing. Raise `lines` (the "CLine" column) to see the cache
//! misses that early zeroing only moved.
//!
//! With `burst` and `gap`, the memory is allocated, touched and freed in bursts. Before each burst is a pause, in which
//! a design may prepare memory; only the bursts are timed. With `latency`, each first touch is timed. See
//! docs/decisions/bench.md#2.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::latency::ticks;
use crate::memory::{Zeroed, shares};
use crate::outcome::{Details, Run, TouchLatency};
use crate::rng::mix;
use crate::tail::{Clock, Recorder};
use crate::team::{self, Region};
use crate::usage::{Usage, page_size};
use crate::{Look, Settings, Workload, WorkloadError};

/// Bytes in a cache line.
pub const LINE: u64 = 64;
/// Default number of repetitions, as in the table of 2005.
const REPEAT: u32 = 3;
/// Default number of cache lines touched in each page, as in the table of 2005.
const LINES: u32 = 1;
/// Superpage size in bytes for classifying first touches: x86-64's, and Arm's with 4 KiB pages.
const SUPERPAGE: u64 = 2 << 20;

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of base pages in each repetition.
    pub pages: u64,
    /// Base page size in bytes.
    pub page: u64,
    /// Number of cache lines written in each page.
    pub lines: u64,
    /// Number of repetitions.
    pub repeat: u64,
    /// Number of threads.
    pub threads: usize,
    /// Seed of the written values.
    pub seed: u64,
    /// Number of base pages per burst.
    pub burst: u64,
    /// Pause before each burst.
    pub gap: Duration,
    /// Whether pages are prefaulted (MADV_POPULATE_WRITE).
    pub populate: bool,
    /// Whether each first touch is timed.
    pub latency: bool,
}

impl Plan {
    /// Applies the defaults.
    pub fn new(settings: &Settings) -> Self {
        let page = page_size().bytes();
        let pages = settings.size.bytes() / page;
        let burst = settings.options.burst.map_or(pages, |burst| burst.bytes() / page);
        Self {
            pages,
            page,
            lines: u64::from(settings.options.lines.unwrap_or(LINES)),
            repeat: u64::from(settings.options.repeat.unwrap_or(REPEAT)),
            threads: settings.threads.get(),
            seed: settings.seed,
            burst: burst.min(pages),
            gap: Duration::from_millis(settings.options.gap.unwrap_or(0).into()),
            populate: settings.options.populate,
            latency: settings.options.latency,
        }
    }

    pub(crate) fn footprint(&self) -> u64 {
        self.burst * self.page
    }

    /// Number of bursts in each repetition; remaining pages are not touched.
    pub fn bursts(&self) -> u64 {
        self.pages / self.burst.max(1)
    }

    /// The plan of one burst.
    fn piece(&self) -> Self {
        Self { pages: self.burst, ..*self }
    }

    /// The pages of each thread: each thread's pages are contiguous, so that two threads share only superpages at
    /// borders.
    pub fn shares(&self) -> Vec<Range<usize>> {
        shares(self.pages as usize, self.threads, 1)
    }

    /// Returns the writes that touch `pages`, in order: (byte offset, value).
    pub fn writes(&self, pages: Range<usize>) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Self { page, lines, seed, .. } = *self;
        pages.flat_map(move |number| {
            let start = number as u64 * page;
            (0..lines).map(move |line| {
                let offset = start + line * LINE;
                (offset, mix(offset ^ seed) | 1) // never 0, the initial value
            })
        })
    }
}

pub(crate) fn run(settings: &Settings, look: Look) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let clock = Clock::start();
    let mut all = Touched {
        region: Region { seconds: 0.0, usage: Some(Usage::default()), before: Usage::now() },
        superpage_bytes: Some(0),
        timers: plan.latency.then(Timers::default),
    };
    let mut verify_seconds = 0.0;
    for _ in 0..plan.repeat * plan.bursts() {
        std::thread::sleep(plan.gap);
        let (memory, touched) = touch(&plan.piece(), look)?;
        all.add(&touched);
        let verify = Instant::now();
        check(&memory, &plan.piece())?;
        verify_seconds += verify.elapsed().as_secs_f64();
    }
    Ok(outcome(&plan, &all, &clock, verify_seconds))
}

fn outcome(plan: &Plan, touched: &Touched, clock: &Clock, verify_seconds: f64) -> Run {
    let region = touched.region;
    let pages_touched = plan.piece().pages * plan.bursts() * plan.repeat;
    let user = region.usage.map(|usage| usage.user.as_secs_f64());
    let system = region.usage.map(|usage| usage.system.as_secs_f64());
    let cpu = user.zip(system).map(|(user, system)| user + system).filter(|&cpu| cpu > 0.0);
    let faults = region.minor_faults().map(|faults| faults as f64);
    let latency = touched.timers.as_ref().map(|timers| TouchLatency {
        pages: clock.latency(&timers.pages),
        first_of_superpages: clock.latency(&timers.firsts),
    });
    Run {
        footprint_bytes: plan.footprint(),
        setup_seconds: 0.0,
        verify_seconds,
        figure: pages_touched as f64 / region.seconds,
        details: Details::Touch {
            gib: (plan.pages * plan.page) as f64 / (1u64 << 30) as f64,
            repeat: plan.repeat,
            lines: plan.lines,
            user_seconds: user,
            system_seconds: system,
            wall_seconds: region.seconds,
            faults_per_cpu_second: faults.zip(cpu).map(|(faults, cpu)| faults / cpu),
            faults_per_wall_second: faults.map(|faults| faults / region.seconds),
            page_bytes: plan.page,
            pages_touched,
            burst_bytes: plan.footprint(),
            gap_seconds: plan.gap.as_secs_f64(),
            populated: plan.populate,
            superpage_bytes: touched.superpage_bytes,
            latency: latency.map(Box::new),
        },
        region,
    }
}

/// Results of touching one burst, or all bursts.
struct Touched {
    region: Region,
    superpage_bytes: Option<u64>,
    timers: Option<Timers>,
}

impl Touched {
    fn add(&mut self, other: &Self) {
        self.region.seconds += other.region.seconds;
        self.region.usage =
            self.region.usage.zip(other.region.usage).map(|(sum, one)| sum.plus(one));
        let bytes = self.superpage_bytes.zip(other.superpage_bytes);
        self.superpage_bytes = bytes.map(|(sum, one)| sum + one);
        if let (Some(sum), Some(one)) = (&mut self.timers, &other.timers) {
            sum.add(one);
        }
    }
}

/// Latencies of first touches: of all pages, and of the first page in each 2 MiB.
#[derive(Default)]
struct Timers {
    pages: Recorder,
    firsts: Recorder,
}

impl Timers {
    fn add(&mut self, other: &Self) {
        self.pages.add(&other.pages);
        self.firsts.add(&other.firsts);
    }
}

/// Touches one burst. Thread 0 allocates the memory inside the timed region; the other threads wait
/// for the memory.
fn touch(plan: &Plan, look: Look) -> Result<(Zeroed<AtomicU64>, Touched), WorkloadError> {
    let words = (plan.footprint() / 8) as usize;
    let memory = OnceLock::new();
    // Create the timers before the clock starts, so that timing allocates nothing.
    let timers = || plan.latency.then(Timers::default);
    let items = plan.shares().into_iter().map(|pages| (pages, timers())).collect();
    let (results, region) = team::timed(items, |thread, (pages, timers): (Range<usize>, _)| {
        let allocated = match thread {
            0 => memory.get_or_init(|| Zeroed::<AtomicU64>::new("the pages to touch", words)),
            _ => memory.wait(),
        };
        // An allocation error is reported below, once.
        let Ok(words) = allocated else { return Ok(timers) };
        if plan.populate {
            let word = |page: usize| page * (plan.page / 8) as usize;
            words.populate(word(pages.start)..word(pages.end))?;
        }
        Ok(match timers {
            None => {
                for (offset, value) in plan.writes(pages) {
                    words[(offset / 8) as usize].store(value, Relaxed);
                }
                None
            }
            Some(timers) => Some(touch_timed(plan, words, pages, timers)),
        })
    })?;
    let memory = memory.into_inner().expect("thread 0 stores the allocator's result")?;
    let mut sum = timers();
    for result in results {
        if let (Some(sum), Some(one)) = (&mut sum, &result?) {
            sum.add(one);
        }
    }
    let start = memory.as_ptr() as u64;
    let superpage_bytes = look(start..start + plan.footprint());
    Ok((memory, Touched { region, superpage_bytes, timers: sum }))
}

/// Touches with an atomic exchange, which completes only when the line has arrived; a plain store would retire earlier.
fn touch_timed(
    plan: &Plan,
    words: &[AtomicU64],
    pages: Range<usize>,
    mut timers: Timers,
) -> Timers {
    let mut superpage = None;
    for (nth, (offset, value)) in plan.writes(pages).enumerate() {
        let word = &words[(offset / 8) as usize];
        if !(nth as u64).is_multiple_of(plan.lines) {
            word.store(value, Relaxed);
            continue;
        }
        let start = ticks();
        word.swap(value, Relaxed);
        let took = ticks().wrapping_sub(start);
        timers.pages.record(took);
        let here = Some(word.as_ptr() as u64 / SUPERPAGE);
        if here != superpage {
            superpage = here;
            timers.firsts.record(took);
        }
    }
    timers
}

/// Checks that every touched line holds the written value; counts the touched pages from memory.
fn check(memory: &[AtomicU64], plan: &Plan) -> Result<(), WorkloadError> {
    let expected = plan.writes(0..plan.pages as usize);
    let good = expected
        .filter(|(offset, value)| memory[(offset / 8) as usize].load(Relaxed) == *value)
        .count() as u64;
    if good == plan.pages * plan.lines {
        return Ok(());
    }
    let all = plan.pages * plan.lines;
    Err(WorkloadError::Verification {
        workload: Workload::Touch,
        what: format!("{} of {all} touched cache lines do not hold what was written", all - good),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAN: Plan = Plan {
        pages: 65536,
        page: 16384,
        lines: 1,
        repeat: 3,
        threads: 1,
        seed: 5,
        burst: 65536,
        gap: Duration::ZERO,
        populate: false,
        latency: false,
    };

    fn plan(pages: u64, lines: u64, threads: usize) -> Plan {
        Plan { pages, page: page_size().bytes(), lines, repeat: 1, threads, burst: pages, ..PLAN }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_page_is_touched_once(pages in 4u64..64, lines in 1u64..64, threads in 1usize..5) {
            let plan = plan(pages, lines, threads);
            let (memory, _) = touch(&plan, &|_| None).unwrap();
            prop_assert!(check(&memory, &plan).is_ok());
            let written = memory.iter().filter(|word| word.load(Relaxed) != 0).count() as u64;
            prop_assert_eq!(written, pages * lines);
            let by_threads = plan.shares().into_iter().flat_map(|pages| plan.writes(pages));
            prop_assert_eq!(by_threads.count() as u64, pages * lines);
            memory[((pages - 1) * plan.page / 8) as usize].store(0, Relaxed);
            prop_assert!(check(&memory, &plan).is_err());
        }
    }

    #[test]
    fn bursts_touch_all_of_it_and_every_first_touch_is_timed() {
        let settings = Settings {
            size: units::ByteSize::mib(9),
            threads: std::num::NonZeroUsize::new(2).unwrap(),
            options: crate::Options {
                burst: Some(units::ByteSize::mib(4)),
                repeat: Some(2),
                gap: Some(1),
                lines: Some(3),
                populate: true,
                latency: true,
                ..Default::default()
            },
            ..Settings::new(Workload::Touch)
        };
        let looked_at = std::cell::Cell::new(0);
        let look = |range: Range<u64>| {
            looked_at.set(looked_at.get() + range.end - range.start);
            Some(2 << 20)
        };
        let run = run(&settings, &look).unwrap();
        let Details::Touch { pages_touched, burst_bytes, superpage_bytes, latency, .. } =
            run.details
        else {
            panic!("touch reports touch")
        };
        let page = page_size().bytes();
        assert_eq!(pages_touched, (16 << 20) / page);
        assert_eq!((burst_bytes, looked_at.get()), (4 << 20, 16 << 20));
        assert_eq!(superpage_bytes, Some(8 << 20));
        let latency = latency.unwrap();
        assert_eq!(latency.pages.distribution.count(), pages_touched);
        let firsts = latency.first_of_superpages.distribution.count();
        // Each of two threads touches 2 MiB, which overlaps one or two superpages.
        assert!((8..=16).contains(&firsts), "{firsts}");
    }

    #[test]
    fn no_memory_is_an_error_in_every_thread() {
        let error = touch(&plan(1 << 46, 1, 3), &|_| None).err().unwrap();
        assert!(matches!(error, WorkloadError::Allocation { .. }), "{error}");
    }

    #[test]
    fn the_columns_of_2005_follow_from_the_counts() {
        // Altix, 2.6.11-rc4-bk2, one thread: 1 GB, 3 times, 16 KB pages, 1.99 + 0.04 s of CPU.
        let usage = Usage {
            minor_faults: 196_608,
            user: Duration::from_millis(40),
            system: Duration::from_millis(1990),
        };
        let outcome = |seconds, usage| {
            let region = Region { seconds, usage, before: None };
            let touched = Touched { region, superpage_bytes: None, timers: None };
            super::outcome(&PLAN, &touched, &Clock::start(), 0.0)
        };
        let run = outcome(2.038, Some(usage));
        let Details::Touch { gib, faults_per_cpu_second, faults_per_wall_second, .. } = run.details
        else {
            panic!("touch reports touch")
        };
        assert_eq!(gib, 1.0);
        let close = |value: f64, printed: f64| (value / printed - 1.0).abs() < 0.005;
        assert!(close(faults_per_cpu_second.unwrap(), 96466.979));
        assert!(close(faults_per_wall_second.unwrap(), 96485.259));
        assert!(close(run.figure, 96485.259));
        let unknown = outcome(2.0, None);
        let Details::Touch { faults_per_wall_second: None, user_seconds: None, .. } =
            unknown.details
        else {
            panic!("unknown stays unknown")
        };
    }
}
