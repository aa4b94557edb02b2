//! Published rows, and how far the model is off.
//!
//! Rows of the same condition (samples) are one here, their geometric mean: their spread is not the
//! model's to explain. What a constant was fitted to is marked; agreement there proves nothing.

use serde::Serialize;
use units::ByteSize;

use fault_scaling::{Experiment, FaultsError, Machine, Patches, Row, Stepping, Touches};

use super::{Role, geometric, typical};

pub use bounds::{Bound, Order};
pub use builds::Build;

mod bounds;
mod builds;
#[cfg(test)]
mod tests;

const ROWS: &str = include_str!("../../../data/page-faults-2005.csv");
/// Rows that nothing is ever fitted to.
const CHECKS: &str = include_str!("../../../data/page-faults-2005-checks.csv");

/// A published row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// The patches, as on the command line.
    pub patches: String,
    /// Memory touched in each repetition.
    pub bytes: u64,
    /// Repetitions.
    pub repetitions: u32,
    /// Threads.
    pub threads: u32,
    /// Cache lines of each page.
    pub cache_lines: u32,
    /// Whether it is one of the rows that nothing is ever fitted to.
    pub is_check: bool,
    /// Rows that were published of this condition.
    pub samples: u32,
    /// Pages for each second of CPU time, and by the clock.
    pub pages_per_cpu_second: f64,
    /// By the clock.
    pub pages_per_wall_second: f64,
}

/// A row, published and simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// As published.
    pub published: Published,
    /// As simulated.
    pub row: Row,
    /// Whether a constant was fitted to it.
    pub role: Role,
}

/// A machine's rows, and how well they agree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: String,
    /// Every row.
    pub lines: Vec<Line>,
    /// How far rates by the clock are off in the geometric mean, with more than one thread.
    pub scaling_error: Option<f64>,
    /// The same of rows that nothing was fitted to.
    pub held_out_error: Option<f64>,
    /// The same of rows that came after the model, with any number of threads.
    pub check_error: Option<f64>,
    /// Whether the patches stand in the published order in those rows.
    pub check_order: Option<Order>,
    /// The same of rows with one thread, without those.
    pub single_error: Option<f64>,
    /// With more than one thread, for each patch.
    pub by_patches: Vec<PatchError>,
    /// For each patch and size, where the most pages were mapped by the clock.
    pub peaks: Vec<Peak>,
    /// What the published rows allow if faults took no time at all.
    pub bounds: Vec<Bound>,
    /// Published kernel compilations.
    pub builds: Vec<Build>,
    /// Published rows of this machine that are not here, and why.
    pub left_out: &'static str,
}

/// How far a patch's rows are off.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchError {
    /// The patches.
    pub patches: String,
    /// In the geometric mean.
    pub error: f64,
}

/// Where a curve has its peak.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    /// The patches.
    pub patches: String,
    /// Memory touched in each repetition.
    pub bytes: u64,
    /// Repetitions.
    pub repetitions: u32,
    /// Whether the curve is of checks.
    pub is_check: bool,
    /// Threads at the published peak.
    pub published: u32,
    /// At the simulated one.
    pub simulated: u32,
}

/// The rows of a machine, samples joined; none for machines that nobody published rows of.
pub fn published(machine: &str) -> Vec<Published> {
    let mut all: Vec<(Published, Vec<f64>, Vec<f64>)> = Vec::new();
    let of = |text: &'static str, is_check: bool| {
        let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
        lines.map(move |line| (line, is_check))
    };
    for (line, is_check) in of(ROWS, false).chain(of(CHECKS, true)) {
        let fields: Vec<&str> = line.split(',').collect();
        let [name, patches, mib, repetitions, threads, lines, .., per_cpu, per_wall] = fields[..]
        else {
            continue;
        };
        if name != machine {
            continue;
        }
        let whole = |text: &str| text.parse::<u32>().expect("the file is built in");
        let rate = |text: &str| text.parse::<f64>().expect("the file is built in");
        let one = Published {
            patches: patches.replace('+', ","),
            bytes: ByteSize::mib(u64::from(whole(mib))).0,
            repetitions: whole(repetitions),
            threads: whole(threads),
            cache_lines: whole(lines),
            is_check,
            samples: 0,
            pages_per_cpu_second: 0.0,
            pages_per_wall_second: 0.0,
        };
        let place = all.iter().position(|(other, ..)| *other == one);
        let place = place.unwrap_or_else(|| {
            all.push((one, Vec::new(), Vec::new()));
            all.len() - 1
        });
        all[place].1.push(rate(per_cpu));
        all[place].2.push(rate(per_wall));
    }
    let join = |(one, per_cpu, per_wall): (Published, Vec<f64>, Vec<f64>)| Published {
        samples: per_wall.len() as u32,
        pages_per_cpu_second: geometric(&per_cpu).unwrap_or(0.0),
        pages_per_wall_second: geometric(&per_wall).unwrap_or(0.0),
        ..one
    };
    all.into_iter().map(join).collect()
}

