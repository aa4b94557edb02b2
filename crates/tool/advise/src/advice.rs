//! `Advice`: what superpages would bring to one process, where, and for how much memory.
//!
//! How far it is off: docs/decisions/advise.md#5.

use std::time::Duration;

use host::coverage::MappingKind;
use host::process::Sharing;
use host::{FreeContiguity, Pmu, Root, process};
use serde::Serialize;
use services::{AddressSpace, Extent, Process, SpaceError};
use units::{ByteSize, PageSize, Pid};

use crate::code::Code;
use crate::combine::Footprint;
use crate::damon::Damon;
use crate::fleet::cpus;
use crate::memory::{is_eligible, spread};
use crate::model::{Costs, Estimate};
use crate::peek::{Peek, Running};
use crate::remedy::{Remedy, remedies_of};
use crate::replay::{Replay, Window};
use crate::sampler::{PERIOD, SampleError, Sampled, Sampler};
use crate::verdict::{Accesses, Verdict};

/// Samples replayed in all. Replaying one and pricing its accesses takes a millisecond.
const WINDOWS: f64 = 600.0;
/// Most samples replayed at once, every 25 ms.
const WINDOWS_AT_ONCE: usize = 4;
/// Why no advice can be given.
#[derive(Debug, thiserror::Error)]
pub enum AdviceError {
    /// The process cannot be sampled.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Its memory cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// Its code cannot be read.
    #[error("its code cannot be read: {0}; run as the process's owner or root (CAP_SYS_PTRACE)")]
    Code(sys::SysError),
    /// A 32-bit program, whose registers and code are of another kind.
    #[error("it is a 32-bit program, which is not supported")]
    Bits32,
}

/// Advice about one process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The process.
    pub process: Process,
    /// What superpages would bring.
    pub verdict: Verdict,
    /// Memory that superpages would add, in bytes: pages of its blocks that are not resident now.
    pub extra_bytes: ByteSize,
    /// Bytes of the process that superpages could hold and do not.
    pub on_base_pages: ByteSize,
    /// Bytes of the process on superpages.
    pub on_superpages: ByteSize,
    /// The part of these three that is shared memory, which other processes may have too.
    pub shared: Footprint,
    /// Free memory in blocks of a superpage; `None`: unknown.
    pub contiguity: Option<Contiguity>,
    /// Regions with a gain, by gain per byte, the best first.
    pub regions: Vec<Region>,
    /// How accesses were found.
    pub look: Look,
    /// What to write where; empty without a gain.
    pub remedies: Vec<Remedy>,
}

/// Free contiguous memory beside what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Contiguity {
    /// Superpages that the process's blocks need.
    pub needed: u64,
    /// Superpages that free memory holds without compaction.
    pub free: u64,
}

/// A mapping of the process, with what superpages would bring to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// The mapping's name.
    pub name: String,
    /// Kind of memory.
    pub kind: MappingKind,
    /// Bytes on base pages in blocks that superpages could hold.
    pub on_base_pages: ByteSize,
    /// Bytes that superpages would add.
    pub extra_bytes: ByteSize,
    /// Share of the samples' accesses that are to this region.
    pub accesses: f64,
    /// Share of the process's CPU time that its superpages would save.
    pub saved: f64,
}

