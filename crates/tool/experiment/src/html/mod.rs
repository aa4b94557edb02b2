//! Formats a comparison as one page: verdicts, every run, ratios, memory, tables.
//!
//! Pure: the same document gives the same bytes. The page is self-contained: it has no script and loads nothing. All
//! output goes through `report`, which escapes it. Each file of this module is one part of the page.

mod arms;
pub(crate) mod machine;
mod plans;
mod ratio;
mod samples;

use report::marks::named;
use report::markup::{Element, el};
use report::{format, frame, marks};

use crate::analysis::{Analysis, Judgement};
use crate::arrays;
use crate::document::{Arm, Document};
use crate::procedure::Stopped;
use crate::sample::Sample;
use crate::service::words;
use crate::verdict::{Terms, Verdict, floor_text};
use ratio::quantity_name;
use samples::Quantity;

/// Formats the page.
pub fn page(document: &Document, analysis: &Analysis) -> String {
    let command = format::command(&document.command);
    let title = format!("superpage: {}", format::clipped(&command, 80));
    let body = el("body").add(marks::definitions()).add(header(document, analysis));
    let wall = Quantity {
        id: "wall",
        name: "wall time",
        words: &format::seconds,
        unit: None,
        of: &|sample| Some(sample.wall_seconds),
    };
    let metrics = document.metrics().enumerate().map(|(index, metric)| {
        let id = if index == 0 { "metric".to_string() } else { format!("metric-{}", index + 1) };
        (metric, id, move |sample: &Sample| sample.metric_at(index))
    });
    let metrics: Vec<_> = metrics.collect();
    let metrics = metrics.iter().map(|(metric, id, of)| Quantity {
        id,
        name: &metric.name,
        words: &format::figure,
        unit: Some(metric.unit.as_deref().unwrap_or("")),
        of,
    });
    // Put the quantity that the comparison is about first.
    let mut quantities: Vec<Quantity> = std::iter::once(wall).chain(metrics).collect();
    if document.metric_is_primary {
        quantities.rotate_left(1);
    }
    let panels = quantities.iter().map(|of| samples::panels(document, analysis, of));
    let body = body
        .all(panels)
        .all(ratio::section(document, analysis))
        .add(arms::section(document))
        .add(arms::summaries(document, analysis))
        .add(plans::section(document))
        .add(machine::section(&document.machine))
        .add(samples::settings(document))
        .add(samples::all(document))
        .add(samples::footer(document));
    frame::page(title, &[frame::PAGE, include_str!("style.css")], body)
}

// The top of the page: the compared arms, the results, and warnings.

fn header(document: &Document, analysis: &Analysis) -> Element {
    let command = format::command(&document.command);
    let shown = if command.is_empty() { "(no command)".to_string() } else { command };
    let head = el("header")
        .add(el("h1").text("superpage compare"))
        .add(el("pre").class("command").text(shown))
        .all(words::head(document).into_iter().map(|line| el("p").class("small").text(line)));
    // Put the noise floor's card last: its verdict is about the measurement, not the program.
    let mut arms: Vec<&Arm> = document.arms.iter().skip(1).collect();
    arms.sort_by_key(|arm| arm.is_noise_floor);
    let cards = arms.into_iter().filter_map(|arm| card(document, analysis, arm));
    let cards: Vec<Element> = cards.collect();
    let head = if cards.is_empty() {
        head.add(el("p").text("One arm ran; there is nothing to compare it with."))
    } else {
        head.add(el("div").class("verdicts").all(cards))
    };
    let spoilt = warnings(document, analysis).into_iter();
    head.all(spoilt.map(|text| el("p").class("warning").text(text)))
        .add(el("p").text(course(document, analysis)))
}

