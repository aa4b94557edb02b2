//! `touch`: the first touches of `workload::touch`, with the page size of the simulated machine.

use workload::touch::{LINE, Plan};

use super::{Sweep, bytes};
use crate::program::{Built, Program};
use crate::space::{Extent, PAGE, Space};
use crate::{Figure, Setup, Tables};

/// Default size of the live kernel in bytes, as in the table of 2005.
pub(super) const SIZE: u64 = 1 << 30;
/// Default number of repetitions, as in the table of 2005.
pub(super) const REPEAT: u32 = 3;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let size = setup.size_or(SIZE)?;
    setup.settings(size, threads)?;
    let lines = u64::from(setup.lines.unwrap_or(1));
    // Do not use `Plan::new`, which takes this machine's page size.
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
    let mut space = Space::of(setup);
    let area = space.anonymous(plan.pages * PAGE);

    let mut program = Program::new(setup);
    program.phase("run").pace(setup.pace(tables.touch.run, threads));
    for _ in 0..plan.repeat {
        let shares = plan.shares().into_iter().map(|pages| [bytes(pages, PAGE)]);
        // The lines of a page are one run; a TLB does not see their offsets.
        let sweep = Sweep::write(area, shares, PAGE.div_ceil(plan.lines).max(LINE));
        program.map(area).step(sweep).events([area.unmap()]);
    }
    let figure = Figure::Rate { unit: "pages/s", operations: plan.pages * plan.repeat };
    program.exit(setup, threads, figure, Extent::new(&[area]))
}
