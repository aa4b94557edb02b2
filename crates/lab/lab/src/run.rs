//! Runs experiments: a workload on one machine per design, in one pass over the stream.

pub use design::Design;
pub use mm_sim::NotSimulated;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use fault_scaling::Kernel;
use machine::Machine;
use mm_sim::fragment::Fragmentation;
use mm_sim::{
    Counts, Layout, LayoutError, PartUse, Simulation, Stop, Touched, TouchedView, kernel_memory,
    simulation,
};
use policy::Policy;
use trace::{Block, Source};
use units::ByteSize;
use workload_streams::{Independent, Setup, Stream, WorkloadError};

use crate::coarse::Coarse;
use crate::{Cell, End, MemoryPart, Report, Requests, SCHEMA, coarse, side_by_side};

/// Settings of an experiment, except for the designs.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The machine.
    pub machine: Machine,
    /// Memory size.
    pub memory: ByteSize,
    /// NUMA nodes and movable-only memory.
    pub layout: Layout,
    /// Fragmentation before the workload runs.
    pub fragmentation: Fragmentation,
    /// The fragmentation as requested, for the report.
    pub fragmentation_name: String,
    /// The workload.
    pub workload: Setup,
    /// The workload as requested, for the report.
    pub workload_name: String,
    /// The seed.
    pub seed: u64,
    /// Swap space; 0 for none.
    pub swap: ByteSize,
    /// Whether to count touched pages, for utilisation and bloat. This adds a check to each access.
    pub utilisation: bool,
}

/// Why an experiment could not run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Invalid options of the workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Invalid NUMA nodes or movable-only memory.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A design has rules that are not simulated.
    #[error("{design}: {key}: {why}")]
    NotSimulated {
        /// Name of the design.
        design: String,
        /// The rule's key.
        key: &'static str,
        /// Why.
        why: String,
    },
    /// An unreadable stream.
    #[error("{0}")]
    Source(String),
    /// The stream has an event that no program could issue.
    #[error("the stream of {workload} is invalid: {what}; record or import it again")]
    IllFormed {
        /// Name of the workload.
        workload: String,
        /// The invalid event.
        what: String,
    },
}

/// Runs an experiment under each design. Returns the reports in the order of the designs.
///
/// # Errors
/// [`LabError`]: invalid options of the workload, a rule that is not simulated, or an unreadable or invalid stream.
pub fn run(experiment: &Experiment, designs: &[Design]) -> Result<Vec<Report>, LabError> {
    run_watched(experiment, designs, |_| ControlFlow::Continue(()))
}

/// As [`run`], but calls `watch` with the progress before each piece of the stream. `watch` may stop the run.
///
/// # Errors
/// As [`run`], and [`LabError::Source`] if `watch` stopped it.
pub fn run_watched(
    experiment: &Experiment,
    designs: &[Design],
    mut watch: impl FnMut(Pass) -> ControlFlow<()>,
) -> Result<Vec<Report>, LabError> {
    let superpage = |design: &Design| superpage(design, &experiment.machine);
    let sizes: BTreeSet<u64> = designs.iter().map(superpage).collect();
    if sizes.len() <= 1 {
        return run_aligned(experiment, designs, watch);
    }
    check(&experiment.machine, designs)?;
    // A kernel aligns mappings to its largest superpage size. A report must not depend on the other designs of the run,
    // so each superpage size gets its own pass.
    let (passes, mut before) = (sizes.len() as u64, 0);
    let mut found = BTreeMap::new();
    for size in sizes {
        let of_size = |(_, design): &(usize, &Design)| superpage(design) == size;
        let (places, part): (Vec<usize>, Vec<Design>) =
            designs.iter().enumerate().filter(of_size).map(|(at, one)| (at, one.clone())).unzip();
        let mut last = 0;
        let reports = run_aligned(experiment, &part, |pass| {
            last = pass.of.unwrap_or(pass.records);
            let of = pass.of.map(|of| of * passes);
            watch(Pass { records: before + pass.records, of })
        })?;
        before += last;
        found.extend(places.into_iter().zip(reports));
    }
    Ok(found.into_values().collect())
}

