//! `Advice`: what superpages would bring to one process, where, and for how much memory.
//!
//! How far it is off: docs/decisions/advise.md#5.

use std::collections::BTreeMap;
use std::time::Duration;

use host::coverage::MappingKind;
use host::{FreeContiguity, Pmu, Root, process};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use services::{AddressSpace, Process, SpaceError};
use units::{ByteSize, Pid};

use crate::memory::{On, Seen, Shifts, is_eligible};
use crate::model::{Costs, Estimate, Model, Replayed};
use crate::peek::{Peek, Running};
use crate::remedy::{Allocator, Facts, Remedy, remedies};
use crate::sampler::{PERIOD, SampleError, Sampled, Sampler};
use crate::streams::Orders;
use crate::{Attribution, Code, Damon, Replay, Window};

/// Fewest samples with which a gain is told.
pub const MIN_SAMPLES: usize = 300;
/// Largest share of samples whose accesses are lost with which a gain is told.
pub const MAX_LOST: f64 = 0.5;
/// Samples replayed in all. Replaying one and pricing its accesses takes a millisecond.
const WINDOWS: f64 = 600.0;
/// Most samples replayed at once, every 25 ms.
const WINDOWS_AT_ONCE: usize = 4;
/// Resamplings of the samples, whose estimates show the error of sampling.
const RESAMPLINGS: usize = 24;
/// Consecutive samples that are resampled together: neighbours are alike.
const TOGETHER: usize = 20;
/// Relative error of the model and of the prices. Fitted to `scripts/advise-check`'s programs: docs/decisions/advise.md#4.
const MODEL_ERROR: f64 = 0.15;
/// Error of the prices of data as a share of the time at random accesses to more than [`LITTLE`] pages.
const EXPOSED_ERROR: f64 = 0.035;
/// Base pages that the second-level TLB of every known processor holds.
const LITTLE: f64 = 512.0;
/// Error where nothing is saved, as a share of the time.
const LEAST_ERROR: f64 = 0.012;
/// Gains below this are none.
const NONE: f64 = 0.01;

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
    /// Free memory in blocks of a superpage; `None`: unknown.
    pub contiguity: Option<Contiguity>,
    /// Regions with a gain, by gain per byte, the best first.
    pub regions: Vec<Region>,
    /// How accesses were found.
    pub look: Look,
    /// What to write where; empty without a gain.
    pub remedies: Vec<Remedy>,
}

/// A change of speed as a share: 0.09 is 9 % more work in the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// Lower bound.
    pub low: f64,
    /// Best estimate.
    pub mid: f64,
    /// Upper bound.
    pub high: f64,
}

/// What superpages would bring.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Verdict {
    /// This much more speed.
    Gain(Range),
    /// Nothing that is worth it.
    None(Range),
    /// Not known.
    Unknown(Why),
}

