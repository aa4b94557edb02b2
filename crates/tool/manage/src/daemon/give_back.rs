//! Superpages that are mostly zero, given back when memory is short.
//!
//! Only superpages that were made here are looked at. A split gives their pages of zeros back to the kernel. Whether a
//! page is idle is not known: no kernel interface tells it of another process without changing it. See docs/decisions/manage.md#8.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use host::{Root, cgroup, waste};
use services::Process;
use sys::pagemap::Pagemap;
use units::Pid;

use super::keeper::Ledger;
use super::lock;
use crate::collapse::{State, state};
use crate::memory::Memory;

/// Superpages read in one turn.
const AT_ONCE: usize = 256;
/// Base pages read of a superpage.
const SAMPLES: u64 = 16;
/// Fewest of them that are zero in a superpage that is given back.
const ZERO: u32 = 8;
/// Memory left in a control group below which its processes give superpages back.
const LEAST_IN_GROUP: u64 = 16 << 20;
/// Share of the time in calls that split.
const DUTY: f64 = 0.5;

/// What was given back.
#[derive(Debug, Default)]
pub struct GivenBack {
    /// Number of superpages.
    pub split: u64,
    /// Bytes of zeros in them, by the sample.
    pub bytes: u64,
}

/// Processes whose control group has little memory left.
pub fn short_groups(root: &Root, processes: &[Process]) -> BTreeSet<Pid> {
    // A group's files are read once, not for each of its processes.
    let mut known = BTreeMap::<&str, bool>::new();
    let mut short = BTreeSet::new();
    for process in processes {
        let read = || {
            let left = cgroup::memory_available_of(root, process.pid);
            left.is_some_and(|left| left.bytes() < LEAST_IN_GROUP)
        };
        let is_short = match process.cgroup.as_deref() {
            Some(group) => *known.entry(group).or_insert_with(read),
            None => read(),
        };
        if is_short {
            short.insert(process.pid);
        }
    }
    short
}

/// Splits superpages of a process that are mostly zero.
pub fn from(
    root: &Root,
    process: &Process,
    ledger: &Mutex<Ledger>,
    leave_alone: Duration,
) -> GivenBack {
    let made = lock(ledger).next_made(process.pid, AT_ONCE);
    let (Ok(memory), Ok(pagemap)) = (Memory::open(root, process), Pagemap::open(process.pid))
    else {
        return GivenBack::default();
    };
    let mut zero = Vec::new();
    let mut bytes = 0;
    for start in made {
        if state(Some(&pagemap), start, memory.superpage.bytes()) != Some(State::Huge) {
            continue;
        }
        let zeros = zeros(&memory, start);
        if zeros >= ZERO {
            zero.push(start);
            bytes += memory.superpage.bytes() * u64::from(zeros) / SAMPLES;
        }
    }
    let deadline = Some(Instant::now() + Duration::from_secs(1));
    let split = memory.split(&zero, DUTY, deadline);
    zero.retain(|start| !split.left.contains(start));
    lock(ledger).given_back(process.pid, &zero, leave_alone);
    GivenBack { split: split.split, bytes: if split.split > 0 { bytes } else { 0 } }
}

/// Number of pages of zeros among some of a superpage's.
fn zeros(memory: &Memory, start: u64) -> u32 {
    let (superpage, base) = (memory.superpage.bytes(), memory.base.bytes());
    let sampled = waste::scattered(start, superpage, superpage / base, SAMPLES);
    let addresses: Vec<u64> = sampled.map(|page| start + page * base).collect();
    waste::zero_pages(memory.process.pid, &addresses, base).1
}
