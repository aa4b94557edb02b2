//! Draws the chart of a benchmark. With latencies: latency against the share of accesses that took no longer. On that
//! axis each further nine (90 %, 99 %, ...) takes the same length. Otherwise rates: a bar up to the median of each row
//! and a dot for each run. Pure: the same document gives the same bytes.

use report::axis::{Axis, line, note_at, px};
use report::format::counted;
use report::frame::{self, text};
use report::markup::{Element, el};
use report::scale::{ends, percent};
use workload::tail::Distribution;

use super::{Document, Row};

const STYLE: &str = include_str!("style.css");
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 20.0;
/// Width for the labels of the vertical axis.
const GUTTER: f64 = 64.0;
/// Width for the names of rows.
const NAMES: f64 = 190.0;
const HEIGHT: f64 = 260.0;
/// Height above a panel for its title.
const ABOVE: f64 = 36.0;
/// Height below a panel for its axis.
const BELOW: f64 = 40.0;
/// Height of a row of the legend, or of a bar.
const ROW: f64 = 20.0;
const COLOURS: usize = 7;
/// Tick values of the time axis, in seconds.
const TIMES: [(f64, &str); 10] = [
    (1e-8, "10 ns"),
    (1e-7, "100 ns"),
    (1e-6, "1 µs"),
    (1e-5, "10 µs"),
    (1e-4, "100 µs"),
    (1e-3, "1 ms"),
    (1e-2, "10 ms"),
    (1e-1, "100 ms"),
    (1.0, "1 s"),
    (10.0, "10 s"),
];

type Curve = (String, Distribution);

pub(super) fn draw(document: &Document) -> String {
    let what = match document.bench {
        "requests" => "requests: free, allocate, fill",
        _ => "first touch of fresh memory",
    };
    let model = document.machine.cpu.as_ref().and_then(|cpu| cpu.model.as_deref());
    let title = format!("{what} · {}", model.unwrap_or("this machine"));
    let mut parts = vec![text(MARGIN, 28.0, "title", &title)];
    let rows: Vec<&Row> = document.rows.iter().filter(|row| row.summary.is_some()).collect();
    let mut y = 40.0;
    let mut kinds: Vec<(&'static str, Vec<Curve>)> = Vec::new();
    for row in &rows {
        let class = class(document, row);
        for (kind, distribution) in row.distributions() {
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, curves)) => curves.push((class.clone(), distribution)),
                None => kinds.push((kind, vec![(class.clone(), distribution)])),
            }
        }
    }
    if kinds.is_empty() {
        y = bars(&rows, document, y, &mut parts);
    } else {
        for (index, row) in rows.iter().enumerate() {
            let place = y + 10.0 + ROW * index as f64;
            let class = format!("line {}", class(document, row));
            parts.push(line(MARGIN, place - 4.0, MARGIN + 24.0, place - 4.0).class(class));
            parts.push(text(MARGIN + 32.0, place, "note", name(row)));
        }
        y += ROW * rows.len() as f64;
        for (kind, curves) in &kinds {
            parts.extend(panel(kind, curves, y));
            y += ABOVE + HEIGHT + BELOW;
        }
    }
    frame::file(frame::picture(WIDTH, y, &title, STYLE, parts))
}

fn name(row: &Row) -> String {
    format!("{} · {}", row.cell.arm, counted(row.cell.threads, "thread", "threads"))
}

/// Returns the CSS class of a row. The arm sets the colour; rows with another number of threads than the first row are
/// dashed.
fn class(document: &Document, row: &Row) -> String {
    let cells = || document.rows.iter().map(|row| &row.cell);
    let arm = cells().position(|cell| cell.arm == row.cell.arm).unwrap_or(0) % COLOURS;
    let first = cells().next().map(|cell| cell.threads);
    let dashed = if first == Some(row.cell.threads) { "" } else { " dashed" };
    format!("c{arm}{dashed}")
}

