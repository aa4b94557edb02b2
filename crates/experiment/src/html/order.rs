//! Every run in run order: drift shows as a slope that all arms share. Blocks are stripes.

use super::samples::View;
use crate::sample::{Purpose, Sample};
use report::axis::{block, line, note_at, px};
use report::frame;
use report::marks::colour;
use report::markup::Element;
use report::scale::percent;

/// The panel.
pub fn panel(view: &View) -> Element {
    let View { document, quantity, dots, axis, .. } = view;
    const HEIGHT: f64 = 230.0;
    let runs = document.samples.len().max(1) as f64;
    let x = |turn: f64| percent(turn / runs);
    let mut marks = Vec::new();
    let mut from = 0;
    let same = |a: &Sample, b: &Sample| a.block == b.block && a.purpose == b.purpose;
    let groups: Vec<&[Sample]> = document.samples.chunk_by(same).collect();
    let every = groups.len().div_ceil(9).max(1);
    for group in &groups {
        let width = percent(group.len() as f64 / runs);
        let warm = group[0].purpose == Purpose::WarmUp;
        if warm || group[0].block % 2 == 0 {
            let class = if warm { "ground-warm" } else { "ground-block" };
            marks.push(block(x(from as f64), 0, width, HEIGHT).class(class));
        }
        let middle = x(from as f64 + group.len() as f64 / 2.0);
        if warm && group[0].block == 0 {
            marks.push(note_at("0", HEIGHT + 31.0, "warm-up", "start"));
        } else if !warm && (group[0].block as usize).is_multiple_of(every) {
            let name = format!("{}", group[0].block + 1);
            marks.push(note_at(&middle, HEIGHT + 15.0, &name, "middle"));
        }
        from += group.len();
    }
    marks.extend(axis.up(HEIGHT));
    for arm in 0..document.arms.len() {
        if let (Some(median), _) = view.median(arm) {
            let y = px((1.0 - axis.place(median)) * HEIGHT);
            let class = format!("level {}", colour(arm));
            marks.push(line("0", &y, "100%", &y).class(class));
        }
    }
    for dot in dots {
        let y = (1.0 - axis.place(dot.value)) * HEIGHT;
        let name = &document.arms[dot.sample.arm as usize].name;
        marks.push(view.draw(dot, &x(dot.turn as f64 + 0.5), y, name));
    }
    marks.push(note_at("100%", HEIGHT + 31.0, "blocks, in the order they ran →", "end"));
    let title = format!("Every run in run order: {}", quantity.name);
    let about = "From left to right in the order the runs were made; stripes are blocks. A slope \
                 that all arms share is drift of the machine.";
    let chart = frame::chart(&format!("{}-order", quantity.id), true, HEIGHT + 36.0, &title, about);
    frame::figure(format!("In run order ({})", axis.note()), chart.all(marks))
}