/// How accesses were found, and what that cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Look {
    /// Seconds of sampling.
    pub seconds: f64,
    /// Samples.
    pub samples: usize,
    /// Samples whose access's address is known.
    pub attributed: usize,
    /// Samples whose access's address is lost.
    pub lost: usize,
    /// Samples without an access.
    pub without: usize,
    /// Samples in code that could not be read or decoded.
    pub unreadable: usize,
    /// Samples that the kernel dropped.
    pub dropped: u64,
    /// Threads sampled.
    pub threads: usize,
    /// Threads that were not sampled: too many, or refused.
    pub unsampled_threads: usize,
    /// Whether the process ended meanwhile.
    pub ended: bool,
    /// CPU seconds of the process meanwhile; `None`: unknown, because it ended.
    pub cpu_seconds: Option<f64>,
    /// Share of its CPU time in user mode.
    pub user_share: Option<f64>,
    /// CPU seconds of this look itself.
    pub own_seconds: f64,
    /// Page faults without I/O per second of the process's CPU time.
    pub faults_per_second: Option<f64>,
    /// Share of the samples that are to accesses in order.
    pub sequential: f64,
    /// Effective number of base pages in use at random.
    pub pages: f64,
    /// Samples whose following instructions were replayed.
    pub windows: usize,
    /// Share of the samples whose instruction was replayed often enough.
    pub replayed: f64,
    /// Groups of eight neighbouring frames that the base pages are in, as a multiple of the fewest possible, 1 to 8;
    /// `None`: unknown.
    pub spread: Option<f64>,
    /// DAMON, which was not used.
    pub damon: Damon,
    /// Whether there is a PMU, whose samples would have addresses.
    pub has_pmu: bool,
}

impl Advice {
    /// The process's memory.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            on_base_pages: self.on_base_pages,
            on_superpages: self.on_superpages,
            extra_bytes: self.extra_bytes,
        }
    }
}

impl Look {
    /// CPUs that the process used; of a process that ended, those of its samples.
    pub fn cpus(&self) -> f64 {
        cpus(self.cpu_seconds, self.samples, self.seconds)
    }
}

/// Fails if a process cannot be looked at, as [`advise`] would.
///
/// # Errors
/// perf or the memory of the process cannot be read.
pub fn check(root: &Root, process: &Process) -> Result<(), AdviceError> {
    open(root, process)?;
    Sampler::open(root, process)?;
    Ok(())
}

/// Opens the memory of a process.
fn open(root: &Root, process: &Process) -> Result<Peek<Running>, AdviceError> {
    Peek::open(process.pid, root.page_size()).map_err(|error| match process.is_running(root) {
        true => AdviceError::Code(error),
        false => SpaceError::Ended.into(),
    })
}