impl Experiment {
    /// Returns the workload with the experiment's seed.
    pub(crate) fn seeded(&self) -> Setup {
        let mut setup = self.workload.clone();
        setup.seed = self.seed;
        setup
    }
}

/// Runs designs that have the same superpage size.
fn run_aligned(
    experiment: &Experiment,
    designs: &[Design],
    watch: impl FnMut(Pass) -> ControlFlow<()>,
) -> Result<Vec<Report>, LabError> {
    let (description, _) = experiment.seeded().build()?;
    let superpages = superpages(experiment, description.superpages);
    let (mut runs, first) = prepare(experiment, designs, superpages)?;
    let stream = stream(experiment, designs, first)?;
    let mut stream = Watched::new(stream, description.records, watch);
    pass(experiment, &mut runs, &mut stream)?;
    reports(runs, experiment)
}

/// Returns the number of the machine's superpages that a workload needs.
pub(crate) fn superpages(experiment: &Experiment, of_stream: u64) -> u64 {
    of_stream.div_ceil(1 << coarse::shift(experiment.machine.base_page.bytes()))
}

/// Returns the workload's stream on this machine. `region` and `process` are the first numbers that it may use.
pub(crate) fn stream(
    experiment: &Experiment,
    designs: &[Design],
    (region, process): (u32, u32),
) -> Result<Coarse<Stream>, LabError> {
    let machine = &experiment.machine;
    let mut setup = experiment.workload.clone();
    // Alignment to the largest superpages that the kernel may use.
    let largest = designs.iter().map(|design| superpage(design, machine)).max();
    setup.align =
        (largest.unwrap_or(0) / (coarse::STREAM_PAGE * u64::from(trace::SLOTS))).max(1) as u32;
    let first = region << coarse::shift(machine.base_page.bytes());
    setup.first_region = first.next_multiple_of(setup.align);
    setup.first_process = process;
    setup.seed = experiment.seed;
    setup.cpu_mhz = machine.mhz;
    setup.memory_cycles = machine.memory_cycles;
    setup.stream_bandwidth = machine.stream_bandwidth;
    setup.window = machine.window;
    let bytes = setup.describe()?.footprint_pages * coarse::STREAM_PAGE;
    setup.independent =
        machine.independent_at(bytes).map(|it| Independent { cycles: it.cycles, walk: it.walk });
    let base_page = machine.base_page.bytes();
    let together = (machine.kernel_page.bytes() / base_page) as u32;
    Ok(Coarse::new(setup.build()?.1, base_page, together))
}

/// Runs a stream from another source, e.g. a recorded trace. `open` gets the first region and the first process number
/// that the stream may use. `superpages` is the stream's need, for the fragmenter.
///
/// # Errors
/// As [`run`], and errors of `open`.
pub fn run_stream<S: Source>(
    experiment: &Experiment,
    designs: &[Design],
    superpages: u64,
    open: impl FnOnce(u32, u32) -> Result<S, LabError>,
) -> Result<Vec<Report>, LabError> {
    let (mut runs, first) = prepare(experiment, designs, superpages)?;
    let mut stream = open(first.0, first.1)?;
    pass(experiment, &mut runs, &mut stream)?;
    reports(runs, experiment)
}

/// Creates one machine per design, with fragmented memory. Also returns the first free region and process number.
pub(crate) fn prepare(
    experiment: &Experiment,
    designs: &[Design],
    superpages: u64,
) -> Result<(Vec<DesignRun>, (u32, u32)), LabError> {
    let machine = &experiment.machine;
    let ready = side_by_side::map(designs.iter().collect(), |design: &Design| {
        check_one(&experiment.machine, design)?;
        let policy = policy(design, machine);
        let bound = policy.physical().is_ideal;
        let superpage = superpage(design, machine);
        let Experiment { memory, layout, swap, .. } = experiment;
        let mut machine = simulation(machine, policy, *memory, layout, *swap)?;
        let how = &experiment.fragmentation;
        let under = self::policy(&design::designs::fragmenting(), &experiment.machine);
        let fragmented = machine.fragment(how, under, superpages, experiment.seed);
        let first = fragmented.map_err(|what| LabError::IllFormed {
            workload: experiment.fragmentation_name.clone(),
            what,
        })?;
        Ok::<_, LabError>((
            DesignRun { name: design.name.clone(), bound, superpage, machine },
            first,
        ))
    });
    let mut first = (0, 0);
    let mut runs = Vec::new();
    for one in ready {
        let (run, left) = one?;
        first = left;
        runs.push(run);
    }
    Ok((runs, first))
}

