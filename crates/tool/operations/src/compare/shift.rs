//! `compare stream` repeats its runs with arrays shifted by a cache line if runs of one arm differ too much.
//! See docs/decisions/compare.md#6.

use experiment::arrays;
use experiment::document::{Arrays, Attempt, Document};
use experiment::procedure::Stopped;
use experiment::spread::MAX_DEVIATION;
use report::format::{self as words, percent};
use workload::{Workload, stream};

use crate::Failure;
use crate::jobs::{Job, JobOutcome};
use crate::reporter::say;

/// Maximum number of shifts: if more are needed, the deviation has another cause.
const MAX_SHIFTS: usize = 3;

/// Runs `job`. For STREAM without a given offset, tries further offsets.
pub fn run(
    mut job: Job,
    workload: Option<Workload>,
    between: &mut dyn FnMut(),
) -> Result<JobOutcome, Failure> {
    let is_given = job.shown.iter().any(|word| word == "--offset");
    if workload != Some(Workload::Stream) || is_given {
        return job.run_and(between);
    }
    let (mut offset, mut earlier) = (stream::OFFSET, Vec::new());
    loop {
        let may_shift = earlier.len() < MAX_SHIFTS;
        job.settings.rule.max_deviation = may_shift.then_some(MAX_DEVIATION);
        match job.run_and(between)? {
            JobOutcome::Document(document) if document.stopped == Stopped::Deviation => {
                let next = arrays::shifted(offset, arrays::line(&document));
                shift(&mut job, next, &document);
                earlier.push((offset, document));
                offset = next;
            }
            JobOutcome::Document(document) => {
                return Ok(JobOutcome::Document(placed(document, offset, earlier)));
            }
            JobOutcome::Signal(signal, made) => {
                // The signal came before this offset had a complete block: return the previous offset's runs.
                let last = made.map(|document| (offset, document)).or_else(|| earlier.pop());
                let document = last.map(|(offset, document)| placed(document, offset, earlier));
                return Ok(JobOutcome::Signal(signal, document));
            }
        }
    }
}

/// Prepares the next runs with `offset`, within the remaining time.
fn shift(job: &mut Job, offset: u64, last: &Document) {
    if let (Some(found), false) = (arrays::deviation(last), job.quiet) {
        // Include the arguments: in a series they tell which value this is.
        let run = words::command(job.shown.iter().skip(2));
        say(&format!(
            "{run}: {}: {} has a standard deviation of {}: repeating with --offset {offset}",
            found.arm,
            found.metric,
            percent(found.share)
        ));
    }
    let left = job.settings.max_seconds.map(|limit| limit - last.elapsed_seconds);
    job.settings.max_seconds = left.map(|left| left.max(f64::MIN_POSITIVE));
    for command in [&mut job.command, &mut job.shown] {
        match command.iter().position(|word| word == "--offset") {
            Some(at) => command[at + 1] = offset.to_string().into(),
            // Insert after the three words `superpage workload stream`.
            None => drop(command.splice(3..3, ["--offset".into(), offset.to_string().into()])),
        }
    }
}

/// Adds the array offset and the attempts with earlier offsets to the document.
fn placed(
    mut document: Box<Document>,
    offset_bytes: u64,
    earlier: Vec<(u64, Box<Document>)>,
) -> Box<Document> {
    let attempt = |(offset_bytes, document): (u64, Box<Document>)| Attempt {
        offset_bytes,
        deviation: arrays::deviation(&document),
        arms: document.arms.iter().map(|arm| arm.name.clone()).collect(),
        samples: document.samples,
        elapsed_seconds: document.elapsed_seconds,
    };
    document.arrays = Some(Arrays {
        line_bytes: arrays::line(&document),
        offset_bytes,
        deviation: arrays::deviation(&document),
        earlier: earlier.into_iter().map(attempt).collect(),
    });
    document
}