/// Looks at a process for `time`; `goes_on` ends the look by returning false. `prices` are those of this machine.
///
/// # Errors
/// perf, the memory or the code of the process cannot be read, or it is a 32-bit program.
pub fn advise(
    root: &Root,
    process: &Process,
    time: Duration,
    prices: &Costs,
    goes_on: impl FnMut(Duration) -> bool,
) -> Result<Advice, AdviceError> {
    let mut peek = open(root, process)?;
    // Before the samples: a process that ends meanwhile leaves no address space to read.
    let before = AddressSpace::read(root, process)?;
    let own = sys::param::thread_cpu_time();
    let usage = Usage::read(root, process.pid);
    let (sampled, windows) = sample(root, process, time, &mut peek, goes_on)?;
    let usage = Usage::read(root, process.pid).since(&usage, &sampled);
    let space = AddressSpace::read(root, process).unwrap_or(before);
    if !sampled.samples.is_empty()
        && sampled.samples.iter().all(|sample| sample.registers.is_none())
    {
        return Err(AdviceError::Bits32);
    }
    peek.forget();
    let mut code =
        Code::new(Box::new(move |address, buffer: &mut [u8]| peek.read(address, buffer)));
    let accesses = Accesses::new(&sampled, windows, &mut code, &space);
    let user_share = usage.user_share.unwrap_or(1.0);
    let spread = spread(&space);
    let estimate = |prices: &Costs| accesses.estimate(prices, user_share, usage.faults_per_second);
    let mut found = estimate(&prices.at(spread));
    if spread.is_none() && prices.near.is_some() {
        // Frames may be neighbours: then base pages cost least.
        found.verdict = found.verdict.down_to(&estimate(&prices.at(Some(1.0))).verdict);
    }
    let regions = regions(&space, &accesses, &found.estimate, user_share);
    let sum = |bytes: fn(&Region) -> ByteSize| {
        ByteSize(regions.iter().map(|region| bytes(region).bytes()).sum())
    };
    let extra_bytes = sum(|region| region.extra_bytes);
    let of_shared = |bytes: fn(&Region) -> ByteSize| {
        let shared = regions.iter().filter(|region| region.kind == MappingKind::Shmem);
        ByteSize(shared.map(|region| bytes(region).bytes()).sum())
    };
    let is_shared = |extent: &&Extent| extent.mapping.sharing == Sharing::Shared;
    let huge = space.extents.iter().filter(is_shared).map(|extent| extent.pages.huge.bytes());
    let shared = Footprint {
        on_base_pages: of_shared(|region| region.on_base_pages),
        on_superpages: ByteSize(huge.sum()),
        extra_bytes: of_shared(|region| region.extra_bytes),
    };
    let on_base_pages = sum(|region| region.on_base_pages);
    let needed = ByteSize(extra_bytes.bytes() + on_base_pages.bytes());
    let remedies = match found.verdict {
        Verdict::Gain(_) => {
            remedies_of(root, process, space.extents.iter().map(|one| one.mapping.name.as_str()))
        }
        _ => Vec::new(),
    };
    Ok(Advice {
        process: process.clone(),
        verdict: found.verdict,
        extra_bytes,
        on_base_pages,
        on_superpages: space.pages().huge,
        shared,
        contiguity: Contiguity::read(root, needed, space.superpage),
        regions: regions.into_iter().filter(|region| region.saved > 0.0).collect(),
        look: Look {
            seconds: sampled.seconds,
            samples: sampled.samples.len(),
            attributed: accesses.seen.len(),
            lost: accesses.lost,
            without: accesses.without,
            unreadable: accesses.unreadable,
            dropped: sampled.lost,
            threads: sampled.threads,
            unsampled_threads: sampled.unsampled,
            ended: sampled.ended,
            cpu_seconds: usage.cpu_seconds,
            user_share: usage.user_share,
            own_seconds: (sys::param::thread_cpu_time() - own).as_secs_f64(),
            faults_per_second: usage.faults_per_second,
            sequential: found.estimate.sequential,
            pages: found.estimate.pages,
            windows: found.estimate.windows,
            replayed: found.estimate.replayed,
            spread,
            damon: Damon::probe(root),
            has_pmu: Pmu::read(root).is_ok_and(|pmu| pmu.is_some()),
        },
        remedies,
    })
}

/// Samples a process, and replays some of the samples while the memory is as they found it.
fn sample(
    root: &Root,
    process: &Process,
    time: Duration,
    peek: &mut Peek<Running>,
    mut goes_on: impl FnMut(Duration) -> bool,
) -> Result<(Sampled, Vec<Window>), SampleError> {
    let mut replay = Replay::default();
    let mut windows = Vec::new();
    let sampled = Sampler::open(root, process)?.run(time, |passed, new| {
        // The last samples: the nearest to what memory holds now.
        let due = (WINDOWS * passed.as_secs_f64() / time.as_secs_f64()) as usize;
        for sample in new.iter().rev().take(due.saturating_sub(windows.len()).min(WINDOWS_AT_ONCE))
        {
            if let Some(registers) = &sample.registers {
                peek.forget();
                windows.push(replay.window(sample.instruction, registers, sample.flags, peek));
            }
        }
        goes_on(passed)
    });
    Ok((sampled, windows))
}

/// What a process has used since its start; `None`: unknown.
struct Usage {
    cpu: Option<Duration>,
    minor_faults: Option<u64>,
}

/// What a process used while it was sampled; `None`: unknown.
struct Used {
    cpu_seconds: Option<f64>,
    user_share: Option<f64>,
    faults_per_second: Option<f64>,
}

impl Usage {
    fn read(root: &Root, pid: Pid) -> Self {
        Self {
            cpu: sys::param::process_cpu_time(pid).ok(),
            minor_faults: process::stat(root, pid).ok().map(|stat| stat.minor_faults),
        }
    }

