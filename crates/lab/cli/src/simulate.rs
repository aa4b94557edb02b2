//! Runs experiments: turns their inputs into reports, in one pass of the laboratory.

use std::ops::ControlFlow;

use design::Design;
use lab::sweep::{Group, NamedInput};
use lab::{Experiment, LabError, Pass, Report, Watched};
use machine::Machine;
use mm_sim::{Layout, kernel_memory};
use report::sig3 as three;
use trace::Placement;
use trace::{Process, Reader, Region, SLOTS, Source};
use units::ByteSize;
use workload_streams::Setup;

use super::what::{self, ExperimentArgs};
use super::words;
use operations::Failure;
use operations::reporter::Progress;

/// The inputs of an experiment except its designs.
pub struct Parts {
    pub machine: NamedInput,
    pub workload: NamedInput,
    pub fragmentation: NamedInput,
    pub memory: ByteSize,
    pub layout: Layout,
    pub seed: u64,
    pub swap: ByteSize,
    pub utilisation: bool,
    /// Name and text of the profile's file.
    pub profile: Option<(String, String)>,
}

/// Minimum memory: a pageblock for each migrate type, and enough to work with.
const MIN_MEMORY: ByteSize = ByteSize::mib(16);
/// Maximum memory: 2^27 frames of 4 KiB.
const MAX_MEMORY: ByteSize = ByteSize::gib(512);

impl Parts {
    /// Reads the inputs that the flags name.
    pub fn read(asked: &ExperimentArgs) -> Result<Self, Failure> {
        let Some(workload) = &asked.workload else {
            return Err(super::compare::nothing_to_run());
        };
        let parts = Self {
            machine: what::machine(&asked.machine)?,
            workload: what::workload(workload)?,
            fragmentation: what::fragmentation(&asked.fragmentation)?,
            memory: what::memory(asked.memory, std::iter::once(&asked.nodes)),
            layout: Layout { nodes: asked.nodes.clone(), movable: asked.movable },
            seed: asked.seed,
            swap: asked.swap,
            utilisation: !asked.no_utilisation,
            profile: asked.profile.as_deref().map(what::profile).transpose()?,
        };
        parts.check()?;
        Ok(parts)
    }

    /// Fails if no machine can have these parameters.
    pub fn check(&self) -> Result<(), Failure> {
        self.fits(&self.machine()?)
    }

    /// Fails if no machine can have these parameters or run these designs.
    pub fn can_run(&self, designs: &[&NamedInput]) -> Result<(), Failure> {
        self.check()?;
        lab::check(&self.machine()?, &self.designs(designs)?).map_err(Failure::usage)
    }

    /// Returns the inputs of a group of a sweep.
    pub fn of(group: &Group) -> Self {
        Self {
            machine: group.machine.clone(),
            workload: group.workload.clone(),
            fragmentation: group.fragmentation.clone(),
            memory: group.memory,
            layout: group.layout.clone(),
            seed: group.seed,
            swap: ByteSize(0),
            utilisation: true,
            profile: None,
        }
    }

    /// Returns the machine, with its name in reports.
    fn machine(&self) -> Result<Machine, Failure> {
        let machine = Machine::from_toml(&self.machine.content, &self.machine.name);
        let name = self.machine.name.clone();
        Ok(Machine { name, ..machine.map_err(Failure::usage)? })
    }

