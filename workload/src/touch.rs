//! `touch`: the page-fault test of 2005 (Lameter, "pft"): first touch of fresh memory.
//!
//! Each repetition allocates fresh memory, lets every thread write `lines` cache lines in each
//! page of its share, and frees it. The timed region is allocation and touch, because a design may
//! prepare memory at either; freeing and verifying are not timed. The columns are those of the
//! table of 2005 ("Gb Rep Threads CLine User System Wall flt/cpu/s fault/wsec"), with one
//! difference: faults are counted by the kernel. In 2005 a page was a fault; today one fault may
//! map 512 pages, and faults per second falls as the test gets faster. So the figure of merit is
//! base pages touched per second, which on base pages is the old column, and the counted faults
//! stand beside it. One line per page favours early zeroing; raise `lines` to see the cache misses
//! that it only moved (`lines` was the "CLine" column).

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::memory::{Zeroed, shares};
use crate::outcome::{Details, Run};
use crate::rng::mix;
use crate::team::{self, Region};
use crate::usage::{Usage, page_size};
use crate::{Settings, Workload, WorkloadError};

/// Bytes in a cache line.
pub const LINE: u64 = 64;
/// Repetitions, as in the table of 2005.
const REPEAT: u32 = 3;
/// Cache lines touched in each page, as in the table of 2005.
const LINES: u32 = 1;

/// The settings of a run, defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Base pages in each repetition.
    pub pages: u64,
    /// Bytes in a base page.
    pub page: u64,
    /// Cache lines written in each page.
    pub lines: u64,
    /// Repetitions.
    pub repeat: u64,
    /// Threads.
    pub threads: usize,
    /// The seed of what is written.
    pub seed: u64,
}

impl Plan {
    /// Applies the defaults.
    pub fn new(settings: &Settings) -> Self {
        let page = page_size().bytes();
        Self {
            pages: settings.size.bytes() / page,
            page,
            lines: u64::from(settings.options.lines.unwrap_or(LINES)),
            repeat: u64::from(settings.options.repeat.unwrap_or(REPEAT)),
            threads: settings.threads.get(),
            seed: settings.seed,
        }
    }

    pub(crate) fn footprint(&self) -> u64 {
        self.pages * self.page
    }

    /// The pages of each thread: adjoining, so that a superpage has one toucher but at borders.
    pub fn shares(&self) -> Vec<Range<usize>> {
        shares(self.pages as usize, self.threads, 1)
    }

    /// What is written while `pages` are touched: (byte offset, value), in order.
    pub fn writes(&self, pages: Range<usize>) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Self { page, lines, seed, .. } = *self;
        pages.flat_map(move |number| {
            let start = number as u64 * page;
            (0..lines).map(move |line| {
                let offset = start + line * LINE;
                (offset, mix(offset ^ seed) | 1) // never the zero that is there already
            })
        })
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let mut total = Region {
        seconds: 0.0,
        usage: Some(Usage { minor_faults: 0, user: Duration::ZERO, system: Duration::ZERO }),
    };
    let mut verify_seconds = 0.0;
    for _ in 0..plan.repeat {
        let (memory, region) = touch(&plan)?;
        total.seconds += region.seconds;
        total.usage = total.usage.zip(region.usage).map(|(sum, one)| Usage {
            minor_faults: sum.minor_faults + one.minor_faults,
            user: sum.user + one.user,
            system: sum.system + one.system,
        });
        let verify = Instant::now();
        check(&memory, &plan)?;
        verify_seconds += verify.elapsed().as_secs_f64();
    }
    Ok(outcome(&plan, total, verify_seconds))
}

fn outcome(plan: &Plan, region: Region, verify_seconds: f64) -> Run {
    let pages_touched = plan.pages * plan.repeat;
    let user = region.usage.map(|usage| usage.user.as_secs_f64());
    let system = region.usage.map(|usage| usage.system.as_secs_f64());
    let cpu = user.zip(system).map(|(user, system)| user + system).filter(|&cpu| cpu > 0.0);
    let faults = region.minor_faults().map(|faults| faults as f64);
    Run {
        footprint_bytes: plan.footprint(),
        setup_seconds: 0.0,
        verify_seconds,
        figure: pages_touched as f64 / region.seconds,
        details: Details::Touch {
            gib: plan.footprint() as f64 / (1u64 << 30) as f64,
            repeat: plan.repeat,
            lines: plan.lines,
            user_seconds: user,
            system_seconds: system,
            wall_seconds: region.seconds,
            faults_per_cpu_second: faults.zip(cpu).map(|(faults, cpu)| faults / cpu),
            faults_per_wall_second: faults.map(|faults| faults / region.seconds),
            page_bytes: plan.page,
            pages_touched,
        },
        region,
    }
}

/// One repetition. Thread 0 allocates inside the timed region; the others wait for the memory.
fn touch(plan: &Plan) -> Result<(Zeroed<AtomicU64>, Region), WorkloadError> {
    let words = (plan.footprint() / 8) as usize;
    let memory = OnceLock::new();
    let (_, region) = team::timed(plan.shares(), |thread, pages| {
        let allocated = match thread {
            0 => memory.get_or_init(|| Zeroed::<AtomicU64>::new("the pages to touch", words)),
            _ => memory.wait(),
        };
        let Ok(words) = allocated else { return };
        for (offset, value) in plan.writes(pages) {
            words[(offset / 8) as usize].store(value, Relaxed);
        }
    })?;
    let memory = memory.into_inner().expect("thread 0 stores what the allocator said");
    Ok((memory?, region))
}

/// Every touched line holds what was written; the number of pages is counted again from memory.
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

    fn plan(pages: u64, lines: u64, threads: usize) -> Plan {
        Plan { pages, page: page_size().bytes(), lines, repeat: 1, threads, seed: 5 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_page_is_touched_once(pages in 4u64..64, lines in 1u64..64, threads in 1usize..5) {
            let plan = plan(pages, lines, threads);
            let (memory, _) = touch(&plan).unwrap();
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
    fn no_memory_is_an_error_in_every_thread() {
        let error = touch(&plan(1 << 46, 1, 3)).unwrap_err();
        assert!(matches!(error, WorkloadError::Allocation { .. }), "{error}");
    }

    #[test]
    fn the_columns_of_2005_follow_from_the_counts() {
        // Altix, 2.6.11-rc4-bk2, one thread: 1 GB, 3 times, 16 KB pages, 1.99 + 0.04 s of CPU.
        let plan = Plan { pages: 65536, page: 16384, lines: 1, repeat: 3, threads: 1, seed: 1 };
        let usage = Usage {
            minor_faults: 196_608,
            user: Duration::from_millis(40),
            system: Duration::from_millis(1990),
        };
        let run = outcome(&plan, Region { seconds: 2.038, usage: Some(usage) }, 0.0);
        let Details::Touch { gib, faults_per_cpu_second, faults_per_wall_second, .. } = run.details
        else {
            panic!("touch reports touch")
        };
        assert_eq!(gib, 1.0);
        let close = |value: f64, printed: f64| (value / printed - 1.0).abs() < 0.005;
        assert!(close(faults_per_cpu_second.unwrap(), 96466.979));
        assert!(close(faults_per_wall_second.unwrap(), 96485.259));
        assert!(close(run.figure, 96485.259));
        let unknown = outcome(&plan, Region { seconds: 2.0, usage: None }, 0.0);
        let Details::Touch { faults_per_wall_second: None, user_seconds: None, .. } =
            unknown.details
        else {
            panic!("unknown stays unknown")
        };
    }
}