    fn since(&self, before: &Self, sampled: &Sampled) -> Used {
        let cpu_seconds = match (before.cpu, self.cpu, sampled.ended) {
            (Some(before), Some(after), false) => Some(after.saturating_sub(before).as_secs_f64()),
            _ => None,
        };
        let busy = cpu_seconds.filter(|seconds| *seconds > 0.0);
        let user = sampled.samples.len() as f64 * PERIOD as f64 * 1e-9;
        let faults = before.minor_faults.zip(self.minor_faults);
        let faults = faults.map(|(before, after)| after.saturating_sub(before) as f64);
        Used {
            cpu_seconds,
            user_share: busy.map(|seconds| (user / seconds).min(1.0)),
            faults_per_second: faults.zip(busy).map(|(faults, seconds)| faults / seconds),
        }
    }
}

impl Contiguity {
    fn read(root: &Root, needed: ByteSize, superpage: PageSize) -> Option<Self> {
        let free = FreeContiguity::for_programs(root, superpage).ok()?.superpages?;
        Some(Self { needed: needed.bytes().div_ceil(superpage.bytes()), free })
    }
}

fn regions(
    space: &AddressSpace,
    accesses: &Accesses,
    estimate: &Estimate,
    user_share: f64,
) -> Vec<Region> {
    let superpage = space.superpage.bytes();
    let mut regions: Vec<Region> = space
        .extents
        .iter()
        .filter(|extent| is_eligible(extent, space))
        .map(|extent| {
            let (start, end) = (extent.mapping.start, extent.mapping.end);
            let (mut base, mut extra) = (0, 0);
            for block in extent.blocks.iter().filter(|block| block.pages.huge == 0) {
                let inside = end.min(block.start + superpage) - start.max(block.start);
                let resident = u64::from(block.pages.resident()) * space.base.bytes();
                if resident > 0 {
                    base += resident;
                    extra += inside.saturating_sub(resident);
                }
            }
            let to =
                accesses.seen.iter().filter(|seen| (start..end).contains(&seen.access.address));
            let saved: f64 = estimate.by_page.range(start..end).map(|(_, saved)| saved).sum();
            Region {
                start,
                end,
                name: extent.mapping.name.clone(),
                kind: extent.kind,
                on_base_pages: ByteSize(base),
                extra_bytes: ByteSize(extra),
                accesses: to.count() as f64 / accesses.total().max(1) as f64,
                saved: saved * user_share,
            }
        })
        .collect();
    let per_byte = |region: &Region| {
        region.saved / (region.on_base_pages.bytes() + region.extra_bytes.bytes()).max(1) as f64
    };
    regions.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)));
    regions
}