/// Checks that the designs can be simulated on this machine.
///
/// # Errors
/// [`LabError::NotSimulated`], for the first design that cannot.
pub fn check(machine: &Machine, designs: &[Design]) -> Result<(), LabError> {
    designs.iter().try_for_each(|design| check_one(machine, design))
}

fn check_one(machine: &Machine, design: &Design) -> Result<(), LabError> {
    match not_simulated_on(design, machine) {
        Some(NotSimulated { key, why }) => {
            Err(LabError::NotSimulated { design: design.name.clone(), key, why })
        }
        None => Ok(()),
    }
}

pub(crate) fn reports(
    runs: Vec<DesignRun>,
    experiment: &Experiment,
) -> Result<Vec<Report>, LabError> {
    side_by_side::map(runs, |run| run.report(experiment)).into_iter().collect()
}

/// Number of blocks that one design's machine executes before the next machine's turn. Each switch evicts the simulated
/// TLBs and page tables from the host's caches.
const TURN: usize = 16;

/// Blocks of a turn, with the number of pages touched in each.
type Turn = Vec<(Block, Counts)>;

pub(crate) fn pass<S: Source + ?Sized>(
    experiment: &Experiment,
    runs: &mut [DesignRun],
    stream: &mut S,
) -> Result<(), LabError> {
    let is_alone = runs.len() == 1;
    let (watching, mut others): (Vec<_>, Vec<_>) =
        runs.iter_mut().partition(|run| experiment.utilisation && run.machine.watches());
    let touched = experiment.utilisation.then(Touched::default);
    let mut reader = Reader { stream, touched, watching };
    let new = || -> Turn { vec![Default::default(); if is_alone { 1 } else { TURN }] };
    let mut turn = new();
    if is_alone || !side_by_side::is_wanted() {
        loop {
            let read = reader.read(&mut turn)?;
            others.iter_mut().for_each(|run| run.machine.blocks(&turn[..read]));
            if read < turn.len() {
                return Ok(());
            }
        }
    }
    let mut next = new();
    let mut read = reader.read(&mut turn)?;
    loop {
        let is_last = read < turn.len();
        let ahead = || if is_last { Ok(0) } else { reader.read(&mut next) };
        read = side_by_side::with(&mut others, |run| run.machine.blocks(&turn[..read]), ahead)?;
        if is_last {
            return Ok(());
        }
        std::mem::swap(&mut turn, &mut next);
    }
}

/// Reads the stream. After each block it informs the machines that track touched pages.
struct Reader<'a, S: ?Sized> {
    stream: &'a mut S,
    touched: Option<Touched>,
    watching: Vec<&'a mut DesignRun>,
}

impl<S: Source + ?Sized> Reader<'_, S> {
    /// Fills a turn, or part of it at the stream's end. Returns the number of blocks.
    fn read(&mut self, turn: &mut Turn) -> Result<usize, LabError> {
        for (at, (block, counts)) in turn.iter_mut().enumerate() {
            let more = self.stream.next(block);
            if !more.map_err(|error| LabError::Source(error.to_string()))? {
                return Ok(at);
            }
            if let Some(touched) = &mut self.touched {
                touched.follow(block);
            }
            let view = self.touched.as_ref().map_or(TouchedView::default(), Touched::view);
            *counts = view.counts;
            self.watching.iter_mut().for_each(|run| run.machine.block(block, view));
        }
        Ok(turn.len())
    }
}

/// A design's machine, with its data for the report.
pub(crate) struct DesignRun {
    name: String,
    bound: bool,
    /// Superpage size in bytes.
    superpage: u64,
    machine: Box<dyn Simulation>,
}

