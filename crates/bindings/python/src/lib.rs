//! The native part of the Python module `superpage`: simulations, traces, and the verdicts of a comparison's document.
//! It returns results as the command's JSON documents and as byte columns; `python/superpage` turns these into Python
//! objects.
//!
//! The interpreter lock is released during computations, while the calling thread polls for signals.
//! See docs/decisions/python.md#1.
#![forbid(unsafe_code)]

mod call;
mod lab;
mod trace;

use experiment::document::Document;
use pyo3::prelude::*;

use crate::call::{Error, failed};

/// The heap is on superpages, because simulated page tables and frames are accessed at random.
#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap::new();

/// Returns a comparison's analysis as JSON, its table, and its runs as CSV.
#[pyfunction]
fn analyse(json: &str) -> PyResult<(String, String, String)> {
    let document = Document::parse(json, "comparison").map_err(failed)?;
    let analysis = experiment::analysis::analyse(&document);
    let text = serde_json::to_string(&analysis).map_err(failed)?;
    Ok((text, cli::comparison_text(&document, &analysis), experiment::csv::samples(&document)))
}

/// Returns the HTML page of a comparison.
#[pyfunction]
fn html(json: &str) -> PyResult<String> {
    let document = Document::parse(json, "comparison").map_err(failed)?;
    Ok(experiment::html::page(&document, &experiment::analysis::analyse(&document)))
}

/// The Python module.
#[pymodule]
mod _superpage {
    use super::*;
    #[pymodule_export]
    use super::{
        analyse, html,
        lab::{lab_compare, lab_run, lab_sweep, lab_table, lab_tables},
        trace::Trace,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        HEAP.advise();
        operations::reporter::report_to(call::Warnings);
        module.add("Error", module.py().get_type::<Error>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
