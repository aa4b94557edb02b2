//! `Series`: comparisons of the same arms at several values of one parameter. Like `Document`, it holds only facts.

mod picture;

use serde::{Deserialize, Serialize};

use crate::document::{Document, DocumentError};

/// Name and version of the format.
pub const SCHEMA: &str = "superpage.compare-series/1";

/// Comparisons at several values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// [`SCHEMA`].
    pub schema: String,
    /// The varied parameter: an option of the workload, or the `{NAME}` in the program's arguments.
    pub varied: String,
    /// The comparisons in the order of execution; fewer than requested if the series was interrupted.
    pub points: Vec<Point>,
    /// Requested values that were not run.
    pub missing: Vec<String>,
}

/// One comparison of the series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The value as given to the program.
    pub value: String,
    /// The value as a number; sizes in bytes.
    #[serde(deserialize_with = "units::number")]
    pub number: f64,
    /// The comparison.
    pub comparison: Document,
}

impl Series {
    /// Returns whether the schema of the text is that of a series.
    pub fn is_one(text: &str) -> bool {
        let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
        value.is_some_and(|value| value["schema"] == SCHEMA)
    }

    /// Parses a series. Error messages name `file`.
    ///
    /// # Errors
    /// If it is not JSON of these fields, or a comparison in it is damaged.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        report::document::read(text).map_err(|why| DocumentError::NotADocument(file.into(), why))
    }

    /// Draws the ratios as a chart, one panel per quantity; `None` if nothing has a ratio.
    pub fn to_svg(&self) -> Option<String> {
        picture::draw(self).map(report::frame::file)
    }

    /// Formats the chart and every verdict as one self-contained page.
    pub fn to_html(&self) -> String {
        picture::page(self)
    }
}
