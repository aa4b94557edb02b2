//! `superpage.lab`: each function takes the arguments of a `superpage lab` command and returns its output.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use lab_cli::documents::{self, Going, Printed};
use lab_cli::sweep;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use operations::Failure;

use crate::call::{apart, failed};

/// JSON document, table and figures.
type Texts = (String, String, String);

fn texts(
    py: Python<'_>,
    words: &[String],
    made: fn(&[String], Going<'_>) -> Result<Printed, Failure>,
) -> PyResult<Texts> {
    let Printed { json, text, figures } = apart(py, |going| made(words, going))?;
    Ok((json, text, serde_json::to_string(&figures).map_err(failed)?))
}

/// Runs `superpage lab run`.
#[pyfunction]
pub fn lab_run(py: Python<'_>, words: Vec<String>) -> PyResult<Texts> {
    texts(py, &words, documents::run)
}

/// Runs `superpage lab compare`.
#[pyfunction]
pub fn lab_compare(py: Python<'_>, words: Vec<String>) -> PyResult<Texts> {
    texts(py, &words, documents::compare)
}

/// Runs `superpage lab table`.
#[pyfunction]
pub fn lab_table(py: Python<'_>, words: Vec<String>) -> PyResult<Texts> {
    texts(py, &words, documents::table)
}

/// Returns the JSON list of published tables.
#[pyfunction]
pub fn lab_tables() -> PyResult<String> {
    documents::tables().map_err(failed)
}

/// The JSON document, the Parquet file, the number of cells with results, the number of planned cells, and the failed
/// passes with their reasons.
type Swept<'py> = (String, Bound<'py, PyBytes>, usize, usize, Vec<(String, String)>);

/// Runs `superpage lab sweep`: plans, runs and merges.
#[pyfunction]
pub fn lab_sweep(
    py: Python<'_>,
    directory: PathBuf,
    plan: Vec<String>,
    jobs: Option<NonZeroUsize>,
    max_seconds: Option<f64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Swept<'_>> {
    let max_time = max_seconds.map(Duration::try_from_secs_f64).transpose().map_err(failed)?;
    // Holds the exception that the caller's progress function raised, which cancels the sweep.
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let swept = apart(py, |going| {
        let going = || match raised.lock().is_ok_and(|raised| raised.is_some()) {
            true => std::ops::ControlFlow::Break(()),
            false => going(),
        };
        let step = |now: sweep::Progress| {
            let Some(progress) = &progress else { return };
            let told = Python::attach(|py| progress.call1(py, (now.done, now.wanted)).map(drop));
            if let (Err(error), Ok(mut raised)) = (told, raised.lock()) {
                raised.get_or_insert(error);
            }
        };
        sweep::whole(&directory, &plan, jobs, max_time, &going, step)
    });
    if let Ok(Some(error)) = raised.into_inner() {
        return Err(error);
    }
    let sweep::Swept { ran, merged } = swept?;
    let parquet = PyBytes::new(py, &merged.parquet.unwrap_or_default());
    Ok((merged.json, parquet, merged.rows, merged.planned, ran.failed))
}