fn panel(kind: &str, curves: &[Curve], y: f64) -> Vec<Element> {
    let title = match kind {
        "page" => "first touch of each base page",
        "superpage" => "first touch in each 2 MiB",
        _ => "one request",
    };
    let width = WIDTH - 2.0 * MARGIN - GUTTER;
    let times = curves.iter().flat_map(|(_, curve)| &curve.buckets).map(|(seconds, _)| *seconds);
    let Some((least, longest)) = ends(times) else { return Vec::new() };
    let axis = Axis::ratios(least.max(1e-9), longest.max(1e-9));
    let heading = format!("{title} · time (logarithmic) against the share that took no longer");
    let most = curves.iter().map(|(_, curve)| curve.count()).max().unwrap_or(1).max(10);
    // Number of nines: 0 at 0 %, 1 at 90 %, 2 at 99 %. The maximum of the largest sample is at the right end.
    let nines = |below: f64| -(1.0 - below).max(0.5 / most as f64).log10();
    let end = nines(1.0);
    let x = |below: f64| nines(below) / end;
    let mut plot = frame::plot(MARGIN + GUTTER, y + ABOVE, width, HEIGHT);
    for (time, label) in TIMES.iter().filter(|(time, _)| axis.holds(*time)) {
        let y = (1.0 - axis.place(*time)) * HEIGHT;
        plot = plot.add(line("0", px(y), "100%", px(y)).class("grid"));
        plot = plot.add(note_at("-6", y + 4.0, label, "end"));
    }
    let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 0.9999999, 1.0];
    let shown = shares.iter().filter(|share| **share == 1.0 || x(**share) < 0.96);
    for share in shown {
        let place = percent(x(*share));
        let label = match *share {
            0.0 => "least".to_string(),
            1.0 => "max".to_string(),
            share => format!("{} %", report::format::trimmed(&format!("{:.5}", share * 100.0))),
        };
        plot = plot.add(line(&place, 0, &place, HEIGHT).class("grid"));
        plot = plot.add(note_at(&place, HEIGHT + 15.0, &label, "middle"));
    }
    for (class, curve) in curves {
        let all = curve.count().max(1) as f64;
        let (mut path, mut below) = (String::new(), 0u64);
        for (seconds, count) in &curve.buckets {
            let up = px((1.0 - axis.place(*seconds)) * HEIGHT);
            let from = px(x(below as f64 / all) * width);
            below += count;
            let step = if path.is_empty() { format!("M{from},{up}") } else { format!("V{up}") };
            path += &format!("{step}H{}", px(x(below as f64 / all) * width));
        }
        plot = plot.add(el("path").with("d", path).class(format!("line {class}")));
    }
    vec![text(MARGIN, y + ABOVE - 12.0, "heading", heading), plot]
}

/// Draws rates, one row each. Returns the y position below them.
fn bars(rows: &[&Row], document: &Document, y: f64, parts: &mut Vec<Element>) -> f64 {
    let runs = |row: &Row| row.outcomes.iter().map(|one| one.figure.value).collect::<Vec<_>>();
    let highest = rows.iter().flat_map(|row| runs(row)).fold(1.0, f64::max);
    let axis = Axis::amounts(highest);
    let unit = if document.bench == "requests" { "requests/s" } else { "base pages/s" };
    let heading = format!("{unit} ({}): medians, and each run", axis.note());
    parts.push(text(MARGIN, y + ABOVE - 12.0, "heading", heading));
    let (height, width) = (ROW * rows.len() as f64, WIDTH - 2.0 * MARGIN - NAMES);
    let mut plot =
        frame::plot(MARGIN + NAMES, y + ABOVE, width, height).all(axis.across(height, 8));
    for (index, row) in rows.iter().enumerate() {
        let Some(summary) = &row.summary else { continue };
        let middle = ROW * (index as f64 + 0.5);
        let class = class(document, row).replace(" dashed", "");
        let to = axis.x(summary.rate.median);
        plot = plot.add(line("0", middle, to, middle).class(format!("bar {class}")));
        plot = plot.add(note_at("-8", middle + 4.0, &name(row), "end"));
        for rate in runs(row) {
            let dot = el("circle").with("cx", axis.x(rate)).with("cy", middle).with("r", 3);
            plot = plot.add(dot.class(format!("dot {class}")));
        }
    }
    parts.push(plot);
    y + ABOVE + height + BELOW
}
