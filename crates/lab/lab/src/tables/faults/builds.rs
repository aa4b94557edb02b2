//! Published kernel compilations: what the model's price of a fault says of them. Times and numbers of faults are published
//! inputs; nothing is fitted. See docs/decisions/faults.md#10.

use fault_scaling::{Experiment, FaultsError, Machine, Patches, Stepping, Touches};
use serde::Serialize;
use units::ByteSize;

const BUILDS: &str = include_str!("../../../data/kernel-builds-2005.csv");

/// A compilation under one kernel, beside the one without its patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Build {
    /// The computer, as published.
    pub computer: String,
    /// The patch, as on the command line.
    pub patches: String,
    /// How the patch was set, as published.
    pub setting: String,
    /// Published: minor faults. `None`: not published.
    pub faults: Option<u64>,
    /// Published: time by the clock.
    pub real_seconds: f64,
    /// Published: time in user mode.
    pub user_seconds: f64,
    /// Published: time in the kernel.
    pub system_seconds: f64,
    /// Published: how much less that is than without the patch.
    pub saved_seconds: f64,
    /// Simulated: what the patch saves at most. `None`: it saves something of each fault, and how many there were is not
    /// published.
    pub saved_at_most_seconds: Option<f64>,
    /// Pages zeroed ahead that `saved_seconds` is the price of. `None`: the patch zeroes nothing ahead.
    pub zeroed_pages: Option<f64>,
    /// Published: how much more time in user mode than without the patch.
    pub more_user_seconds: f64,
    /// Simulated: the same if the program uses every cache line of `zeroed_pages`, and would have found all of them in the
    /// cache had the fault zeroed them.
    pub more_user_at_most_seconds: Option<f64>,
}

/// Of a machine's prices.
///
/// # Errors
/// [`FaultsError`]: a file's machine that has no memory for a few faults.
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
            // A patch that saves nothing where there is one thread saves nothing, however many faults there are.
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

/// What a thread alone spends in the kernel on a page of its own node: a compilation's processes have one.
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

/// Pages of all nodes.
fn memory(machine: &Machine) -> f64 {
    let nodes = machine.cpus.div_ceil(machine.cpus_per_node);
    f64::from(nodes) * (machine.node_memory.0 / machine.base_page.0) as f64
}