/// The processes to look at: those with most memory, if there are more than `most`. Returns how many were left out.
pub fn largest(root: &Root, processes: Vec<Process>, most: usize) -> (Vec<Process>, usize) {
    let left = processes.len().saturating_sub(most);
    let size = |pid: Pid| {
        process::resident(root, pid)
            .ok()
            .and_then(|resident| resident.total())
            .map_or(0, ByteSize::bytes)
    };
    let mut sized: Vec<(u64, Process)> =
        processes.into_iter().map(|one| (size(one.pid), one)).collect();
    sized.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    (sized.into_iter().take(most).map(|(_, one)| one).collect(), left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::prices;

    #[test]
    fn what_a_block_saves_is_of_the_mapping_that_was_accessed() {
        use host::process::{Device, Mapping};
        use services::{Block, Pages};

        const MIB: u64 = 1 << 20;
        let size = |bytes| PageSize::new(bytes).unwrap();
        // Two mappings that meet in the middle of a block.
        let extent = |start: u64, end: u64| Extent {
            mapping: Mapping {
                start,
                end,
                readable: true,
                writable: true,
                executable: false,
                sharing: Sharing::Private,
                offset: 0,
                device: Device { major: 0, minor: 0 },
                inode: 0,
                name: String::new(),
            },
            kind: MappingKind::Anonymous,
            pages: Default::default(),
            blocks: vec![Block { start: 4 * MIB, pages: Pages { base: 256, ..Pages::default() } }],
        };
        let mut process = Process::read(&Root::real(), sys::param::own_pid()).unwrap().unwrap();
        process.pid = Pid(1);
        let space = AddressSpace {
            process,
            superpage: size(2 * MIB),
            base: size(4096),
            longest_hold: Duration::ZERO,
            extents: vec![extent(2 * MIB, 5 * MIB), extent(5 * MIB, 8 * MIB)],
        };
        let accesses = Accesses {
            seen: Vec::new(),
            windows: Vec::new(),
            lost: 0,
            without: 0,
            unreadable: 0,
            counts: Default::default(),
            shifts: crate::memory::Shifts::of(&space),
        };
        let by_page = std::collections::BTreeMap::from([(4 * MIB, 0.1), (5 * MIB - 4096, 0.2)]);
        let estimate = Estimate { by_page, ..Estimate::default() };
        let regions = regions(&space, &accesses, &estimate, 1.0);
        let saved = |start| regions.iter().find(|one| one.start == start).unwrap().saved;
        assert!((saved(2 * MIB) - 0.3).abs() < 1e-12, "{regions:?}");
        assert_eq!(saved(5 * MIB), 0.0, "{regions:?}");
    }

    /// A thread that updates random words of a mapping: nearly all samples are at accesses to it, and replays go on there.
    #[test]
    fn accesses_of_a_live_thread_are_found_where_they_are() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use sys::mem::{Advice as Advised, Mapping};

        let root = Root::real();
        let superpage = match host::Thp::pmd_size_of(&root) {
            Ok(size) => size,
            Err(error) => return testkit::skipped!("this kernel has no THP: {error}"),
        };
        let mut memory = Mapping::aligned(64 << 20, superpage).unwrap();
        memory.advise(Advised::NoHugePage).unwrap();
        memory.bytes_mut().fill(1);
        let range = memory.address()..memory.address() + (64 << 20);
        // The kernel may join it with a neighbour.
        let is_it = |region: &Region| region.start < range.end && region.end > range.start;
        let stop = AtomicBool::new(false);
        let looked = std::thread::scope(|scope| {
            let (stop, words) = (&stop, memory.bytes_mut().as_chunks_mut::<8>().0);
            scope.spawn(move || {
                let mut at = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        at ^= at << 13;
                        at ^= at >> 7;
                        at ^= at << 17;
                        let word = &mut words[at as usize & ((8 << 20) - 1)];
                        *word = (u64::from_ne_bytes(*word) ^ at).to_ne_bytes();
                    }
                }
            });
            let own = Process::read(&root, sys::param::own_pid()).unwrap().unwrap();
            // Other tests run in this process, and other programs on this machine: until there is a gain to tell.
            let mut looked = Err(AdviceError::Sample(SampleError::Ended));
            for _ in 0..20 {
                looked = advise(&root, &own, Duration::from_secs(2), &prices(), |_| true);
                match &looked {
                    Ok(advice) if !advice.regions.iter().any(is_it) => {}
                    _ => break,
                }
            }
            stop.store(true, Ordering::Relaxed);
            looked
        });
        match looked {
            Ok(advice) => {
                let region = advice.regions.iter().find(|region| is_it(region));
                let region = region.unwrap_or_else(|| panic!("{advice:?}"));
                assert!(region.saved > 0.0 && region.accesses > 0.0, "{region:?}");
                assert!(advice.look.windows > 0 && advice.look.own_seconds > 0.0, "{advice:?}");
            }
            Err(AdviceError::Space(SpaceError::NoScan)) => {
                testkit::skipped!("this kernel has no PAGEMAP_SCAN");
            }
            Err(error @ AdviceError::Sample(SampleError::Denied(_) | SampleError::NoPerf(_))) => {
                testkit::skipped!("no samples here: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