/// Why a gain is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Why {
    /// The process used too little CPU time in user mode.
    FewSamples,
    /// Too many accesses have addresses that could not be computed.
    Lost,
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
    /// DAMON, which was not used.
    pub damon: Damon,
    /// Whether there is a PMU, whose samples would have addresses.
    pub has_pmu: bool,
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
    mut goes_on: impl FnMut(Duration) -> bool,
) -> Result<Advice, AdviceError> {
    let running = || Running::open(process.pid).map_err(AdviceError::Code);
    let page = root.page_size().bytes();
    let (mut now, mut texts) = (Peek::new(running()?, page), Peek::new(running()?, page));
    // Before the samples: a process that ends meanwhile leaves no address space to read.
    let before = AddressSpace::read(root, process)?;
    let own = sys::param::thread_cpu_time();
    let cpu = sys::param::process_cpu_time(process.pid).ok();
    let faults = process::stat(root, process.pid).ok();
    let mut replay = Replay::default();
    let mut windows = Vec::new();
    let sampled = Sampler::open(root, process)?.run(time, |passed, new| {
        // The last samples: the nearest to what memory holds now.
        let due = (WINDOWS * passed.as_secs_f64() / time.as_secs_f64()) as usize;
        for sample in new.iter().rev().take(due.saturating_sub(windows.len()).min(WINDOWS_AT_ONCE))
        {
            if let Some(registers) = &sample.registers {
                now.forget();
                windows.push(replay.window(sample.instruction, registers, sample.flags, &mut now));
            }
        }
        goes_on(passed)
    });
    let cpu_after = sys::param::process_cpu_time(process.pid).ok();
    let faults_after = process::stat(root, process.pid).ok();
    let space = AddressSpace::read(root, process).unwrap_or(before);
    if !sampled.samples.is_empty()
        && sampled.samples.iter().all(|sample| sample.registers.is_none())
    {
        return Err(AdviceError::Bits32);
    }
    let mut code =
        Code::new(Box::new(move |address, buffer: &mut [u8]| texts.read(address, buffer)));
    let accesses = Accesses::new(&sampled, windows, &mut code, &space);
    let cpu_seconds = match (cpu, cpu_after, sampled.ended) {
        (Some(before), Some(after), false) => Some(after.saturating_sub(before).as_secs_f64()),
        _ => None,
    };
    let user = sampled.samples.len() as f64 * PERIOD as f64 * 1e-9;
    let user_share = cpu_seconds.filter(|all| *all > 0.0).map(|all| (user / all).min(1.0));
    let faults_per_second = match (faults, faults_after, cpu_seconds) {
        (Some(before), Some(after), Some(seconds)) if seconds > 0.0 => {
            Some(after.minor_faults.saturating_sub(before.minor_faults) as f64 / seconds)
        }
        _ => None,
    };
    let found = accesses.estimate(prices, user_share.unwrap_or(1.0), faults_per_second);
    let has = |is: fn(&str) -> bool| space.extents.iter().any(|one| is(&one.mapping.name));
    let allocator = match () {
        () if has(|name| name.contains("/libjemalloc.so")) => Allocator::Jemalloc,
        () if has(is_glibc) => Allocator::Glibc,
        () => Allocator::Unknown,
    };
    let regions = regions(&space, &accesses, &found.estimate, user_share.unwrap_or(1.0));
    let sum = |bytes: fn(&Region) -> ByteSize| {
        ByteSize(regions.iter().map(|region| bytes(region).bytes()).sum())
    };
    let extra_bytes = sum(|region| region.extra_bytes);
    let on_base_pages = sum(|region| region.on_base_pages);
    let needed = (extra_bytes.bytes() + on_base_pages.bytes()).div_ceil(space.superpage.bytes());
    let contiguity = FreeContiguity::for_programs(root, space.superpage).ok();
    let contiguity =
        contiguity.and_then(|found| Some(Contiguity { needed, free: found.superpages? }));
    let remedies = match found.verdict {
        Verdict::Gain(_) => {
            let parent = services::Process::read(root, process.parent).ok().flatten();
            remedies(&Facts {
                process,
                parent_command: parent.as_ref().map_or(&[], |parent| &parent.command),
                allocator,
                thp_enabled: host::process::status(root, process.pid)
                    .ok()
                    .and_then(|status| status.thp_enabled),
            })
        }
        _ => Vec::new(),
    };
    let gaining = regions.into_iter().filter(|region| region.saved > 0.0).collect();
    Ok(Advice {
        process: process.clone(),
        verdict: found.verdict,
        extra_bytes,
        on_base_pages,
        on_superpages: space.pages().huge,
        contiguity,
        regions: gaining,
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
            cpu_seconds,
            user_share,
            own_seconds: (sys::param::thread_cpu_time() - own).as_secs_f64(),
            faults_per_second,
            sequential: found.estimate.sequential,
            pages: found.estimate.pages,
            windows: found.estimate.windows,
            replayed: found.estimate.replayed,
            damon: Damon::probe(root),
            has_pmu: Pmu::read(root).is_ok_and(|pmu| pmu.is_some()),
        },
        remedies,
    })
}

fn is_glibc(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file == "libc.so.6" || file.starts_with("libc-2.")
}

/// The samples of a process, each with what it tells.
struct Accesses {
    seen: Vec<Seen>,
    windows: Vec<Replayed>,
    lost: usize,
    without: usize,
    unreadable: usize,
    counts: BTreeMap<u64, u32>,
    shifts: Shifts,
}

