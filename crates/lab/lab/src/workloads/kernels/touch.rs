//! `touch`: the first touches of `workload::touch`, with pages of the simulated machine.

use trace::{Event, Process};
use workload::touch::{LINE, Plan};

use super::{Lane, Sweep};
use crate::workloads::program::Program;
use crate::workloads::space::{PAGE, Space};
use crate::workloads::{Description, Figure, Setup, Stream, Tables, WorkloadError};

/// The live kernel's defaults: those of the table of 2005.
pub(super) const SIZE: u64 = 1 << 30;
pub(super) const REPEAT: u32 = 3;

pub(crate) fn build(
    setup: &Setup,
    tables: &Tables,
) -> Result<(Description, Stream), WorkloadError> {
    let threads = setup.threads_or(1);
    let size = setup.size_or(SIZE)?;
    setup.settings(size, threads)?;
    let lines = u64::from(setup.lines.unwrap_or(1));
    // Not `Plan::new`: that asks this machine for its page size.
    let plan = Plan {
        pages: size / PAGE,
        page: PAGE,
        lines,
        repeat: u64::from(setup.iterations.unwrap_or(REPEAT)),
        threads: threads.into(),
        seed: setup.seed,
        burst: size / PAGE,
        gap: std::time::Duration::ZERO,
        populate: false,
        latency: false,
    };
    let mut space = Space::new(setup.first_region);
    let area = space.anonymous(plan.pages * PAGE);

    let mut program = Program::default();
    program
        .events([Event::Spawn(Process(setup.first_process))])
        .phase("run")
        .events([Event::Pace(setup.pace(tables.touch.run, threads))]);
    for _ in 0..plan.repeat {
        let share =
            |pages: std::ops::Range<usize>| pages.start as u64 * PAGE..pages.end as u64 * PAGE;
        let lanes = plan.shares().into_iter().map(|pages| Lane::new(share(pages)));
        // A page's lines are one run; where they lie in it, no TLB sees.
        program.events([area.map()]);
        program.step(Sweep::write(area, lanes.collect(), PAGE.div_ceil(plan.lines).max(LINE)));
        program.events([area.unmap()]);
    }
    program.events([Event::Exit(Process(setup.first_process))]);
    let description = Description {
        name: setup.name(),
        summary: setup.entry().summary,
        footprint_pages: plan.pages,
        superpages: area.regions(),
        threads,
        figure: Figure::Rate { unit: "pages/s", operations: plan.pages * plan.repeat },
        phases: vec!["run"],
        regions: area.regions() as u32,
        records: program.records(),
    };
    Ok((description, program.stream()))
}
