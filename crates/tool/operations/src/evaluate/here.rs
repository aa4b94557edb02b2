//! Evaluates on this machine, one entry after the other.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use experiment::document::machine_line;
use experiment::evaluation::{Application, Evaluation, NotRun};
use experiment::procedure::Stopped;
use experiment::sample::Purpose;
use host::{Root, Snapshot};
use report::format;

use super::{End, Plan, PlannedEntry, Request, find, read};
use crate::Failure;
use crate::compare::suite::Entry;
use crate::files::{self, WriteLock};
use crate::jobs::JobOutcome;
use crate::json;
use crate::reporter::say;
use crate::signals;

/// Runs the pending entries. If [`End`] reports a signal or failure, the evaluation holds the results until then.
pub fn evaluate(request: &Request) -> Result<(Evaluation, End), Failure> {
    let began = Instant::now();
    let _lock = request.resume.as_deref().map(WriteLock::new).transpose()?;
    let evaluation = request.resume.as_deref().map_or(Ok(Evaluation::new()), resumed)?;
    let (evaluation, pending) = divided(request, evaluation, Entry::missing)?;
    if pending.is_empty() && evaluation.applications.is_empty() {
        return Err(nothing_here(&evaluation));
    }
    run(request, evaluation, pending, began)
}

/// Does the work of one cluster job: writes the results to `file`, unless a signal interrupts it.
pub fn into(request: &Request, file: &Path) -> End {
    let began = Instant::now();
    let (evaluation, pending) = divided(request, Evaluation::new(), Entry::missing)?;
    let (evaluation, end) = run(request, evaluation, pending, began)?;
    if !matches!(end, Ok(Some(_))) {
        files::write(file, true, json::to_json(&evaluation)?)?;
    }
    end
}

/// Returns the entries that would be run, and the seconds for each.
pub fn plan(request: &Request) -> Result<Plan, Failure> {
    let evaluation = request.resume.as_deref().map_or(Ok(Evaluation::new()), resumed)?;
    let (evaluation, pending) = divided(request, evaluation, Entry::missing_programs)?;
    let seconds = request.max_time / pending.len().max(1) as f64;
    let entries = pending.iter().map(|entry| PlannedEntry::new(entry, seconds)).collect();
    let on = request.cluster.on.name();
    Ok(Plan { on, entries, not_run: evaluation.not_run, submission: None })
}

/// Reads the evaluation in the file of `--resume`, if it exists; fails if it is of another machine.
fn resumed(path: &Path) -> Result<Evaluation, Failure> {
    let made = kept(path)?;
    let here = machine_line(&Snapshot::read(&Root::real()));
    match made.applications.iter().map(Application::kind).find(|there| *there != here) {
        None => Ok(made),
        Some(there) => Err(Failure::usage(format!(
            "{}: its runs are of {there}, and this is {here}; name another file, and compare them by --compare",
            path.display()
        ))),
    }
}

/// Reads the evaluation in the file of `--resume`, if it exists. Entries that were not run are tried again.
pub fn kept(path: &Path) -> Result<Evaluation, Failure> {
    if !path.exists() {
        files::check_new(path, true)?;
        return Ok(Evaluation::new());
    }
    Ok(Evaluation { not_run: Vec::new(), ..read(path)? })
}

/// Saves the evaluation to the file of `--resume`, if given.
pub fn save(request: &Request, evaluation: &Evaluation) -> Result<(), Failure> {
    let Some(path) = &request.resume else { return Ok(()) };
    files::write(path, true, json::to_json(evaluation)?)
}

/// Returns the error that nothing could be compared, with the missing requirements.
pub fn nothing_here(evaluation: &Evaluation) -> Failure {
    let lacking = evaluation.not_run.iter().map(|one| format!("{} {}", one.name, one.why));
    let lacking = lacking.collect::<Vec<_>>().join("; ");
    Failure::cannot(format!("no application of the suites is here: {lacking}"))
}

/// Returns how the evaluation ended.
pub fn end(signal: Option<i32>, evaluation: &Evaluation) -> End {
    let failed: Vec<&str> =
        evaluation.not_run.iter().filter(|one| one.failed).map(|one| one.name.as_str()).collect();
    match (signal, failed.is_empty()) {
        (Some(signal), _) => Ok(Some(signal)),
        (None, true) => Ok(None),
        (None, false) => {
            Err(Failure::usage(format!("failed: {}; see `not run`", failed.join(", "))))
        }
    }
}

