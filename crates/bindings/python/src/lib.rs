//! The module of Python below `superpage`: simulations and traces, computed here; a comparison's verdicts, from its
//! document. Results are handed over as the documents that the command prints, and as columns of bytes; what they look like
//! to a user of Python is said in `python/superpage`.
//!
//! The lock of the interpreter is not held while anything is computed; signals are looked for meanwhile, on the thread
//! that called.
//! See docs/decisions/python.md#1.
#![forbid(unsafe_code)]

mod call;
mod lab;
mod trace;

use experiment::document::Document;
use pyo3::prelude::*;

use crate::call::{Error, failed};

/// Simulated page tables and frames are read at random.
#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap::new();

/// What a comparison says: its document, the analysis and, in short, the table and the runs as CSV.
#[pyfunction]
fn analyse(json: &str) -> PyResult<(String, String, String)> {
    let document = Document::parse(json, "comparison").map_err(failed)?;
    let analysis = experiment::analysis::analyse(&document);
    let text = serde_json::to_string(&analysis).map_err(failed)?;
    Ok((text, cli::comparison_text(&document, &analysis), experiment::csv::samples(&document)))
}

/// The page of a comparison.
#[pyfunction]
fn html(json: &str) -> PyResult<String> {
    let document = Document::parse(json, "comparison").map_err(failed)?;
    Ok(experiment::html::page(&document, &experiment::analysis::analyse(&document)))
}

/// The module.
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
        module.add("Error", module.py().get_type::<Error>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
