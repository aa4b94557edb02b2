//! Times the first touch of anonymous memory: the cost of faults and of the kernel's zeroing.

use std::time::{Duration, Instant};

use host::coverage;
use sys::SysError;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use sys::param::thread_cpu_time;
use units::PageSize;

const TOUCHED: usize = 128 << 20;

pub(crate) struct FirstTouch {
    /// Wall time of the touch alone.
    pub touching: f64,
    /// CPU time of the touch and of releasing the memory, which every program does by its end.
    pub with_return: f64,
    /// Share (0 to 1) of the memory on superpages; `None` if the kernel does not report it.
    pub on_superpages: Option<f64>,
}

/// Touches one byte per `page` bytes in advised memory, `rounds` times, after a first round that warms the frames. A
/// kernel without THP refuses the advice and uses only base pages.
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

/// Returns the share (0 to 1) of the memory on superpages; `None` if the kernel does not report it.
pub(crate) fn on_superpages(memory: &Mapping) -> Option<f64> {
    Some(pages_of(memory)?.huge.bytes() as f64 / memory.len() as f64)
}

/// Returns the page sizes of the memory; `None` if the kernel does not report them (before Linux 6.7).
pub(crate) fn pages_of(memory: &Mapping) -> Option<coverage::Scanned> {
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    let start = memory.address();
    coverage::scan(&pagemap, start, start + memory.len() as u64).ok()
}
