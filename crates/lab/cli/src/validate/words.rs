//! Formats a validation as text.

use lab::validation::{Agreement, Cause, Compared, Row, Side, Validation};
use report::format::known;
use report::sig3::{self as three, percent};
use units::ByteSize;

use cli::table;

/// Legend of the columns, for the table and for --help.
pub const COLUMNS: &str = "\
live: medians, with the interval of the ratio. lab: the design as written; lab
as live: what carries it out live (notes), simulated. time: to the end of the
timed phase; live without the check of the result. error: of the ratio to base
pages, lab over live. timed: the timed phase alone. faults, kernel: live of
the whole process, with its start; beside: CPU time of what makes superpages
beside the program, live only superpage's own. superpages: at most; half at:
the share of the time at which half of them were there (live: of the warm-up
run). Times of one thread are CPU time. Last table: speed-ups over base pages;
anchored: with the time in user mode on base pages as live, so that the
program's own work is not simulated; kernel, translation: how much more of the
live time on base pages the lab saves there; cause: the larger one, or another
number of superpages.";

/// Formats a line for each workload, fragmentation and design: the error, and its likely cause.
fn causes(of: &Validation) -> String {
    let header = [
        "workload",
        "memory",
        "design",
        "live",
        "interval",
        "lab",
        "error",
        "anchored",
        "error",
        "kernel",
        "translation",
        "cause",
    ];
    let mut lines = Vec::new();
    for one in &of.workloads {
        for (place, row) in one.designs.iter().enumerate().skip(1) {
            lines.push(cause(of, one, place, row));
        }
    }
    table(&header, lines, &[0, 1, 2])
}

fn cause(of: &Validation, one: &Compared, place: usize, row: &Row) -> Vec<String> {
    let ratio = |ratio: Option<f64>| known(ratio, |ratio| format!("{}x", three::ratio(ratio)));
    let signed = |share: Option<f64>| known(share, |share| format!("{:+.1} %", 100.0 * share));
    let base = &one.designs[0];
    let interval = one.against_base(place).and_then(|pair| pair.interval);
    let gap = one.gap(row, Row::simulated);
    let cause = gap.map(|gap| match gap.cause() {
        Cause::Superpages => {
            let [lab, live] = gap.superpages.unwrap_or_default();
            format!("superpages: {lab:.0} for {live:.0}")
        }
        Cause::Kernel => "kernel".to_string(),
        Cause::Translation => "translation".to_string(),
    });
    vec![
        one.workload.split(':').next().unwrap_or_default().to_string(),
        of.fragmentation_of(one).to_string(),
        row.design.clone(),
        ratio(row.live.speedup(&base.live)),
        interval.map_or(String::new(), |[low, high]| {
            format!("{}–{}", three::ratio(low), three::ratio(high))
        }),
        ratio(row.simulated().speedup(base.simulated())),
        signed(one.error(row, Row::simulated)),
        ratio(one.anchored(row, Row::simulated)),
        signed(one.anchored_error(row, Row::simulated)),
        signed(gap.map(|gap| gap.kernel)),
        signed(gap.map(|gap| gap.translation)),
        cause.unwrap_or_default(),
    ]
}

/// Formats the whole validation.
pub fn text(of: &Validation) -> String {
    let mut text = format!(
        "{}; lab: {}, {}, fragmentation {}, seed {}\n",
        of.computer,
        of.machine,
        ByteSize(of.memory_bytes),
        of.fragmentation,
        of.seed
    );
    for one in &of.workloads {
        let state = of.fragmentation_of(one);
        let (workload, runs) = (&one.workload, one.runs);
        text += &format!("\n{workload}, {state}, {runs} live runs of each\n\n{}", rows(one));
        for row in &one.designs {
            let as_live = row.as_live.iter().map(|as_live| format!("as live: {}", as_live.summary));
            let notes = as_live.chain(row.notes.iter().cloned());
            text += &notes.map(|note| format!("{}: {note}\n", row.design)).collect::<String>();
        }
    }
    text += "\n";
    text += &causes(of);
    text += "\n";
    text += &agreement("designs as written", &of.as_written());
    text += &agreement("as carried out live", &of.as_live());
    let level = percent(of.confidence);
    text + &format!(
        "intervals at {level}; pairs that the lab separates by 5 % or less do not count\n"
    )
}

fn agreement(what: &str, of: &Agreement) -> String {
    let order = of.order;
    let off = |error: Option<f64>| known(error, percent);
    format!(
        "{what}: {} of {} pairs in the live order, {} in the other, {} undecided live; speed-ups are off by {} \
         (geometric mean), anchored by {}, {} at most; times on base pages by {}\n",
        order.agree,
        order.pairs,
        order.disagree,
        order.undecided,
        off(of.error),
        off(of.anchored_error),
        off(of.worst),
        off(of.base_error)
    )
}

fn rows(of: &Compared) -> String {
    let header = [
        "design",
        "",
        "time",
        "vs base",
        "interval",
        "error",
        "timed",
        "faults",
        "kernel",
        "beside",
        "superpages",
        "half at",
    ];
    let mut rows = Vec::new();
    for (place, row) in of.designs.iter().enumerate() {
        rows.push(live(of, place, row));
        let base = &of.designs[0].lab;
        rows.push(lab("lab", &row.lab, base, of.off(place, |row| &row.lab)));
        if let Some(as_live) = &row.as_live {
            rows.push(lab("lab as live", &as_live.lab, base, of.off(place, Row::simulated)));
        }
    }
    table(&header, rows, &[0, 1])
}

fn live(of: &Compared, place: usize, row: &Row) -> Vec<String> {
    let pair = of.against_base(place);
    let interval = pair.and_then(|pair| pair.interval);
    let interval = interval.map_or(String::new(), |[low, high]| {
        format!("{}–{}", three::ratio(low), three::ratio(high))
    });
    let ratio = pair.map_or("1.00x".to_string(), |pair| format!("{}x", three::ratio(pair.ratio)));
    let mut cells = vec![row.design.clone(), "live".to_string(), three::seconds(row.live.seconds)];
    cells.extend([ratio, interval, String::new()]);
    cells.extend(figures(&row.live));
    cells
}

fn lab(name: &str, side: &Side, base: &Side, error: Option<f64>) -> Vec<String> {
    let error = known(error, |error| format!("{:+.1} %", 100.0 * error));
    let ratio = known(side.speedup(base), |ratio| format!("{}x", three::ratio(ratio)));
    let mut cells = vec![String::new(), name.to_string(), three::seconds(side.seconds)];
    cells.extend([ratio, String::new(), error]);
    cells.extend(figures(side));
    cells
}

fn figures(side: &Side) -> [String; 6] {
    let count = |value: Option<f64>| known(value, |value| format!("{value:.0}"));
    let beside = side.beside_seconds.map_or(String::new(), three::seconds);
    [
        known(side.timed_seconds, three::seconds),
        count(side.faults),
        known(side.kernel_seconds, three::seconds),
        beside,
        count(side.superpages),
        side.half_at().map_or(String::new(), percent),
    ]
}