    /// Fails if the simulated system is impossible: too little memory to boot, more frames than frame numbers, or
    /// larger pages than the workload's.
    fn fits(&self, machine: &Machine) -> Result<(), Failure> {
        self.nodes(machine)?;
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&self.memory) {
            let asked = self.memory;
            return Err(Failure::usage(format!(
                "--memory {asked}: a simulated machine has {MIN_MEMORY} to {MAX_MEMORY}"
            )));
        }
        if self.layout.movable > ByteSize(0) && !self.fragmentation.content.is_empty() {
            let (asked, lists) = (self.layout.movable, &self.fragmentation.name);
            return Err(Failure::usage(format!(
                "--movable {asked}: free lists do not tell which pages are in a partition; take another --fragmentation \
                 than {lists}, or leave --movable away"
            )));
        }
        if self.swap > MAX_MEMORY {
            let asked = self.swap;
            return Err(Failure::usage(format!(
                "--swap {asked}: a simulated machine has at most {MAX_MEMORY} of it"
            )));
        }
        if machine.base_page.bytes() < lab::STREAM_PAGE {
            return Err(Failure::usage(format!(
                "{} has base pages of {}; workloads have pages of 4 KiB: a machine's must be as large or larger",
                machine.name, machine.base_page
            )));
        }
        Ok(())
    }

    fn nodes(&self, machine: &Machine) -> Result<Vec<ByteSize>, Failure> {
        let kernel = kernel_memory(self.memory);
        let sizes = self.layout.sizes(self.memory, machine.base_page.bytes(), kernel);
        sizes.map_err(|error| Failure::usage(format!("--{error}")))
    }

    fn designs(&self, designs: &[&NamedInput]) -> Result<Vec<Design>, Failure> {
        let mut read = Vec::new();
        for one in designs {
            let mut design = Design::from_toml(&one.name, &one.content)?;
            if !self.utilisation && lab::watches_contents(&design) {
                return Err(Failure::usage(format!(
                    "--no-utilisation: {} looks for pages that were never touched; leave the flag \
                     away, or the design",
                    one.name
                )));
            }
            if let Some((file, text)) = &self.profile {
                design = design.profiled(file, text)?;
            }
            if design.wants_profile() {
                return Err(Failure::usage(format!(
                    "{}: a condition weighs what the program's TLB misses cost; give --profile FILE, or the design a \
                     [profile]",
                    one.name
                )));
            }
            // Use the name given here, which distinguishes a file from a preset.
            design.name.clone_from(&one.name);
            read.push(design);
        }
        Ok(read)
    }

    /// Describes the experiment without running it.
    pub fn describe(&self, designs: &[&NamedInput]) -> Result<String, Failure> {
        self.designs(designs)?;
        let names: Vec<&str> = designs.iter().map(|one| one.name.as_str()).collect();
        let (memory, kernel) = (self.memory, kernel_memory(self.memory));
        let (pages, page, records) = if what::is_trace(&self.workload.name) {
            let info = what::trace(&self.workload.name)?;
            let totals = info.info().totals;
            let page = self.machine()?.base_page.bytes();
            (u64::from(totals.regions) * u64::from(SLOTS), page, Some(totals.records))
        } else {
            let setup: Setup = self.workload.name.parse().map_err(Failure::usage)?;
            let description = setup.describe().map_err(Failure::usage)?;
            (description.footprint_pages, lab::STREAM_PAGE, description.records)
        };
        let needs = ByteSize(pages.saturating_mul(page));
        let left = ByteSize(memory.bytes() - kernel.bytes());
        let fits = match needs > left {
            true if self.swap > ByteSize(0) => "; more than that: pages are swapped",
            true => "; more than that: memory may run out",
            false => "",
        };
        let records = records.map_or("unknown before it runs".to_string(), |records| {
            format!("about {}, for each design", three::figure(records as f64))
        });
        let divided = match self.layout == Layout::default() {
            true => String::new(),
            false => {
                let nodes = self.nodes(&self.machine()?)?;
                format!("\n  divided      {}", words::divided(&nodes, self.layout.movable))
            }
        };
        Ok(format!(
            "would run      {}\n  designs      {}\n  machine      {}, {memory}: {kernel} for its kernel, {left} for \
             the program; swap {}{divided}\n  memory       at most {needs}{fits}\n  fragmented   {}\n  seed         {}\n  \
             records      {records}\n",
            self.workload.name,
            names.join(", "),
            self.machine.name,
            self.swap,
            self.fragmentation.name,
            self.seed
        ))
    }

    /// Runs the experiment under these designs and shows progress. Returns the reports in the order of the designs.
    pub fn run_shown(&self, designs: &[&NamedInput], quiet: bool) -> Result<Vec<Report>, Failure> {
        let under = match designs {
            [one] => one.name.clone(),
            [one, other] => format!("{} and {}", one.name, other.name),
            all => format!("{} designs", all.len()),
        };
        let doing = format!("{} under {under}", self.workload.name);
        shown(&doing, quiet, |watch| self.run(designs, watch))
    }

    /// Runs the experiment under these designs. Calls `watch` with the progress; `watch` can cancel. Returns the
    /// reports in the order of the designs.
    pub fn run(
        &self,
        designs: &[&NamedInput],
        watch: impl FnMut(Pass) -> ControlFlow<()>,
    ) -> Result<Vec<Report>, Failure> {
        let designs = self.designs(designs)?;
        let experiment = self.experiment()?;
        if !what::is_trace(&self.workload.name) {
            return lab::run_watched(&experiment, &designs, watch).map_err(Failure::usage);
        }
        let reader = self.trace(&experiment)?;
        let regions = reader.info().totals.regions.into();
        let open = |region, process| placed(reader, region, process, watch);
        lab::run_stream(&experiment, &designs, regions, open).map_err(Failure::usage)
    }

    /// Runs the experiment on base pages, and records where it misses the TLB.
    pub fn profile(
        &self,
        base: &NamedInput,
        watch: impl FnMut(Pass) -> ControlFlow<()>,
    ) -> Result<(Report, lab::Profile), Failure> {
        let base = self.designs(&[base])?.remove(0);
        let experiment = self.experiment()?;
        if experiment.machine.kernel_page.bytes() != lab::STREAM_PAGE {
            let (name, pages) = (&experiment.machine.name, experiment.machine.kernel_page);
            return Err(Failure::usage(format!(
                "--machine {name}: its base pages have {pages}; a profile is of 2M of 4 KiB pages: name another machine"
            )));
        }
        if !what::is_trace(&self.workload.name) {
            return lab::profile_watched(&experiment, &base, watch).map_err(Failure::usage);
        }
        let reader = self.trace(&experiment)?;
        let regions = reader.info().totals.regions.into();
        let open = |region, process| placed(reader, region, process, watch);
        lab::profile_stream(&experiment, &base, regions, open).map_err(Failure::usage)
    }

    fn experiment(&self) -> Result<Experiment, Failure> {
        let machine = self.machine()?;
        self.fits(&machine)?;
        // A trace needs no set-up, but `Experiment` requires one.
        let is_trace = what::is_trace(&self.workload.name);
        let setup = if is_trace { "touch" } else { self.workload.name.as_str() };
        let workload: Setup = setup.parse().map_err(Failure::usage)?;
        Ok(Experiment {
            machine,
            memory: self.memory,
            layout: self.layout.clone(),
            fragmentation: what::fragmentation_of(&self.fragmentation)?,
            fragmentation_name: self.fragmentation.name.clone(),
            workload,
            workload_name: self.workload.name.clone(),
            seed: self.seed,
            swap: self.swap,
            utilisation: self.utilisation,
        })
    }

    fn trace(&self, experiment: &Experiment) -> Result<Reader, Failure> {
        let reader = what::trace(&self.workload.name)?;
        if what::content_of(&reader) != self.workload.content {
            return Err(Failure::usage(format!(
                "{}: it is not the trace that was planned; put that back, or plan anew: superpage lab sweep plan --force",
                self.workload.name
            )));
        }
        let machine = &experiment.machine;
        if machine.kernel_page != machine.base_page {
            return Err(Failure::usage(format!(
                "--machine {}: traces are not simulated on machines whose kernel pages are several processor pages; name \
                 another machine",
                machine.name
            )));
        }
        reader.expect_geometry(machine.base_page.bytes()).map_err(Failure::usage)?;
        Ok(reader)
    }
}

/// Returns a trace's stream, with its program's memory and processes moved to these numbers.
fn placed<F: FnMut(Pass) -> ControlFlow<()>>(
    reader: Reader,
    region: u32,
    process: u32,
    watch: F,
) -> Result<Watched<impl Source + use<F>, F>, LabError> {
    let records = reader.info().totals.records;
    let place = Placement { region: Region(region), process: Process(process), object: 0 };
    let stream = reader.place(place).map_err(|error| LabError::Source(error.to_string()))?;
    Ok(Watched::new(stream, Some(records), watch))
}

/// Calls `run` and shows its progress.
pub fn shown<R>(
    doing: &str,
    quiet: bool,
    run: impl FnOnce(&mut dyn FnMut(Pass) -> ControlFlow<()>) -> R,
) -> R {
    let mut progress = Progress::of_pass(quiet, &format!("{doing}: memory is made ready"));
    let result = run(&mut |pass: Pass| {
        progress.tell(pass.records, pass.of, || match pass.of {
            Some(_) => doing.to_string(),
            None => format!("{doing}: {} records", three::figure(pass.records as f64)),
        });
        ControlFlow::Continue(())
    });
    progress.clear();
    result
}