impl DesignRun {
    pub(crate) fn count_walks(&mut self) {
        self.machine.count_walks();
    }

    /// Returns the number of walks to base pages, by superpage-sized range of the program's memory.
    pub(crate) fn walks(&mut self) -> Vec<u64> {
        self.machine.walks()
    }

    fn report(self, experiment: &Experiment) -> Result<Report, LabError> {
        let (stop, outcome) = self.machine.finish();
        let end = match stop {
            None => End::Done,
            Some(Stop::OutOfMemory) => End::OutOfMemory {
                resident_pages: outcome.resident_pages,
                reserved_pages: Some(outcome.reserved_pages),
            },
            Some(Stop::Refused { short_by }) => End::Refused { short_by },
            Some(Stop::Killed(why)) => End::Killed { why },
            Some(Stop::IllFormed(what)) => {
                return Err(LabError::IllFormed {
                    workload: experiment.workload_name.clone(),
                    what,
                });
            }
        };
        let mhz = experiment.machine.mhz;
        let pages = self.superpage / experiment.machine.base_page.bytes();
        Ok(Report {
            schema: SCHEMA.to_string(),
            cell: Cell {
                design: self.name,
                machine: experiment.machine.name.clone(),
                workload: experiment.workload_name.clone(),
                fragmentation: experiment.fragmentation_name.clone(),
                memory_bytes: experiment.memory.bytes(),
                nodes_bytes: nodes_bytes(experiment)?,
                movable_bytes: experiment.layout.movable.bytes(),
                seed: experiment.seed,
                swap_bytes: experiment.swap.bytes(),
                free_lists: experiment.fragmentation.free_lists().cloned(),
            },
            bound: self.bound,
            superpage_pages: (pages != u64::from(trace::SLOTS)).then_some(pages),
            kernel_bytes: Some(kernel_memory(experiment.memory).bytes()),
            end,
            mhz,
            wall_cycles: outcome.observations.wall_cycles,
            ledger: outcome.ledger,
            background: outcome.background,
            counters: outcome.counters,
            phases: outcome.observations.phases,
            timeline: outcome.observations.timeline,
            requests: requests(outcome.observations.latencies, mhz),
            memory_parts: parts(outcome.uses),
        })
    }
}

/// Returns the memory of each node, or nothing for a single node.
fn nodes_bytes(experiment: &Experiment) -> Result<Vec<u64>, LabError> {
    let (memory, base_page) = (experiment.memory, experiment.machine.base_page.bytes());
    let nodes = experiment.layout.sizes(memory, base_page, kernel_memory(memory))?;
    let several = if nodes.len() > 1 { nodes } else { Vec::new() };
    Ok(several.into_iter().map(ByteSize::bytes).collect())
}

/// Joins the use of each part of memory at the start and at the peak.
fn parts([before, peak]: [Vec<PartUse>; 2]) -> Vec<MemoryPart> {
    let part = |(before, peak): (PartUse, PartUse)| MemoryPart {
        peak,
        free_superpages_at_start: before.free_superpages,
    };
    before.into_iter().zip(peak).map(part).collect()
}

/// Computes the distribution of latencies, which are given in cycles.
fn requests(mut latencies: Vec<u64>, mhz: u32) -> Option<Requests> {
    latencies.sort_unstable();
    let count = latencies.len();
    let longest = *latencies.last()?;
    let of = |cycles: u64| cycles as f64 / f64::from(mhz);
    let at = |permille: usize| of(latencies[(count * permille).div_ceil(1000).max(1) - 1]);
    let sum: u64 = latencies.iter().sum();
    Some(Requests {
        count: count as u64,
        mean: of(sum) / count as f64,
        p50: at(500),
        p95: at(950),
        p99: at(990),
        p999: at(999),
        max: of(longest),
    })
}

// Conversion of designs, which are files, to the policies that the simulation runs.

pub(crate) fn policy(design: &Design, machine: &Machine) -> Policy {
    mm_sim::policy_on(machine, |scale| design.policy(scale))
}