/// What the accesses say about superpages.
struct Found {
    verdict: Verdict,
    estimate: Estimate,
}

impl Accesses {
    fn new(
        sampled: &Sampled,
        windows: Vec<Window>,
        code: &mut Code<'_>,
        space: &AddressSpace,
    ) -> Self {
        let shifts = Shifts::of(space);
        let replayed = |window: Window| {
            let on = window.steps.iter().map(|step| On::at(space, step.address)).collect();
            Replayed { window, on }
        };
        let mut found = Self {
            seen: Vec::new(),
            windows: windows.into_iter().map(replayed).collect(),
            lost: 0,
            without: 0,
            unreadable: 0,
            counts: BTreeMap::new(),
            shifts,
        };
        for sample in &sampled.samples {
            let Some(registers) = &sample.registers else {
                found.unreadable += 1;
                continue;
            };
            *found.counts.entry(sample.instruction).or_default() += 1;
            match code.attribute(sample.instruction, registers) {
                Attribution::Access(access) => match On::at(space, access.address) {
                    Some(on) => found.seen.push(Seen {
                        access,
                        thread: sample.thread,
                        time: sample.time,
                        on,
                    }),
                    // The end of a chase, or memory unmapped meanwhile.
                    None => found.lost += 1,
                },
                Attribution::Lost => found.lost += 1,
                Attribution::None => found.without += 1,
                Attribution::Unreadable => found.unreadable += 1,
            }
        }
        found
    }

    fn total(&self) -> usize {
        self.seen.len() + self.lost + self.without + self.unreadable
    }

    fn estimate(&self, prices: &Costs, user_share: f64, faults_per_second: Option<f64>) -> Found {
        let total = self.total() as f64;
        let orders = Orders::new(&self.seen, &self.counts);
        // Lost accesses are taken to be like the others: to the same memory, as far as accesses go.
        let known = self.seen.len() as f64;
        let scale = if known > 0.0 { (known + self.lost as f64) / known } else { 1.0 };
        let model = Model::new(&self.seen, &self.windows, total, prices, self.shifts, &orders);
        let mut mid = model.estimate(&self.seen, model.windows());
        mid.saved *= scale;
        mid.by_block.values_mut().for_each(|saved| *saved *= scale);
        let fault = prices.accesses.faults;
        let per_fault = (fault.base - fault.superpage / 512.0).max(0.0) * 1e-9;
        let by_faults = (faults_per_second.unwrap_or(0.0) * per_fault).min(1.0 - user_share);
        let gain = |saved: f64| {
            let saved = (saved * user_share + by_faults).clamp(-0.5, 0.95);
            1.0 / (1.0 - saved) - 1.0
        };
        let is_lost =
            self.lost as f64 > MAX_LOST * total || self.unreadable as f64 > MAX_LOST * total;
        let verdict = match () {
            () if self.total() < MIN_SAMPLES => Verdict::Unknown(Why::FewSamples),
            () if is_lost => Verdict::Unknown(Why::Lost),
            () => {
                let mut resampled: Vec<f64> = (0..RESAMPLINGS as u64)
                    .map(|seed| {
                        let windows: Vec<usize> = model.windows().collect();
                        let windows = resampled(&windows, 1, seed).into_iter();
                        scale
                            * model.estimate(&resampled(&self.seen, TOGETHER, seed), windows).saved
                    })
                    .collect();
                resampled.sort_by(f64::total_cmp);
                let sampling = (resampled[RESAMPLINGS - 1 - 1] - resampled[1]) / 2.0;
                let lost = mid.saved * self.lost as f64 / total;
                let exposed = match mid.pages > LITTLE {
                    true => EXPOSED_ERROR * known / total,
                    false => 0.0,
                };
                let model = (MODEL_ERROR * mid.saved).hypot(exposed);
                let error = model.hypot(sampling).hypot(lost) + LEAST_ERROR;
                let range = Range {
                    low: gain(mid.saved - error),
                    mid: gain(mid.saved),
                    high: gain(mid.saved + error),
                };
                match range.mid < NONE {
                    true => Verdict::None(range),
                    false => Verdict::Gain(range),
                }
            }
        };
        Found { verdict, estimate: mid }
    }
}

