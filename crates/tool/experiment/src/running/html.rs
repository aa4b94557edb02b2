//! A comparison on a running service as one page: verdicts, the metric of every block over time, tables. Pure: the same
//! document gives the same bytes. All output goes through `report`, which escapes it.

use report::axis::{Axis, line, note_at, px};
use report::format::{self, known};
use report::marks::{colour, key, mark};
use report::markup::{Element, el};
use report::scale::percent;
use report::tables::{pairs, table};
use report::{frame, marks};

use super::analysis::{Analysis, Summary};
use super::document::Document;
use super::metric::Per;
use super::procedure::{Block, Purpose};
use crate::document::machine_line;
use crate::stats::Better;
use crate::verdict::{Terms, Verdict};

const STYLE: &str = include_str!("../html/style.css");
const HEIGHT: f64 = 260.0;

/// Formats the page.
pub fn page(document: &Document, analysis: &Analysis) -> String {
    let title = format!("superpage compare: {}", service(document));
    let body = el("body")
        .add(marks::definitions())
        .add(header(document, analysis))
        .add(blocks(document, analysis))
        .add(summaries(document, analysis))
        .add(settings(document))
        .add(all(document, analysis))
        .add(footer(document));
    frame::page(title, &[frame::PAGE, STYLE], body)
}

/// Names the service's processes.
pub fn service(document: &Document) -> String {
    let first = document.processes.first();
    let name = |process: &super::document::Process| {
        format!("{} {}", format::name(&process.name, 40), process.pid)
    };
    match (first, document.processes.len()) {
        (None, _) => "no process".to_string(),
        (Some(first), 1) => name(first),
        (Some(first), count) => {
            format!("{} and {}", name(first), format::counted(count - 1, "process", "processes"))
        }
    }
}

/// Says what the difference of the arms does not show. See docs/decisions/running-services.md#3.
pub fn bias(analysis: &Analysis) -> String {
    let blocks = format::counted(analysis.counts.as_found, "block", "blocks");
    let found =
        format!("in {blocks} before all others (at one time only: these ratios have no interval)");
    let measured = match (analysis.split_over_found, analysis.superpages_over_found) {
        (Some(split), Some(superpages)) => format!(
            "; against the base pages that were found, {found}, base pages from a split were {}x as good, and superpages \
             {}x",
            format::ratio(split),
            format::ratio(superpages)
        ),
        (Some(split), None) => format!(
            "; they were {}x as good as the base pages that were found, {found}",
            format::ratio(split)
        ),
        (None, _) => String::new(),
    };
    let what = match analysis.split_over_found {
        Some(ratio) if ratio <= 1.0 => {
            "base pages from a split are in order in memory, which was no advantage here"
        }
        _ => {
            "base pages from a split are in order in memory, and faster on many machines than base pages that the \
             program faulted: the gain is a lower bound"
        }
    };
    format!("{what}{measured}")
}

/// Says that other programs disturbed the comparison; `None`: they did not, or nothing is known.
pub fn disturbed(document: &Document, analysis: &Analysis) -> Option<String> {
    let found = document
        .neighbours?
        .found("during the blocks (clients of the service on this machine count)")?;
    let is_undecided =
        |one: &super::analysis::Judgement| matches!(one.verdict, Verdict::Undecided { .. });
    let remedy = match document.metric.per {
        Some(Per::Second) if analysis.judgements.iter().any(is_undecided) => {
            "; --metric-per cpu-second counts per CPU time of the service, which others disturb less"
        }
        _ => "",
    };
    Some(format!("{found}: equal blocks differ more than on an idle machine{remedy}"))
}

