//! Formats a validation as CSV: times in seconds, ratios as numbers, empty if unknown.

use lab::validation::{Compared, Row, Side, Validation};
use report::csv::line;

const COLUMNS: &str = "workload,fragmentation,design,side,seconds,vs_base,vs_base_low,vs_base_high,error,timed_seconds,faults,\
                       kernel_seconds,beside_seconds,superpages,half_at\n";

/// Formats one line per side of each design, with the columns of the table.
pub fn lines(of: &Validation) -> String {
    of.workloads
        .iter()
        .fold(COLUMNS.to_string(), |text, one| text + &lines_of(of.fragmentation_of(one), one))
}

fn lines_of(fragmentation: &str, of: &Compared) -> String {
    let mut text = String::new();
    let side = |row: &Row, name, side, vs_base| {
        let names = [of.workload.as_str(), fragmentation, &row.design, name];
        line(names, numbers(side, vs_base))
    };
    for (place, row) in of.designs.iter().enumerate() {
        let base = &of.designs[0];
        let pair = of.against_base(place);
        let interval = pair.and_then(|pair| pair.interval);
        let ratio = pair.map(|pair| pair.ratio).or((place == 0).then_some(1.0));
        let low = interval.map(|[low, _]| low);
        let high = interval.map(|[_, high]| high);
        text += &side(row, "live", &row.live, [ratio, low, high, None]);
        let lab = |side: &Side, simulated: fn(&Row) -> &Side| {
            [side.speedup(simulated(base)), None, None, of.off(place, simulated)]
        };
        text += &side(row, "lab", &row.lab, lab(&row.lab, |row| &row.lab));
        if let Some(as_live) = &row.as_live {
            let figures = lab(&as_live.lab, Row::simulated);
            text += &side(row, "lab as live", &as_live.lab, figures);
        }
    }
    text
}

fn numbers(side: &Side, vs_base: [Option<f64>; 4]) -> impl Iterator<Item = Option<f64>> {
    let rest = [
        side.timed_seconds,
        side.faults,
        side.kernel_seconds,
        side.beside_seconds,
        side.superpages,
        side.half_at(),
    ];
    [Some(side.seconds)].into_iter().chain(vs_base).chain(rest)
}
