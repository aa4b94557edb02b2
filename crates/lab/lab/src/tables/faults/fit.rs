//! Constants fitted to published rows: those of a machine's file, and the same without one size or one set of patches,
//! which the rest then predicts. See docs/decisions/faults.md#4 and #15.

use fault_scaling::{Constant, FaultsError, Machine};
use serde::Serialize;

use super::{Line, Published, simulated, typical};
use crate::side_by_side;

/// A fit of a machine's constants of contention to the published rows with several threads, without some of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refit {
    /// The rows left out. `None`: none; the fit to all.
    pub left_out: Option<LeftOut>,
    /// Number of rows left out.
    pub rows: u32,
    /// Typical error of the rows that the constants are fitted to.
    pub fit_error: Option<f64>,
    /// Typical error of the rows left out.
    pub left_out_error: Option<f64>,
    /// Fitted values: picoseconds, or bytes per second.
    pub constants: Vec<Fit>,
}

/// Rows with several threads that a fit leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// A set of patches.
    Patches(String),
    /// An amount of memory, in bytes.
    Bytes(u64),
}

impl LeftOut {
    fn has(&self, row: &Published) -> bool {
        match self {
            Self::Patches(patches) => row.patches == *patches,
            Self::Bytes(bytes) => row.bytes == *bytes,
        }
    }
}

/// A fitted constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// The constant.
    pub constant: Constant,
    /// Its value, as [`Machine::constant`].
    pub value: u64,
}

/// Fits the machine's constants to all rows with several threads, then to all but those of each size and of each set of
/// patches. Empty if the machine's file names no constants.
///
/// # Errors
/// [`FaultsError`]: the machine does not support the published settings.
pub fn leave_out(machine: &Machine) -> Result<Vec<Refit>, FaultsError> {
    if machine.fits.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Published> =
        super::published(&machine.name).into_iter().filter(|row| row.threads > 1).collect();
    let mut parts = vec![None];
    for row in &rows {
        for part in [LeftOut::Bytes(row.bytes), LeftOut::Patches(row.patches.clone())] {
            if rows.iter().any(|row| !part.has(row)) && !parts.contains(&Some(part.clone())) {
                parts.push(Some(part));
            }
        }
    }
    let refits = side_by_side::map(parts, |part| refit(machine, &rows, part));
    refits.into_iter().collect()
}

fn refit(
    machine: &Machine,
    rows: &[Published],
    left_out: Option<LeftOut>,
) -> Result<Refit, FaultsError> {
    let is_left_out = |row: &&Published| left_out.as_ref().is_some_and(|part| part.has(row));
    let (out, rest): (Vec<&Published>, Vec<&Published>) = rows.iter().partition(is_left_out);
    let constants = &machine.fits;
    let mut machine = machine.clone();
    descend(&mut machine, constants, &rest)?;
    let error = |rows: &[&Published]| -> Result<Option<f64>, FaultsError> {
        Ok(typical(lines(&machine, rows)?.iter().map(Line::ratio)))
    };
    let value = |&constant: &Constant| Fit { constant, value: machine.constant(constant) };
    Ok(Refit {
        rows: out.len() as u32,
        fit_error: error(&rest)?,
        left_out_error: error(&out)?,
        constants: constants.iter().map(value).collect(),
        left_out,
    })
}

fn lines(machine: &Machine, rows: &[&Published]) -> Result<Vec<Line>, FaultsError> {
    rows.iter().map(|row| simulated(machine, (*row).clone())).collect()
}

/// Error ratio above which a step does not count as an improvement.
const NOTICEABLE: f64 = 0.9995;

/// Changes the constants, up and down by ever smaller factors, to the least mean square of the logarithms of simulated
/// over published rates. Starts at the machine's values; returns the final mean square, of the logarithm of a ratio.
///
/// # Errors
/// As [`leave_out`].
pub fn descend(
    machine: &mut Machine,
    constants: &[Constant],
    rows: &[&Published],
) -> Result<f64, FaultsError> {
    let error = |machine: &Machine| -> Result<f64, FaultsError> {
        let squares: f64 = lines(machine, rows)?.iter().map(|line| line.ratio().ln().powi(2)).sum();
        Ok(squares / rows.len().max(1) as f64)
    };
    let mut best = error(machine)?;
    let mut step = 1.3;
    while !constants.is_empty() && step > 1.01 {
        let before = best;
        for &constant in constants {
            for factor in [step, 1.0 / step] {
                let old = machine.clone();
                machine.set_constant(constant, (machine.constant(constant) as f64 * factor) as u64);
                // With less memory a published row may not fit the machine.
                match error(machine) {
                    Ok(tried) if tried < best * NOTICEABLE => best = tried,
                    _ => *machine = old,
                }
            }
        }
        if best == before {
            step = f64::sqrt(step);
        }
    }
    Ok(best)
}
