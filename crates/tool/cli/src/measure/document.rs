//! Formats a measurement as JSON, schema `superpage.measure/1`. Pure.

use std::os::unix::process::ExitStatusExt;

use serde::Serialize;
use walk_cost::{Attribution, Estimate};

use super::Measured;

/// The JSON document. Shares are from 0 to 1, times are seconds, unknown values are null.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    what: &'a str,
    format: Option<&'static str>,
    seconds: Option<f64>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    estimate: &'a Estimate,
    attribution: &'a [Attribution],
}

/// Creates the document of a measurement.
pub fn from_measured(measured: &Measured) -> Document<'_> {
    Document {
        schema: "superpage.measure/1",
        what: &measured.what,
        format: measured.format.map(|format| format.in_words()),
        seconds: measured.seconds,
        exit_code: measured.ended.and_then(|status| status.code()),
        signal: measured.ended.and_then(|status| status.signal()),
        estimate: &measured.estimate,
        attribution: &measured.attributions,
    }
}