/// Runs the published rows of a machine that are wanted.
///
/// # Errors
/// [`FaultsError`]: the machine cannot have what was published of it.
pub fn lines(
    machine: &Machine,
    wants: impl Fn(&Published, Role) -> bool,
) -> Result<Vec<Line>, FaultsError> {
    let mut lines = Vec::new();
    for published in published(&machine.name) {
        let is_fitted = published.threads == 1
            || machine.fitted.iter().any(|fitted| {
                fitted.patches == published.patches && fitted.threads.contains(&published.threads)
            });
        let role = match is_fitted {
            _ if published.is_check => Role::Check,
            true => Role::Fitted,
            false => Role::HeldOut,
        };
        if !wants(&published, role) {
            continue;
        }
        let patches: Patches = published.patches.parse()?;
        let experiment = Experiment {
            machine: machine.clone(),
            kernel: patches.kernel(machine),
            threads: published.threads,
            size: ByteSize(published.bytes),
            repetitions: published.repetitions,
            cache_lines: published.cache_lines,
            touches: Touches::ALL,
        };
        let row = experiment.run(Stepping::Skip)?;
        lines.push(Line { published, row, role });
    }
    Ok(lines)
}

/// Runs every published row of a machine.
///
/// # Errors
/// As [`lines`].
pub fn compare(machine: &Machine) -> Result<Comparison, FaultsError> {
    let lines = lines(machine, |_, _| true)?;
    let error = |counts: &dyn Fn(&Line) -> bool| {
        typical(lines.iter().filter(|line| counts(line)).map(Line::ratio))
    };
    let known = |line: &Line| line.role != Role::Check;
    let scaling_error = error(&|line| known(line) && line.row.threads > 1);
    let single_error = error(&|line| known(line) && line.row.threads == 1);
    let held_out_error = error(&|line| line.role == Role::HeldOut);
    let check_error = error(&|line| !known(line));
    let mut names: Vec<&String> = lines.iter().map(|line| &line.published.patches).collect();
    names.sort();
    names.dedup();
    let of = |name: &String| {
        let is = |line: &Line| line.row.threads > 1 && line.published.patches == *name;
        let error = error(&|line| known(line) && is(line))?;
        Some(PatchError { patches: name.clone(), error })
    };
    let by_patches = names.into_iter().filter_map(of).collect();
    let peaks = peaks(&lines);
    let bounds = bounds::of(&lines);
    let check_order = bounds::order(lines.iter().filter(|line| !known(line)));
    let builds = builds::of(machine)?;
    let left_out = left_out(&machine.name);
    let machine = machine.name.clone();
    Ok(Comparison {
        machine,
        bounds,
        builds,
        left_out,
        check_error,
        check_order,
        lines,
        scaling_error,
        held_out_error,
        single_error,
        by_patches,
        peaks,
    })
}

/// Published rows of a machine that no line is of.
fn left_out(machine: &str) -> &'static str {
    match machine {
        "altix-8" => {
            "kernel compilation with prefault (two rows, max_prealloc_order 1 and 4: neither how many faults there were \
             nor how far they go in order is published); LMBench (named as a result, without figures in any source here; \
             its author says that prezeroing does not change it, as it uses every line of a page); tables of the posts \
             before 2.6.11 (12 rows of V11 on 32 CPUs, another machine; two rows by cache lines touched, with 1 and 128, \
             that the price of a line is from)"
        }
        "i386-up" => {
            "three rows of prefault that are labelled 600 MB and have the times of 200 MB; LMBench (as altix-8); 8 rows of \
             prezeroing on two Pentium III"
        }
        _ => "none",
    }
}

impl Line {
    /// The ratio of simulated to published pages per second, by the clock.
    pub fn ratio(&self) -> f64 {
        self.row.pages_per_wall_second / self.published.pages_per_wall_second
    }
}

fn peaks(lines: &[Line]) -> Vec<Peak> {
    let curve = |line: &Line| {
        let published = &line.published;
        (published.patches.clone(), published.bytes, published.repetitions, published.is_check)
    };
    let mut curves: Vec<_> = lines.iter().map(curve).collect();
    curves.dedup();
    let peak = |of: &dyn Fn(&Line) -> f64, which: &(String, u64, u32, bool)| {
        let own = lines.iter().filter(|line| curve(line) == *which);
        own.max_by(|a, b| of(a).total_cmp(&of(b))).map(|line| line.row.threads)
    };
    let peak = |which: (String, u64, u32, bool)| {
        let published = peak(&|line| line.published.pages_per_wall_second, &which)?;
        let simulated = peak(&|line| line.row.pages_per_wall_second, &which)?;
        let (patches, bytes, repetitions, is_check) = which;
        Some(Peak { is_check, patches, bytes, repetitions, published, simulated })
    };
    curves.into_iter().filter_map(peak).collect()
}
