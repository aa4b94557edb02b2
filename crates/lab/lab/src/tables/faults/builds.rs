//! Compares published kernel compilations with the model's cost of a fault. Times and numbers of faults are published;
//! nothing is fitted. See docs/decisions/faults.md#10.

use fault_scaling::{Experiment, FaultsError, Machine, Patches, Stepping, Touches};
use serde::Serialize;
use units::ByteSize;

const BUILDS: &str = include_str!("../../../data/kernel-builds-2005.csv");

/// A compilation under a patched kernel, compared with the unpatched one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Build {
    /// The computer, as published.
    pub computer: String,
    /// The patch, as on the command line.
    pub patches: String,
    /// Setting of the patch, as published.
    pub setting: String,
    /// Published: minor faults, if known.
    pub faults: Option<u64>,
    /// Published: wall-clock time.
    pub real_seconds: f64,
    /// Published: time in user mode.
    pub user_seconds: f64,
    /// Published: time in the kernel.
    pub system_seconds: f64,
    /// Published: kernel time saved by the patch.
    pub saved_seconds: f64,
    /// Simulated: maximum kernel time that the patch saves. `None`: the saving is per fault, and the number of faults
    /// is not published.
    pub saved_at_most_seconds: Option<f64>,
    /// Pages whose zeroing accounts for `saved_seconds`. `None`: the patch zeroes no pages ahead.
    pub zeroed_pages: Option<f64>,
    /// Published: additional user time compared with the unpatched kernel.
    pub more_user_seconds: f64,
    /// Simulated: maximum additional user time. The figure assumes that the program uses every cache line of
    /// `zeroed_pages`, and that a fault's zeroing would have left all of them in the cache.
    pub more_user_at_most_seconds: Option<f64>,
}

/// Computes the compilations with a machine's costs.
///
/// # Errors
/// [`FaultsError`]: a machine file with too little memory for a few faults.
pub(super) fn of(machine: &Machine) -> Result<Vec<Build>, FaultsError> {
    let mut builds = Vec::new();
    let mut unpatched = (0.0, 0.0);
    for line in BUILDS.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [priced_by, computer, patches, setting, pages, faults, lines, times @ ..] = &fields[..]
        else {
            continue;
        };
        let (&[real, user, system], true) = (times, *priced_by == machine.name) else { continue };
        let number = |text: &str| text.parse::<f64>().expect("the file is built in");
        let [real_seconds, user_seconds, system_seconds] = [real, user, system].map(number);
        if *patches == "baseline" {
            unpatched = (user_seconds, system_seconds);
            continue;
        }
        let price = fault(machine, "baseline")? - fault(machine, patches)?;
        let faults = faults.parse::<u64>().ok();
        let most = match *pages {
            "faults" => faults.map(|faults| faults as f64),
            "memory" => Some(memory(machine)),
            // A patch that saves nothing on one thread saves nothing, whatever the number of faults.
            _ => (price == 0.0).then_some(0.0),
        };
        let saved_seconds = unpatched.1 - system_seconds;
        let zeroed_pages = (price > 0.0).then(|| saved_seconds / price);
        let line = machine.costs.line as f64 * 1e-12;
        builds.push(Build {
            computer: computer.to_string(),
            patches: patches.to_string(),
            setting: setting.to_string(),
            faults,
            real_seconds,
            user_seconds,
            system_seconds,
            saved_seconds,
            saved_at_most_seconds: most.map(|pages| pages * price),
            zeroed_pages,
            more_user_seconds: user_seconds - unpatched.0,
            more_user_at_most_seconds: zeroed_pages.map(|pages| pages * number(lines) * line),
        });
    }
    Ok(builds)
}

/// Returns the kernel time per page of a single thread on local memory: a compilation's processes have one thread each.
fn fault(machine: &Machine, patches: &str) -> Result<f64, FaultsError> {
    let patches: Patches = patches.parse()?;
    let row = Experiment {
        machine: machine.clone(),
        kernel: patches.kernel(machine),
        threads: 1,
        size: ByteSize::mib(64),
        repetitions: 1,
        cache_lines: 1,
        touches: Touches::ALL,
    }
    .run(Stepping::Skip)?;
    Ok(row.system_seconds / row.pages as f64)
}

/// Returns the number of pages on all nodes.
fn memory(machine: &Machine) -> f64 {
    let nodes = machine.cpus.div_ceil(machine.cpus_per_node);
    f64::from(nodes) * (machine.node_memory.0 / machine.base_page.0) as f64
}
