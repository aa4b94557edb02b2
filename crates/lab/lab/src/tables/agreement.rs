//! How well a table was reproduced. Pure.

use serde::Serialize;

use super::{Cell, Role, Table};

/// Published figures that differ by no more than this are taken as equal: papers do not separate them.
const APART: f64 = 1.05;

/// How well a table was reproduced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// Pairs of cells in one row that the paper separates by more than 5 %, and that were simulated.
    pub pairs: usize,
    /// Those whose order the simulation has the other way, or not at all.
    pub wrong: Vec<Pair>,
    /// Each column's geometric mean over the rows that have both figures.
    pub means: Vec<GeometricMean>,
    /// The mean factor by which a cell is off, less one: over all cells but bases and checks.
    pub typical_error: Option<f64>,
    /// The same over held-out cells only.
    pub held_out_error: Option<f64>,
    /// Of the cells that nothing is ever fitted to, of which nothing above is.
    pub checks: Option<Checks>,
}

/// How well cells agree that nothing is ever fitted to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checks {
    /// As [`Agreement::pairs`], where one of the two cells is a check.
    pub pairs: usize,
    /// As [`Agreement::wrong`].
    pub wrong: Vec<Pair>,
    /// As [`Agreement::typical_error`].
    pub typical_error: Option<f64>,
}

/// Two cells of a row in the wrong order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The row.
    pub row: String,
    /// The column that the paper has higher.
    pub higher: String,
    /// The column that it has lower.
    pub lower: String,
    /// The published ratio of the two: above 1.
    pub published: f64,
    /// The simulated one: 1 or below.
    pub simulated: f64,
}

/// A column's geometric means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GeometricMean {
    /// The column.
    pub column: String,
    /// Of the published figures.
    pub published: f64,
    /// Of the simulated ones.
    pub simulated: f64,
    /// How far the latter is off.
    pub error: f64,
}

impl Table {
    /// How well it was reproduced.
    pub fn agreement(&self) -> Agreement {
        let is_check = |cell: &Cell| cell.role == Role::Check;
        let is_checked = |a: &Cell, b: &Cell| is_check(a) || is_check(b);
        let (pairs, wrong) = self.pairs(|a, b| !is_checked(a, b));
        let checks = self.rows.iter().flat_map(|row| &row.cells).any(is_check).then(|| {
            let (pairs, wrong) = self.pairs(is_checked);
            let typical_error = self.typical_error(|role| role == Role::Check);
            Checks { pairs, wrong, typical_error }
        });
        Agreement {
            pairs,
            wrong,
            means: self.means(),
            typical_error: self.typical_error(Role::is_known),
            held_out_error: self.typical_error(|role| role == Role::HeldOut),
            checks,
        }
    }

    /// Some pairs of cells of one row, and those that are in the wrong order.
    fn pairs(&self, counts: impl Fn(&Cell, &Cell) -> bool) -> (usize, Vec<Pair>) {
        let (mut pairs, mut wrong) = (0, Vec::new());
        for row in &self.rows {
            for (high, higher) in row.cells.iter().enumerate() {
                for (low, lower) in row.cells.iter().enumerate() {
                    if !counts(higher, lower) {
                        continue;
                    }
                    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
                    let published = ratio(higher.published, lower.published);
                    let Some(published) = published.filter(|ratio| *ratio > APART) else {
                        continue;
                    };
                    let Some(simulated) = ratio(higher.simulated, lower.simulated) else {
                        continue;
                    };
                    pairs += 1;
                    if simulated <= 1.0 {
                        wrong.push(Pair {
                            row: row.name.clone(),
                            higher: self.columns[high].clone(),
                            lower: self.columns[low].clone(),
                            published,
                            simulated,
                        });
                    }
                }
            }
        }
        (pairs, wrong)
    }

    fn means(&self) -> Vec<GeometricMean> {
        let column = |(index, name): (usize, &String)| {
            let both = self.rows.iter().filter_map(|row| {
                let cell = row.cells.get(index).filter(|cell| cell.role.is_known())?;
                positive(cell.published).zip(positive(cell.simulated))
            });
            let (published, simulated): (Vec<f64>, Vec<f64>) = both.unzip();
            let (published, simulated) = (geometric(&published)?, geometric(&simulated)?);
            let error = simulated / published - 1.0;
            Some(GeometricMean { column: name.clone(), published, simulated, error })
        };
        self.columns.iter().enumerate().filter_map(column).collect()
    }

