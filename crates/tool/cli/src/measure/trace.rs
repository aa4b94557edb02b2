//! Measures with a recorded trace: multiplies the program's accesses by their costs on this machine.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use experiment::analysis::analyse;
use launch::Word;
use record::Streams;
use sys::input::Input;
use walk_cost::{Estimate, Evidence, Gain, Interval, Method, Scope};

use super::Measured;
use crate::exit::Failure;
use operations::jobs::JobOutcome;
use operations::predict::{self, Pricing, Subject};

/// Minimum CPU seconds of a run: in shorter runs the clock tick is too large an error.
const MIN_SECONDS: f64 = 0.05;

/// Records the program once with its own input and output; if `output_is_ours`, its output goes to standard error. Then
/// runs it three times on base pages with hidden output, and measures the cost of accesses on this machine.
pub fn by_trace(command: &[Word], output_is_ours: bool) -> Result<Measured, Failure> {
    let streams = if output_is_ours { Streams::OutputToErrors } else { Streams::Inherit };
    let before = Input::of(std::io::stdin());
    let followed = predict::record(command, streams, true, false)?;
    let was_read = Input::of(std::io::stdin()).was_read_since(&before);
    let what = report::format::command(command);
    let status = followed.status;
    let of = |estimate, seconds| Measured {
        seconds,
        ended: Some(status),
        ..Measured::new(what.clone(), estimate)
    };
    if !status.success() {
        return Ok(of(Estimate::unknown("the program failed while it was recorded"), None));
    }
    if was_read {
        let reason = "the program reads standard input, which it does not have when it is timed; name a file";
        return Ok(of(Estimate::unknown(reason), None));
    }
    let pricing = Pricing::begin(&followed.asked, false)?;
    let subject = Subject::Program(command.to_vec());
    let ((user, system), runs) = match predict::on_base_pages(&subject, true)?.run()? {
        JobOutcome::Signal(signal, _) => {
            let estimate = Estimate::unknown("interrupted before it was timed");
            return Ok(Measured {
                ended: Some(ExitStatus::from_raw(signal)),
                ..of(estimate, None)
            });
        }
        JobOutcome::Document(document) => {
            let arm = analyse(&document).arms.swap_remove(0);
            let median = arm.user_seconds.zip(arm.system_seconds).unwrap_or_default();
            (median, predict::base_runs(&document.samples, false))
        }
    };
    let total = user + system;
    if total < MIN_SECONDS {
        let reason = format!("the program takes only {total:.3} s of CPU time; give it more work");
        return Ok(of(Estimate::unknown(reason), Some(total)));
    }
    let prices = pricing.finish()?;
    let told = predict::predict(&followed.asked, &prices, (user, system), &runs);
    let share = told.translating;
    let dtlb = Interval::new(share.low, share.mid, share.high.min(1.0));
    let itlb = followed.fetches.and_then(|fetches| {
        // An instruction fetch that misses stalls all later instructions. But the processor fetches much code ahead of
        // need, hence the lower bound 0.
        let most = (prediction::dependent_seconds(&fetches, &prices.all) / total).min(1.0);
        Interval::new(0.0, 0.0, most)
    });
    let mut estimate = Estimate::from_parts(Method::RecordedTrace, dtlb, itlb);
    let translation = |seconds: f64| seconds / total;
    let saved = translation(told.base.translation - told.superpage.translation).clamp(0.0, 1.0);
    let high = estimate.share.map_or(0.0, Interval::high);
    estimate.gain = Interval::new(saved.min(share.low), saved, high.max(saved))
        .map(|saved| Gain { saved, speedup_at_most: (high < 1.0).then(|| 1.0 / (1.0 - high)) });
    estimate.scope = Some(Scope::User);
    let source = "recorded under QEMU";
    let asked = &followed.asked;
    estimate = estimate
        .with_evidence([
            Evidence::new("accesses", asked.demand.accesses, source),
            Evidence::new("CPU seconds on base pages", total, "median of two runs"),
            Evidence::new("CPU seconds in user mode", user, "median of two runs"),
            Evidence::new("dependence (0 independent, 1 a chase)", told.dependence, "from the time taken"),
        ])
        .with_note(format!(
            "page faults take another {} of the time on base pages, and would take {} on superpages",
            report::format::percent(translation(told.base.faults)),
            report::format::percent(translation(told.superpage.faults)),
        ));
    for note in &asked.notes {
        estimate = estimate.with_note(note.clone());
    }
    Ok(of(estimate, Some(total)))
}