fn header(document: &Document, analysis: &Analysis) -> Element {
    let cards = analysis.judgements.iter().map(|one| {
        let class = match &one.verdict {
            Verdict::Faster(_) => "faster",
            Verdict::Slower(_) => "slower",
            Verdict::Same { .. } => "same",
            Verdict::Undecided { .. } => "undecided",
            Verdict::DidNotTakeEffect { .. } => "no-effect",
            Verdict::NoData { .. } => "no-data",
        };
        let against = document.arms.first().map_or("", |arm| arm.name.as_str());
        el("div")
            .class(format!("verdict {class}"))
            .add(el("p").class("who").text(format!("{} against {against}", one.arm)))
            .add(el("p").class("word").text(one.verdict.word()))
            .add(el("p").text(one.verdict.line(Terms::Speed)))
    });
    el("header")
        .add(el("h1").text("superpage compare on a running service"))
        .add(el("p").text(service(document)))
        .add(el("p").class("small").text(machine_line(&document.machine)))
        .add(el("div").class("verdicts").all(cards))
        .add(el("p").class("small").text(format!("Bias: {}.", bias(analysis))))
        .all(
            disturbed(document, analysis)
                .map(|load| el("p").class("small").text(format!("⚠ {load}"))),
        )
}

fn value_axis(document: &Document) -> Option<Axis> {
    let values: Vec<f64> = document.blocks.iter().filter_map(|block| block.value).collect();
    Axis::figures(values.iter().copied(), "")
}

/// Draws the figure of each block over time.
fn blocks(document: &Document, analysis: &Analysis) -> Element {
    let heading = document.metric.heading();
    let section = el("section").add(el("h2").text(format!("Every block: {heading}")));
    let Some(axis) = value_axis(document) else {
        return section.add(el("p").text("No block has a figure."));
    };
    let end = document.elapsed_seconds.max(f64::MIN_POSITIVE);
    let mut parts = axis.up(HEIGHT);
    for (index, arm) in analysis.arms.iter().enumerate() {
        if let Some(value) = arm.value {
            let y = px((1.0 - axis.place(value)) * HEIGHT);
            parts.push(line("0", &y, "100%", &y).class(format!("level {}", colour(index))));
        }
    }
    for (place, label) in Axis::elapsed(end).ticks(6) {
        parts.push(note_at(&percent(place), HEIGHT + 15.0, &label, "middle"));
    }
    let time = Axis::elapsed(end);
    parts.extend(document.blocks.iter().filter_map(|block| {
        let value = block.value?;
        let middle = block.began_seconds + block.seconds / 2.0;
        Some(dot(document, block, &time.x(middle), (1.0 - axis.place(value)) * HEIGHT))
    }));
    let about = "From left to right over time; colours are arms. Hollow marks do not count.";
    let chart = frame::chart("blocks", true, HEIGHT + 24.0, &heading, about).all(parts);
    let keys = document.arms.iter().enumerate();
    let keys = keys.map(|(arm, one)| el("span").class("item").add(key(arm)).text(&one.name));
    let told = "Lines are medians of the blocks that count. Hollow marks are warm-ups and the memory as it was found; \
                marks with a broken outline are blocks whose pages were not those of their arm.";
    section
        .add(frame::figure(format!("Over time ({})", axis.note()), chart))
        .add(el("p").class("keys").all(keys))
        .add(el("p").class("small").text(told))
}

fn dot(document: &Document, block: &Block, x: &str, y: f64) -> Element {
    let index = block.arm.map_or(document.arms.len(), |arm| arm as usize);
    let arm = document.arms.get(index);
    let fault = arm.and_then(|arm| block.fault(arm, &document.settings.bounds));
    let mut class = format!("dot {}", colour(index));
    if block.purpose != Purpose::Measured {
        class += " warm";
    } else if fault.is_some() {
        class += " failed";
    }
    let told = format!(
        "{}, round {}: {}, {} on superpages",
        arm.map_or("as found", |arm| &arm.name),
        u64::from(block.round) + 1,
        known(block.value, format::figure),
        known(block.before.share(), format::percent)
    );
    mark(index, x, px(y)).class(class).add(el("title").text(told))
}