/// Formats an arm's verdicts, with the primary one in large letters.
fn card(document: &Document, analysis: &Analysis, arm: &Arm) -> Option<Element> {
    let mut judged: Vec<&Judgement> =
        analysis.judgements.iter().filter(|one| one.arm == arm.name).collect();
    judged.sort_by_key(|one| !one.is_primary);
    let (first, others) = judged.split_first()?;
    let (class, sign, cut) = match &first.verdict {
        Verdict::Faster(_) => ("faster", "▲", " ("),
        Verdict::Slower(_) => ("slower", "▼", " ("),
        Verdict::Same { .. } => ("same", "=", " ("),
        // The only finding of an undecided verdict is the estimate, so it comes first here too.
        Verdict::Undecided { .. } => ("undecided", "?", " ("),
        Verdict::DidNotTakeEffect { .. } => ("no-effect", "⚠", ": "),
        Verdict::NoData { .. } => ("no-data", "∅", ": "),
    };
    let line = first.verdict.line(Terms::Speed);
    let (word, rest) = line.split_once(cut).unwrap_or((&line, ""));
    let rest = if cut == " (" { rest.trim_end_matches(')') } else { rest };
    let index = document.arms.iter().position(|one| one.name == arm.name)?;
    let role = if arm.is_noise_floor { " (for the noise floor)" } else { "" };
    let against = format!(" against {}{role}", document.arms.first()?.name);
    let has_no_number = matches!(first.verdict, Verdict::DidNotTakeEffect { .. });
    let quantity = match has_no_number {
        true => String::new(), // it holds for every quantity, so name none
        false => format!("{}: ", quantity_name(&first.quantity, true)),
    };
    let sign = el("span").with("aria-hidden", "true").text(format!("{sign} "));
    let rank = if arm.is_noise_floor { "minor" } else { "major" };
    let card = el("div")
        .class(format!("verdict {class} {rank}"))
        .add(el("p").class("who").add(named(index, &arm.name)).add(el("span").text(against)))
        .add(el("p").class("word").add(sign).add(el("span").text(word)))
        .add(el("p").text(format!("{quantity}{rest}")));
    if has_no_number {
        return Some(
            card.add(
                el("p")
                    .class("small")
                    .text("No ratio is given: its runs did not measure what was requested."),
            ),
        );
    }
    let cpu_time = analysis.cpu_time.iter().filter(|one| one.arm == arm.name);
    let others = others.iter().map(|other| (*other, Terms::Speed));
    let others = others.chain(cpu_time.map(|one| (one, Terms::Amount)));
    Some(card.all(others.map(|(other, terms)| {
        let name = quantity_name(&other.quantity, true);
        let line = other.verdict.line(terms);
        el("p").class("small").text(format!("Besides, {name}: {line}"))
    })))
}

fn course(document: &Document, analysis: &Analysis) -> String {
    let runs = analysis.arms.iter().map(|arm| arm.runs);
    let (least, most) = (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0));
    let runs = if least == most { format!("{most}") } else { format!("{least} to {most}") };
    let within = format::percent(document.settings.rule.within);
    let sure = format::percent(document.settings.rule.confidence.level());
    let stopped = match document.stopped {
        _ if document.arms.len() < 2 => "there is no arm to compare with the first".to_string(),
        Stopped::RuleMet => format!("every ratio is known to within {within} at {sure} confidence"),
        Stopped::Decided => "every verdict is decided".to_string(),
        Stopped::Deviation => "equal runs differed too much".to_string(),
        Stopped::MaxRuns => {
            format!(
                "the maximum number of runs; not every ratio is known to within {within} at \
                 {sure} confidence"
            )
        }
        Stopped::MaxTime => {
            format!(
                "the time limit was reached; not every ratio is known to within {within} at {sure} \
                 confidence"
            )
        }
        Stopped::Interrupted => "interrupted; the verdicts are of the runs made so far".to_string(),
    };
    let floor = analysis.noise_floor.map_or(String::new(), |floor| {
        format!(" The {}; smaller differences get no verdict.", floor_text(floor))
    });
    let machine = &document.machine;
    let model = machine.cpu.as_ref().and_then(|cpu| cpu.model.clone());
    format!(
        "{runs} measured runs of each arm, interleaved, in {}: {stopped}. {}, Linux {}, {}.{floor}",
        format::seconds(document.total_seconds()),
        model.unwrap_or("unknown CPU".to_string()),
        format::known(machine.kernel.clone(), |kernel| kernel),
        format::utc(document.began_unix_seconds),
    )
}

fn warnings(document: &Document, analysis: &Analysis) -> Vec<String> {
    let changed = document.changed_meanwhile.iter();
    let mut warnings: Vec<String> = changed
        .map(|change| format!("⚠ {change} during the runs; repeat the comparison"))
        .collect();
    let neighbours = document.neighbours.as_ref().and_then(host::Neighbours::line);
    warnings.extend(neighbours.map(|line| format!("⚠ {line}")));
    for arm in analysis.arms.iter().filter(|arm| arm.failed_runs > 0) {
        warnings.push(format!("⚠ {}: {} of {} runs failed", arm.name, arm.failed_runs, arm.runs));
    }
    warnings.extend(arrays::note(document));
    warnings.extend(words::notes(document));
    for arm in &document.left_out {
        warnings.push(format!("{} left out: {}", arm.name, arm.why));
    }
    for arm in &analysis.arms {
        for (count, what) in [
            (arm.thp_fault_fallbacks, "THP faults fell back to base pages"),
            (arm.compaction_stalls, "compaction stalls"),
        ] {
            if let Some(count) = count.filter(|count| *count > 0) {
                let count = format::count(count as f64);
                warnings
                    .push(format!("{}: {count} {what} on this machine during its runs", arm.name));
            }
        }
    }
    let stragglers: u64 = document.samples.iter().map(|run| u64::from(run.stragglers)).sum();
    if stragglers > 0 {
        warnings.push(format!("{stragglers} processes outlived their run and were killed"));
    }
    warnings
}
