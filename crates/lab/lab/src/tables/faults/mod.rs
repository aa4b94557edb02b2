//! Published rows of fault scaling, and the model's errors.
//!
//! Rows of the same condition (samples) are joined into their geometric mean, because the model does not explain their
//! spread. Rows to which a constant was fitted are marked; agreement there proves nothing.

use serde::Serialize;
use units::ByteSize;

use fault_scaling::{Experiment, FaultsError, Machine, Patches, Row, Stepping, Touches};

use super::{Role, geometric, typical};

pub use bounds::{Bound, Order};
pub use builds::Build;
pub use fit::{Fit, LeftOut, Refit, descend, leave_out};

mod bounds;
mod builds;
mod fit;
#[cfg(test)]
mod tests;

const ROWS: &str = include_str!("../../../data/page-faults-2005.csv");
/// Rows to which no constant is ever fitted.
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
    /// Cache lines touched per page.
    pub cache_lines: u32,
    /// Whether the row is a check, to which no constant is ever fitted.
    pub is_check: bool,
    /// Number of published rows of this condition.
    pub samples: u32,
    /// Pages per second of CPU time.
    pub pages_per_cpu_second: f64,
    /// Pages per second of wall-clock time.
    pub pages_per_wall_second: f64,
}

/// A row, published and simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Published figures.
    pub published: Published,
    /// Simulated row.
    pub row: Row,
    /// Whether a constant was fitted to the row.
    pub role: Role,
}

/// A machine's rows and their agreement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: String,
    /// Every row.
    pub lines: Vec<Line>,
    /// Typical error (geometric mean of the factors, minus one) of wall-clock rates with more than one thread, without
    /// checks.
    pub scaling_error: Option<f64>,
    /// As `scaling_error`, over held-out rows only.
    pub held_out_error: Option<f64>,
    /// Typical error over the check rows, with any number of threads.
    pub check_error: Option<f64>,
    /// Agreement on the order of patches in the check rows.
    pub check_order: Option<Order>,
    /// Typical error with one thread, without checks.
    pub single_error: Option<f64>,
    /// Typical error of each set of patches with more than one thread.
    pub by_patches: Vec<PatchError>,
    /// Peak of the wall-clock rate for each set of patches and size.
    pub peaks: Vec<Peak>,
    /// Bounds on the published rows if faults took no time.
    pub bounds: Vec<Bound>,
    /// Published kernel compilations.
    pub builds: Vec<Build>,
    /// Published rows of this machine that are not included, and why.
    pub left_out: &'static str,
}

/// Typical error of a set of patches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchError {
    /// The patches.
    pub patches: String,
    /// Typical error.
    pub error: f64,
}

/// The peak of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    /// The patches.
    pub patches: String,
    /// Memory touched in each repetition.
    pub bytes: u64,
    /// Repetitions.
    pub repetitions: u32,
    /// Whether the curve consists of checks.
    pub is_check: bool,
    /// Threads at the published peak.
    pub published: u32,
    /// Threads at the simulated peak.
    pub simulated: u32,
}

/// Returns a machine's published rows; repeated samples of a row are joined into one. Empty if none were published.
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
        pages_per_cpu_second: geometric(per_cpu).unwrap_or(0.0),
        pages_per_wall_second: geometric(per_wall).unwrap_or(0.0),
        ..one
    };
    all.into_iter().map(join).collect()
}

/// Simulates the selected published rows of a machine.
///
/// # Errors
/// [`FaultsError`]: the machine does not support the published settings.
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
        lines.push(Line { role, ..simulated(machine, published)? });
    }
    Ok(lines)
}

/// Simulates a published row, as one that is held out.
fn simulated(machine: &Machine, published: Published) -> Result<Line, FaultsError> {
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
    Ok(Line { published, row, role: Role::HeldOut })
}

/// Simulates every published row of a machine.
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

/// Returns the published figures of a machine that are not included.
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
    /// Returns the ratio of simulated to published pages per wall-clock second.
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
    // Rows with one number of threads have no peak.
    curves.retain(|which| {
        let mut threads =
            lines.iter().filter(|line| curve(line) == *which).map(|line| line.row.threads);
        let first = threads.next();
        threads.any(|threads| Some(threads) != first)
    });
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
