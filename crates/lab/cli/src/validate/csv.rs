//! Formats a validation as CSV: times in seconds, ratios as numbers, empty if unknown.

use lab::validation::{Compared, Row, Side, Validation};
use report::csv::line;

const COLUMNS: &str = "workload,design,side,seconds,vs_base,vs_base_low,vs_base_high,error,timed_seconds,faults,\
                       kernel_seconds,beside_seconds,superpages,half_at\n";

/// Formats one line per side of each design, with the columns of the table.
pub fn lines(of: &Validation) -> String {
    of.workloads.iter().fold(COLUMNS.to_string(), |text, one| text + &lines_of(one))
}

fn lines_of(of: &Compared) -> String {
    let mut text = String::new();
    for (place, row) in of.designs.iter().enumerate() {
        let base = &of.designs[0];
        let pair = of.against_base(place);
        let interval = pair.and_then(|pair| pair.interval);
        let ratio = pair.map(|pair| pair.ratio).or((place == 0).then_some(1.0));
        let low = interval.map(|[low, _]| low);
        let high = interval.map(|[_, high]| high);
        text += &side(of, row, "live", &row.live, [ratio, low, high, None]);
        let lab = |side: &Side, simulated: fn(&Row) -> &Side| {
            [side.speedup(simulated(base)), None, None, of.off(place, simulated)]
        };
        text += &side(of, row, "lab", &row.lab, lab(&row.lab, |row| &row.lab));
        if let Some(as_live) = &row.as_live {
            let figures = lab(&as_live.lab, Row::simulated);
            text += &side(of, row, "lab as live", &as_live.lab, figures);
        }
    }
    text
}

fn side(of: &Compared, row: &Row, name: &str, side: &Side, vs_base: [Option<f64>; 4]) -> String {
    let rest = [
        side.timed_seconds,
        side.faults,
        side.kernel_seconds,
        side.beside_seconds,
        side.superpages,
        side.half_at(),
    ];
    let numbers = [Some(side.seconds)].into_iter().chain(vs_base).chain(rest);
    line([of.workload.as_str(), &row.design, name], numbers)
}
