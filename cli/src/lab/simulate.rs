//! From ingredients to reports: one pass of the laboratory.

use std::path::Path;

use design::Design;
use hardware::Machine;
use lab::sweep::{Group, Ingredient};
use lab::workloads::Setup;
use lab::{Experiment, LabError, Report};
use trace::{Placement, Reader};
use trace::{Process, Region};
use units::ByteSize;

use super::what::{self, Surroundings};
use crate::exit::Failure;

/// What an experiment is made of, but for designs.
pub struct Parts {
    pub machine: Ingredient,
    pub workload: Ingredient,
    pub fragmentation: Ingredient,
    pub memory: ByteSize,
    pub seed: u64,
}

/// The least memory: a pageblock for each kind of page, and room to work.
const LEAST: ByteSize = ByteSize::mib(16);
/// The most: 2^27 frames of 4 KiB.
const MOST: ByteSize = ByteSize::gib(512);

impl Parts {
    /// From flags.
    pub fn read(asked: &Surroundings) -> Result<Self, Failure> {
        let Some(workload) = &asked.workload else {
            return Err(Failure::usage(
                "nothing to run; name a --workload (superpage lab workloads lists them)",
            ));
        };
        Ok(Self {
            machine: what::machine(&asked.machine)?,
            workload: what::workload(workload)?,
            fragmentation: what::fragmentation(&asked.fragmentation)?,
            memory: asked.memory,
            seed: asked.seed,
        })
    }

    /// Of a sweep.
    pub fn of(group: &Group) -> Self {
        Self {
            machine: group.machine.clone(),
            workload: group.workload.clone(),
            fragmentation: group.fragmentation.clone(),
            memory: group.memory,
            seed: group.seed,
        }
    }

    /// What the simulated operating system cannot be: too small to boot, larger than frames have numbers
    /// for, or with other pages than 4 KiB (such a machine's TLB is simulated, its kernel is not).
    fn fits(&self, machine: &Machine) -> Result<(), Failure> {
        if !(LEAST..=MOST).contains(&self.memory) {
            let asked = self.memory;
            return Err(Failure::usage(format!(
                "--memory {asked}: a simulated machine has {LEAST} to {MOST}"
            )));
        }
        if machine.base_page.bytes() != 4096 {
            return Err(Failure::usage(format!(
                "{} has base pages of {}; designs are simulated on machines with 4 KiB \
                 (superpage lab machines)",
                machine.name, machine.base_page
            )));
        }
        Ok(())
    }

    /// Runs it under these designs; the reports come in their order.
    pub fn run(&self, designs: &[&Ingredient]) -> Result<Vec<Report>, Failure> {
        let read = |one: &&Ingredient| Design::from_toml(&one.name, &one.content);
        let designs: Vec<Design> =
            designs.iter().map(read).collect::<Result<_, _>>().map_err(Failure::usage)?;
        let machine = Machine::from_toml(&self.machine.content, &self.machine.name);
        let machine = machine.map_err(Failure::usage)?;
        self.fits(&machine)?;
        let trace = what::is_trace(&self.workload.name);
        // A trace needs no set-up; the experiment has one all the same.
        let setup = if trace { "touch" } else { self.workload.name.as_str() };
        let workload: Setup = setup.parse().map_err(Failure::usage)?;
        let experiment = Experiment {
            machine,
            memory: self.memory,
            fragmentation: what::fragmentation_of(&self.fragmentation)?,
            fragmentation_name: self.fragmentation.name.clone(),
            workload,
            workload_name: self.workload.name.clone(),
            seed: self.seed,
            swap: false,
            utilisation: true,
        };
        if !trace {
            return Ok(lab::run(&experiment, &designs)?);
        }
        let reader = Reader::open(Path::new(&self.workload.name)).map_err(Failure::usage)?;
        reader.expect_geometry(experiment.machine.base_page.bytes()).map_err(Failure::usage)?;
        let superpages = u64::from(reader.info().totals.regions);
        let open = |region, process| {
            let place = Placement { region: Region(region), process: Process(process), object: 0 };
            reader.place(place).map_err(|error| LabError::Source(error.to_string()))
        };
        Ok(lab::run_stream(&experiment, &designs, superpages, open)?)
    }
}