    /// The geometric mean of max(simulated/published, published/simulated), less one.
    fn typical_error(&self, counts: impl Fn(Role) -> bool) -> Option<f64> {
        let cells = self.rows.iter().flat_map(|row| &row.cells).filter(|cell| counts(cell.role));
        typical(
            cells.filter_map(|cell| Some(positive(cell.simulated)? / positive(cell.published)?)),
        )
    }
}

/// By what factors of simulated over published are off, less one: the geometric mean, whichever way.
pub(crate) fn typical(factors: impl Iterator<Item = f64>) -> Option<f64> {
    let factors: Vec<f64> = factors.map(|factor| factor.max(1.0 / factor)).collect();
    geometric(&factors).map(|mean| mean - 1.0)
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

/// The geometric mean; `None` of nothing.
pub(crate) fn geometric(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::super::{Better, Row};
    use super::*;

    fn table(rows: &[&[(f64, f64)]]) -> Table {
        let cell = |(index, (published, simulated)): (usize, &(f64, f64))| Cell {
            published: (*published > 0.0).then_some(*published),
            simulated: (*simulated > 0.0).then_some(*simulated),
            role: [Role::Base, Role::Fitted, Role::HeldOut][index.min(2)],
        };
        let row = |(index, cells): (usize, &&[(f64, f64)])| Row {
            name: format!("w{index}"),
            cells: cells.iter().enumerate().map(cell).collect(),
        };
        Table {
            name: "t".to_string(),
            source: "a paper".to_string(),
            left_out: String::new(),
            figure: "speed-up".to_string(),
            better: Better::Higher,
            columns: ["base", "a", "b"].map(String::from).to_vec(),
            rows: rows.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn pairs_that_a_paper_separates_must_be_in_its_order() {
        // base-a and base-b are apart in both rows; a-b is within 5 % in the first.
        let table = table(&[
            &[(1.0, 1.0), (1.50, 1.4), (1.52, 1.3)],
            &[(1.0, 1.0), (1.20, 0.9), (1.40, 1.4)],
        ]);
        let agreement = table.agreement();
        assert_eq!((agreement.pairs, agreement.wrong.len()), (5, 1));
        let wrong = &agreement.wrong[0];
        assert_eq!((&*wrong.row, &*wrong.higher, &*wrong.lower), ("w1", "a", "base"));
        assert!((wrong.published - 1.2).abs() < 1e-12 && (wrong.simulated - 0.9).abs() < 1e-12);
    }

    #[test]
    fn errors_are_geometric_means_without_bases() {
        let table =
            table(&[&[(1.0, 1.0), (2.0, 2.2), (1.0, 0.8)], &[(1.0, 1.0), (2.0, 1.8), (0.0, 3.0)]]);
        let agreement = table.agreement();
        let mean = &agreement.means[0];
        assert_eq!((agreement.means.len(), &*mean.column), (2, "a"));
        assert!((mean.simulated - (2.2f64 * 1.8).sqrt()).abs() < 1e-12);
        assert!((agreement.held_out_error.unwrap() - 0.25).abs() < 1e-12);
        let three = (1.1f64 * (2.0 / 1.8) * 1.25).cbrt() - 1.0;
        assert!((agreement.typical_error.unwrap() - three).abs() < 1e-12);
    }

    #[test]
    fn a_pair_with_a_check_is_a_check() {
        let mut table = table(&[&[(1.0, 1.0), (2.0, 2.2), (3.0, 2.0)]]);
        table.rows[0].cells[2].role = Role::Check;
        let agreement = table.agreement();
        // Base and a; base and b, a and b.
        assert_eq!((agreement.pairs, agreement.wrong.len()), (1, 0));
        let checks = agreement.checks.expect("b is one");
        assert_eq!((checks.pairs, checks.wrong.len()), (2, 1));
        assert!((agreement.typical_error.unwrap() - 0.1).abs() < 1e-12);
        assert!((checks.typical_error.unwrap() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn nothing_known_is_nothing_said() {
        let agreement = table(&[]).agreement();
        assert_eq!((agreement.pairs, agreement.typical_error, agreement.means.len()), (0, None, 0));
    }
}
