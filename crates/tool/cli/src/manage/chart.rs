//! The manager's figures over time as a picture: memory on superpages, memory added, CPU time.

use ::manage::daemon::Point;
use report::axis::{Axis, polyline};
use report::frame::{file, picture, plot, text};
use report::markup::{Element, el};

const WIDTH: f64 = 820.0;
const LEFT: f64 = 70.0;
const PLOT: f64 = 720.0;
/// Height of one chart, and distance of two.
const HEIGHT: f64 = 130.0;
const APART: f64 = 200.0;
const TOP: f64 = 70.0;

const SHEET: &str = "\
.eligible { stroke: #59636e; stroke-dasharray: 5 4; }
.value { stroke: #0969da; }
.area { fill: #0969da; fill-opacity: 0.15; stroke: none; }
";

/// A chart: its heading, its vertical axis, and its lines with their classes.
struct Chart {
    heading: String,
    axis: Axis,
    lines: Vec<(&'static str, Vec<f64>)>,
}

/// Draws the history; at least two points.
pub fn svg(points: &[Point]) -> String {
    let last = points.last().map_or(1.0, |last| last.seconds);
    let most = |value: fn(&Point) -> u64| points.iter().map(value).max().unwrap_or(0).max(1);
    let bytes = |value: fn(&Point) -> u64| points.iter().map(|one| value(one) as f64).collect();
    let cpu = cpu_shares(points);
    let highest = cpu.iter().copied().fold(0.1, f64::max);
    let charts = [
        Chart {
            heading: "Memory that can be on superpages (dashed), and memory that is".to_string(),
            axis: Axis::bytes(most(|one| one.eligible.bytes())),
            lines: vec![
                ("line eligible", bytes(|one| one.eligible.bytes())),
                ("line value", bytes(|one| one.on_superpages.bytes())),
            ],
        },
        Chart {
            heading: "Zeros added to fill superpages, less what was given back".to_string(),
            axis: Axis::bytes(most(|one| one.added.bytes())),
            lines: vec![("line value", bytes(|one| one.added.bytes()))],
        },
        Chart {
            heading: "CPU time of the manager, percent of one CPU".to_string(),
            axis: Axis::amounts(highest),
            lines: vec![("line value", cpu)],
        },
    ];
    let (time, per, unit) = match last {
        last if last >= 7200.0 => (last / 3600.0, 3600.0, "hours"),
        last if last >= 300.0 => (last / 60.0, 60.0, "minutes"),
        last => (last, 1.0, "seconds"),
    };
    let across = Axis::amounts(time);
    let title = format!("superpage manage over {} {unit}", report::format::digits(time, 3));
    let mut parts = vec![text(LEFT, 32.0, "title", &title)];
    for (index, chart) in charts.iter().enumerate() {
        let y = TOP + APART * index as f64;
        parts.push(text(LEFT, y - 10.0, "heading", &chart.heading));
        parts.push(drawn(chart, points, &across, (y, per)));
    }
    let height = TOP + APART * charts.len() as f64;
    parts.push(text(LEFT, height - 14.0, "note", unit));
    file(picture(WIDTH, height, &title, SHEET, parts))
}

fn drawn(chart: &Chart, points: &[Point], across: &Axis, (y, per): (f64, f64)) -> Element {
    let line = |(class, values): &(&'static str, Vec<f64>)| {
        let place = |(point, value): (&Point, &f64)| {
            let x = across.place(point.seconds / per) * PLOT;
            (x, (1.0 - chart.axis.place(*value)) * HEIGHT)
        };
        el("path").class(*class).with("d", polyline(points.iter().zip(values).map(place)))
    };
    plot(LEFT, y, PLOT, HEIGHT)
        .all(chart.axis.up(HEIGHT))
        .all(across.across(HEIGHT, 8))
        .all(chart.lines.iter().map(line))
}

/// Percent of one CPU between each point and the one before.
fn cpu_shares(points: &[Point]) -> Vec<f64> {
    let share = |two: &[Point]| {
        let seconds = two[1].seconds - two[0].seconds;
        let used = two[1].cpu_seconds - two[0].cpu_seconds;
        if seconds > 0.0 { 100.0 * used.max(0.0) / seconds } else { 0.0 }
    };
    let mut shares: Vec<f64> = points.windows(2).map(share).collect();
    shares.insert(0, shares.first().copied().unwrap_or(0.0));
    shares
}

#[cfg(test)]
mod tests {
    use units::ByteSize;

    use super::*;

    fn points() -> Vec<Point> {
        let point = |at: u32| Point {
            seconds: f64::from(at) * 10.0,
            eligible: ByteSize::mib(100 + u64::from(at)),
            on_superpages: ByteSize::mib(u64::from(at)),
            added: ByteSize::mib(3),
            cpu_seconds: f64::from(at) * 0.02,
        };
        (0..100).map(point).collect()
    }

    #[test]
    fn cpu_time_is_a_share_of_the_time_between_points() {
        let shares = cpu_shares(&points());
        assert_eq!(shares.len(), 100);
        assert!(shares.iter().all(|share| (share - 0.2).abs() < 1e-9));
    }

    #[test]
    fn a_picture_has_a_line_for_each_figure() {
        let picture = svg(&points());
        assert_eq!(picture.matches("<path").count(), 4);
        assert!(picture.contains("superpage manage over 16.5 minutes"), "{picture}");
        assert!(!picture.contains("NaN"));
    }
}