/// Returns the bytes of a design's largest superpage on a machine, at least a region.
pub(crate) fn superpage(design: &Design, machine: &Machine) -> u64 {
    let group = mm_sim::regions_of_superpage(&policy(design, machine), machine);
    (machine.base_page.bytes() * u64::from(trace::SLOTS)) << group
}

/// Returns the part of a design that cannot be simulated on a machine.
pub(crate) fn not_simulated_on(design: &Design, machine: &Machine) -> Option<NotSimulated> {
    mm_sim::not_simulated_on(&design.policy(policy::Scale::X86), machine)
}

/// Returns the part of a design that cannot be simulated on any machine.
pub fn not_simulated(design: &Design) -> Option<NotSimulated> {
    mm_sim::not_simulated(&design.policy(policy::Scale::X86))
}

/// Returns the part of a design that the model of fault scaling lacks.
pub fn not_simulated_of_faults(design: &Design) -> Option<NotSimulated> {
    mm_sim::not_simulated_of_faults(&design.policy(policy::Scale::X86))
}

/// Returns whether a design asks which pages contain only zeros. The simulation counts untouched pages as zero pages.
pub fn watches_contents(design: &Design) -> bool {
    design.policy(policy::Scale::X86).reads().has(policy::Reads::ZEROS)
}

/// Returns whether a design sets how faults lock and count pages (its `[fault]` table). Only `lab faults` simulates
/// these settings; the reports of [`crate::run`] do not depend on them.
pub fn has_fault_table(design: &Design) -> bool {
    let of = |design: &Design| {
        let path = design.policy(policy::Scale::X86).fault_path();
        (path.locking, path.resident)
    };
    of(design) != of(&preset("base"))
}

pub(crate) fn preset(name: &str) -> Design {
    design::designs::find(name).expect("a preset")
}

/// Returns a preset for a machine: a pool gets the machine's smallest superpage size.
pub(crate) fn preset_on(name: &str, machine: &Machine) -> Design {
    let smallest = machine.superpages().first().copied();
    let design = preset(name);
    smallest.map_or(design.clone(), |size| design.with_pool_of(units::ByteSize(size)))
}

/// Returns a design's fault path as a kernel for the model of fault scaling.
pub fn fault_kernel(design: &Design, machine: &fault_scaling::Machine) -> Kernel {
    let scale = policy::Scale { base_page: machine.base_page.bytes(), superpage: 9, ticks: 1000 };
    Kernel::new(&design.policy(scale).fault_path(), machine)
}

// Progress of a pass over a stream; a watcher may stop the pass.

/// Progress of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Number of records read from the stream (a run of accesses to one page is one record).
    pub records: u64,
    /// Approximate total number of records, if known in advance.
    pub of: Option<u64>,
}

/// Called before each piece of a simulation. If it breaks, the simulation fails.
pub type Going<'a> = &'a (dyn Fn() -> ControlFlow<()> + Sync);

/// Runs to the end.
pub const TO_THE_END: Going<'static> = &|| ControlFlow::Continue(());

/// Why a watched stream could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unread<E> {
    /// The watcher stopped the stream.
    #[error("stopped")]
    Stopped,
    /// The stream is unreadable.
    #[error(transparent)]
    Source(#[from] E),
}

/// A stream that reports its progress before each piece, and fails when its watcher stops it.
#[derive(Debug)]
pub struct Watched<S, F> {
    stream: S,
    pass: Pass,
    watch: F,
}

impl<S: Source, F: FnMut(Pass) -> ControlFlow<()>> Watched<S, F> {
    /// Wraps a stream of approximately `of` records.
    pub fn new(stream: S, of: Option<u64>, watch: F) -> Self {
        Self { stream, pass: Pass { records: 0, of }, watch }
    }
}

impl<S: Source, F: FnMut(Pass) -> ControlFlow<()>> Source for Watched<S, F> {
    type Error = Unread<S::Error>;

    fn next(&mut self, block: &mut Block) -> Result<bool, Self::Error> {
        if (self.watch)(self.pass).is_break() {
            return Err(Unread::Stopped);
        }
        let more = self.stream.next(block)?;
        self.pass.records += block.accesses.len() as u64;
        Ok(more)
    }
}