/// Random stretches of `all`, of `together` elements each, as many elements as there are.
fn resampled<T: Clone>(all: &[T], together: usize, seed: u64) -> Vec<T> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let stretches: Vec<&[T]> = all.chunks(together).collect();
    let mut result = Vec::with_capacity(all.len() + together);
    while result.len() < all.len() {
        let place = (random.next_u64() % stretches.len() as u64) as usize;
        result.extend_from_slice(stretches[place]);
    }
    result
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
            let first = start - start % superpage;
            let saved: f64 = estimate.by_block.range(first..end).map(|(_, saved)| saved).sum();
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
    use rand_core::Rng;

    use super::*;
    use crate::model::tests::{prices, samples};

    fn accesses(seen: Vec<Seen>, lost: usize) -> Accesses {
        let counts = BTreeMap::from([(0x1004, seen.len() as u32)]);
        let shifts = Shifts { base: 12, superpage: 21 };
        Accesses { seen, windows: Vec::new(), lost, without: 0, unreadable: 0, counts, shifts }
    }

    fn uniform(count: usize, seed: u64) -> Vec<Seen> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        samples(count, On::Base { resident: 512 }, |_| random.next_u64() % (1 << 17))
    }

    fn verdict(accesses: &Accesses) -> Verdict {
        accesses.estimate(&prices(), 1.0, None).verdict
    }

    #[test]
    fn the_interval_holds_the_gain_of_uniform_use() {
        // 154 ns become 104.
        let truth = 154.0 / 104.0 - 1.0;
        for seed in 0..6 {
            let Verdict::Gain(range) = verdict(&accesses(uniform(600, seed), 0)) else {
                panic!("no gain with seed {seed}");
            };
            assert!(range.low <= range.mid && range.mid <= range.high, "{range:?}");
            assert!(range.low < truth && truth < range.high, "{range:?} {truth}");
        }
    }

    #[test]
    fn few_samples_and_many_lost_ones_are_unknown() {
        let few = verdict(&accesses(uniform(MIN_SAMPLES - 1, 1), 0));
        assert_eq!(few, Verdict::Unknown(Why::FewSamples));
        let lost = verdict(&accesses(uniform(600, 1), 700));
        assert_eq!(lost, Verdict::Unknown(Why::Lost));
        assert!(matches!(verdict(&accesses(uniform(600, 1), 100)), Verdict::Gain(_)));
    }

    #[test]
    fn no_gain_is_none_and_time_in_the_kernel_is_not_saved() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let on = On::Base { resident: 512 };
        let small = samples(2000, on, |_| random.next_u64() % 32);
        assert!(matches!(verdict(&accesses(small, 0)), Verdict::None(_)));
        let all = accesses(uniform(2000, 2), 0);
        let mid = |user| match all.estimate(&prices(), user, None).verdict {
            Verdict::Gain(range) | Verdict::None(range) => range.mid,
            other => panic!("{other:?}"),
        };
        assert!(mid(0.1) < mid(1.0) / 5.0);
    }

    #[test]
    fn page_faults_that_superpages_save_count() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let on = On::Base { resident: 512 };
        let small = accesses(samples(2000, on, |_| random.next_u64() % 32), 0);
        // 200,000 a second at 800 ns more each than their part of a superpage: 16 % of the time.
        let Verdict::Gain(range) = small.estimate(&prices(), 0.7, Some(200_000.0)).verdict else {
            panic!("no gain");
        };
        assert!((range.mid - (1.0 / (1.0 - 0.161) - 1.0)).abs() < 0.01, "{range:?}");
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

    #[test]
    fn resamples_are_of_the_samples() {
        let all: Vec<u32> = (0..1000).collect();
        let again = resampled(&all, TOGETHER, 1);
        assert!(again.len() >= all.len() && again.iter().all(|one| all.contains(one)));
        assert_ne!(again, resampled(&all, TOGETHER, 2));
        assert!(resampled::<u32>(&[], TOGETHER, 1).is_empty());
    }
}
