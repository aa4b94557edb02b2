//! The first touch of anonymous memory, timed: what faults and the kernel's zeroing cost a program.

use std::time::{Duration, Instant};

use host::coverage;
use sys::SysError;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use sys::param::thread_cpu_time;
use units::PageSize;

/// What is touched for the first time at once.
const TOUCHED: usize = 128 << 20;

/// One time, in nanoseconds of a page.
pub(crate) struct FirstTouch {
    /// By the clock, the touch alone.
    pub touching: f64,
    /// CPU time of it and of giving the memory back, which every program does: at the latest when it ends.
    pub with_return: f64,
    /// The share that lay on superpages; `None` if the kernel does not tell.
    pub on_superpages: Option<f64>,
}

/// Touches a byte of every `page` bytes in memory that is advised so, `rounds` times, after one that finds frames
/// cold that the others find warm. A kernel without THP refuses the advice, and has base pages only.
pub(crate) fn first_touches(
    superpage: PageSize,
    advice: Advice,
    page: usize,
    rounds: usize,
) -> Result<Vec<FirstTouch>, SysError> {
    let touched = TOUCHED.max(superpage.bytes() as usize);
    let each = |took: Duration| took.as_secs_f64() * 1e9 / (touched / page) as f64;
    let mut times = Vec::new();
    for round in 0..=rounds {
        let mut memory = Mapping::aligned(touched, superpage)?;
        let _ = memory.advise(advice);
        let (start, cpu) = (Instant::now(), thread_cpu_time());
        memory.bytes_mut().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        let touching = each(start.elapsed());
        let used = thread_cpu_time() - cpu;
        let on_superpages = on_superpages(&memory);
        let cpu = thread_cpu_time();
        drop(memory);
        let with_return = each(used + (thread_cpu_time() - cpu));
        if round > 0 {
            times.push(FirstTouch { touching, with_return, on_superpages });
        }
    }
    Ok(times)
}

/// The share of it that lies on superpages; `None` if the kernel does not tell.
pub(crate) fn on_superpages(memory: &Mapping) -> Option<f64> {
    Some(pages_of(memory)?.huge.bytes() as f64 / memory.len() as f64)
}

/// On which pages it lies; `None` if the kernel does not tell (before Linux 6.7).
pub(crate) fn pages_of(memory: &Mapping) -> Option<coverage::Scanned> {
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    let start = memory.address();
    coverage::scan(&pagemap, start, start + memory.len() as u64).ok()
}