fn summaries(document: &Document, analysis: &Analysis) -> Element {
    let heading = document.metric.heading();
    let head = [
        "memory",
        "blocks",
        "discarded",
        &heading,
        "on superpages",
        "eligible",
        "longest switch",
        "longest call",
    ];
    let row = |one: &Summary| {
        vec![
            one.name.clone(),
            one.blocks.to_string(),
            one.discarded.len().to_string(),
            known(one.value, format::figure),
            known(one.coverage, format::percent),
            known(one.eligible_bytes, format::bytes),
            known(one.longest_switch_seconds, format::seconds),
            known(one.longest_call_seconds, format::seconds),
        ]
    };
    let rows = analysis.as_found.iter().chain(&analysis.arms).map(row).collect();
    let head = head.iter().map(ToString::to_string).collect();
    let table = table("Medians of the blocks that count", true, head, rows);
    el("section").add(el("h2").text("Arms")).add(table)
}

fn settings(document: &Document) -> Element {
    let (settings, judging) = (&document.settings, &document.judging);
    let bounds = &settings.bounds;
    let better = match document.metric.better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    };
    let rows = vec![
        ("metric", document.metric.heading()),
        ("better is", better.to_string()),
        ("seed", settings.seed.to_string()),
        ("length of a block", format::seconds(settings.block_seconds)),
        ("settling after a switch", format::seconds(settings.settle_seconds)),
        ("warm-up blocks per arm", settings.warm_ups.to_string()),
        ("time limit", format::seconds(settings.max_seconds)),
        ("confidence", format::percent(judging.confidence.level())),
        ("on superpages, base pages at most", format::percent(bounds.base_at_most)),
        ("on superpages, superpages at least", format::percent(bounds.superpages_at_least)),
        ("interim analyses of the verdicts", document.looks.made.to_string()),
    ];
    el("section").add(el("h2").text("Settings")).add(pairs("Order, stopping, judging", rows))
}

fn all(document: &Document, analysis: &Analysis) -> Element {
    let head = [
        "block",
        "memory",
        "round",
        "began",
        "length",
        "figure",
        "at its start",
        "at its end",
        "switch",
        "made",
        "split",
        "not switched",
    ];
    let rows = document.blocks.iter().enumerate().map(|(index, block)| {
        let arm = block.arm.and_then(|arm| document.arms.get(arm as usize));
        let switched =
            |of: fn(&super::Switched) -> String| block.switched.as_ref().map_or(String::new(), of);
        vec![
            (index + 1).to_string(),
            arm.map_or("as found".to_string(), |arm| format::name(&arm.name, 40)),
            (u64::from(block.round) + 1).to_string(),
            format::seconds(block.began_seconds),
            format::seconds(block.seconds),
            known(block.value, format::figure),
            known(block.before.share(), format::percent),
            known(block.after.and_then(|after| after.share()), format::percent),
            switched(|one| format::seconds(one.seconds)),
            switched(|one| one.made.to_string()),
            switched(|one| one.split.to_string()),
            switched(|one| one.largest_obstacle().map_or(String::new(), obstacle)),
        ]
    });
    let head = head.map(String::from).to_vec();
    let list = table("Every block, in order", true, head, rows.collect());
    let discarded = analysis.arms.iter().flat_map(|arm| {
        let told = |one: &super::analysis::Discarded| {
            el("li").text(format!("{}, round {}: {}", arm.name, u64::from(one.round) + 1, one.why))
        };
        arm.discarded.iter().map(told)
    });
    let discarded: Vec<Element> = discarded.collect();
    let section = el("section").add(el("h2").text("All blocks in numbers"));
    let section = section.add(el("p").text(format!("{}.", analysis.counts.words())));
    let section = match discarded.is_empty() {
        true => section,
        false => section.add(el("p").text("Discarded:")).add(el("ul").all(discarded)),
    };
    section.add(el("details").add(el("summary").text("All blocks")).add(list))
}

/// Formats why most of the memory that could not be switched was not.
pub fn obstacle((why, bytes): (&str, u64)) -> String {
    format!("{} {}", format::bytes(bytes as f64), format::name(why, 40))
}

fn footer(document: &Document) -> Element {
    let told = format!(
        "Drawn from a document of schema {} by superpage {}; began {}.",
        document.schema,
        document.superpage_version,
        format::utc(document.began_unix_seconds)
    );
    let how = "superpage compare --from FILE.json --html PAGE.html";
    el("footer").add(el("p").text(told)).add(el("pre").text(how))
}