/// Returns the entries to run. Records in the evaluation the entries with missing requirements.
fn divided(
    request: &Request,
    mut evaluation: Evaluation,
    missing: fn(&Entry) -> Option<String>,
) -> Result<(Evaluation, Vec<Entry>), Failure> {
    let mut pending = Vec::new();
    for entry in find::entries(&request.suites)? {
        match missing(&entry) {
            _ if evaluation.has(&entry.name) => {}
            Some(why) => evaluation.not_run.push(not_run(&entry.name, &why)),
            None => pending.push(entry),
        }
    }
    Ok((evaluation, pending))
}

fn not_run(name: &str, why: &str) -> NotRun {
    let host = host::host_name(&Root::real());
    NotRun { name: name.to_string(), why: why.to_string(), host, failed: false }
}

fn run(
    request: &Request,
    mut evaluation: Evaluation,
    pending: Vec<Entry>,
    began: Instant,
) -> Result<(Evaluation, End), Failure> {
    let (count, kept, mut signal) = (pending.len(), evaluation.applications.len(), None);
    let interrupting = signals::interrupt_experiment(Arc::default())?;
    for (index, entry) in pending.into_iter().enumerate() {
        let name = entry.name.clone();
        signal = signal.or(interrupting.received());
        let left = request.max_time - began.elapsed().as_secs_f64();
        let over = match signal {
            Some(_) => Some("interrupted"),
            _ if left <= 0.0 => Some("--max-time was over"),
            _ => None,
        };
        if let Some(over) = over {
            let why = format!("{over}; continue with --resume FILE, or with a larger --max-time");
            evaluation.not_run.push(not_run(&name, &why));
            continue;
        }
        let part = left / (count - index) as f64;
        if !request.quiet {
            say(&format!("{} of {count}: {name}, about {part:.0} s", index + 1));
        }
        match entry.compare(part, request.quiet) {
            Ok(outcome) => {
                let made = match outcome {
                    JobOutcome::Document(made) => Some(made),
                    JobOutcome::Signal(by, made) => {
                        signal = Some(by);
                        // If the signal arrived after the last run, the comparison is complete: keep it.
                        made.filter(|made| made.stopped != Stopped::Interrupted)
                    }
                };
                let host = host::host_name(&Root::real());
                match made {
                    Some(made) => {
                        let comparison = *made;
                        evaluation.applications.push(Application { name, host, comparison });
                        save(request, &evaluation)?;
                    }
                    None => {
                        let why = "interrupted; continue with --resume FILE";
                        evaluation.not_run.push(not_run(&name, why));
                    }
                }
            }
            Err(failure) => {
                let failed = NotRun { failed: true, ..not_run(&name, &failure.to_string()) };
                evaluation.not_run.push(failed);
                say(&failure.on(&name).to_string());
            }
        }
    }
    save(request, &evaluation)?;
    if !request.quiet && count > 0 {
        let made = &evaluation.applications[kept..];
        say(&shares(request.max_time, began.elapsed().as_secs_f64(), count, made));
    }
    let end = end(signal, &evaluation);
    Ok((evaluation, end))
}

/// Says how `--max-time` was shared among entries, and what the time was spent on.
fn shares(max_time: f64, spent: f64, entries: usize, made: &[Application]) -> String {
    let runs_of = |purpose: Purpose| -> f64 {
        let samples = made.iter().flat_map(|one| &one.comparison.samples);
        // A sum of nothing is -0.
        samples
            .filter(|it| it.purpose == purpose)
            .map(|it| it.wall_seconds)
            .fold(0.0, |sum, one| sum + one)
    };
    let (measured, warm_ups) = (runs_of(Purpose::Measured), runs_of(Purpose::WarmUp));
    let rest = (spent - measured - warm_ups).max(0.0);
    format!(
        "{spent:.0} s of --max-time {max_time:.0}s, {:.0} s for each of {}: measured runs {measured:.0} s, warm-ups \
         {warm_ups:.0} s, the rest (checks, setups, servers, failed entries) {rest:.0} s",
        max_time / entries as f64,
        format::counted(entries as u32, "entry", "entries"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_run_took_is_the_rest() {
        assert_eq!(
            shares(60.0, 61.0, 2, &[]),
            "61 s of --max-time 60s, 30 s for each of 2 entries: measured runs 0 s, warm-ups 0 s, \
             the rest (checks, setups, servers, failed entries) 61 s"
        );
    }
}
