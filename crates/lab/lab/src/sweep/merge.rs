//! Shards into one result: rows sorted by hash, so that the bytes tell nothing of how it was made.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Damage, Hash, Plan, Store, SweepError};
use crate::{ENGINE, Report};

/// The version of the merged JSON's layout.
pub const MERGE_SCHEMA: &str = "superpage.lab.sweep/1";

/// A merged sweep.
#[derive(Debug)]
pub struct Merged {
    /// Every report, as JSON.
    pub json: String,
    /// One row per report, as Parquet; `None`: built without the feature `parquet`.
    pub parquet: Option<Vec<u8>>,
    /// Rows.
    pub rows: usize,
    /// Cells of the plan.
    pub planned: usize,
    /// Files with lines that could not be used.
    pub damaged: Vec<Damage>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    engine: &'a str,
    planned: usize,
    cells: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    hash: Hash,
    report: &'a Report,
}

/// Merges the results in directories that were made from one plan. Reports of cells that the plan does
/// not have (any more) are left out. Without `partial`, every cell must be there.
///
/// # Errors
/// [`SweepError`]: a directory without a plan or with another one, two reports of one cell, or without `partial` a cell
/// without a report.
pub fn merge(stores: &[Store], partial: bool) -> Result<Merged, SweepError> {
    let (plan, reports, damaged) = read(stores)?;
    let cells: Vec<Hash> =
        plan.groups().iter().flat_map(|g| g.members.iter().map(|one| one.cell)).collect();
    let mut rows: Vec<(Hash, &Report)> =
        cells.iter().filter_map(|cell| Some((*cell, reports.get(cell)?))).collect();
    rows.sort_by_key(|(cell, _)| *cell);
    let (planned, found) = (cells.len(), rows.len());
    if found < planned && !partial {
        return Err(SweepError::Incomplete { missing: planned - found, planned });
    }
    #[cfg(feature = "parquet")]
    let parquet = Some(super::parquet::bytes(&super::columns::columns(&rows))?);
    #[cfg(not(feature = "parquet"))]
    let parquet = None;
    let cells = rows.iter().map(|(hash, report)| Row { hash: *hash, report }).collect();
    let document = Document { schema: MERGE_SCHEMA, engine: ENGINE, planned, cells };
    let mut json = serde_json::to_string(&document).expect("reports are plain data");
    json.push('\n');
    Ok(Merged { json, parquet, rows: found, planned, damaged })
}

type All = (Plan, BTreeMap<Hash, Report>, Vec<Damage>);

fn read(stores: &[Store]) -> Result<All, SweepError> {
    let mut all: Option<All> = None;
    for store in stores {
        let (plan, contents) = (store.plan()?, store.read()?);
        let Some((first, reports, damaged)) = &mut all else {
            all = Some((plan, contents.reports, contents.damaged));
            continue;
        };
        if plan != *first {
            return Err(SweepError::PlansDiffer {
                first: stores[0].directory().to_path_buf(),
                second: store.directory().to_path_buf(),
            });
        }
        damaged.extend(contents.damaged);
        for (cell, report) in contents.reports {
            if reports.get(&cell).is_some_and(|old| *old != report) {
                return Err(SweepError::Conflict { cell, path: store.directory().to_path_buf() });
            }
            reports.insert(cell, report);
        }
    }
    all.ok_or_else(|| SweepError::NoPlan("no directory".into()))
}
