//! `superpage lab faults --table`: prints simulated rows of a machine next to its published rows.

use fault_scaling::{Constant, Machine};
use lab::plot::{self, Curve, Point};
use lab::tables::Role;
use lab::tables::faults::{
    Bound, Build, Comparison, Fit, LeftOut, Line, Published, Refit, compare, leave_out,
};
use report::format::known;
use report::sig3::{percent, seconds};
use serde::Serialize;
use units::ByteSize;

use super::Args;
use super::words::{gigabytes, rate};
use cli::exit::{Done, Failure};
use cli::files;
use cli::table;
use operations::json::to_json as json;
use operations::reporter::Progress;

const SCHEMA: &str = "superpage.faults.table/1";

/// Maximum typical error of the rates for exit code 0, as a ratio: 0.15 is 15 %.
const TOLERANCE: f64 = 0.15;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    #[serde(flatten)]
    comparison: &'a Comparison,
    /// Fits without some of the rows; empty without `--refit`.
    refits: &'a [Refit],
}

pub fn run(machine: &Machine, args: &Args) -> Result<Done, Failure> {
    let comparison = compare(machine).map_err(Failure::usage)?;
    if comparison.lines.is_empty() {
        return Err(Failure::usage(format!(
            "no published rows of {}; there are rows of altix-128, altix-512, altix-8, i386-up",
            machine.name
        )));
    }
    if let Some(path) = &args.svg {
        let title = format!("{}: simulated and published", machine.summary);
        files::write(
            path,
            args.force,
            plot::faults(&title, machine.cpus, &curves(&comparison.lines)),
        )?;
    }
    let refits = match args.refit {
        true => refits(machine, args)?,
        false => Vec::new(),
    };
    let text = match args.json {
        true => json(&Document { schema: SCHEMA, comparison: &comparison, refits: &refits })?,
        false => words(&comparison) + &refit_words(&refits),
    };
    files::deliver(args.output.as_deref(), args.force, &text)?;
    let is_off = comparison.scaling_error.is_some_and(|error| error > TOLERANCE);
    let is_elsewhere = comparison.peaks.iter().any(|peak| peak.simulated != peak.published);
    Ok(if is_off || is_elsewhere { Done::Negative } else { Done::Fine })
}

fn refits(machine: &Machine, args: &Args) -> Result<Vec<Refit>, Failure> {
    if machine.fits.is_empty() {
        return Err(Failure::usage(format!(
            "nothing of {} is fitted to rows with several threads; --refit is for altix-128 and altix-8",
            machine.name
        )));
    }
    let mut progress = Progress::of_pass(args.quiet, "fits");
    progress.tell(0, None, || format!("constants of {}", machine.name));
    let refits = leave_out(machine).map_err(Failure::usage);
    progress.clear();
    refits
}

/// Formats the fits: what is left out, how far the rest and what is left out are off, and the constants.
fn refit_words(refits: &[Refit]) -> String {
    if refits.is_empty() {
        return String::new();
    }
    let constant = |fit: &Fit| match fit.constant {
        Constant::NodeBandwidth => format!("{} MB/s", fit.value / 1_000_000),
        Constant::NodeMemory => ByteSize(fit.value).to_string(),
        _ => seconds(fit.value as f64 * 1e-12),
    };
    let row = |refit: &Refit| {
        let left_out = match &refit.left_out {
            None => "nothing".to_string(),
            Some(LeftOut::Patches(patches)) => patches.clone(),
            Some(LeftOut::Bytes(bytes)) => format!("{} Gb", gigabytes(*bytes)),
        };
        let errors = [refit.fit_error, refit.left_out_error].map(|error| known(error, percent));
        let constants = refit.constants.iter().map(constant);
        [left_out, refit.rows.to_string()].into_iter().chain(errors).chain(constants).collect()
    };
    let name = |fit: &Fit| match fit.constant {
        Constant::NodeBandwidth => "bandwidth".to_string(),
        constant => format!("{constant:?}").to_lowercase(),
    };
    let mut columns: Vec<String> =
        ["left out", "rows", "fitted rows off by", "left out off by"].map(String::from).to_vec();
    columns.extend(refits[0].constants.iter().map(name));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    "\nConstants fitted again, to all rows with several threads (checks too) but those left out, which they then predict\n".to_string()
        + &table(&columns, refits.iter().map(row).collect(), &[0])
}

/// Returns one curve per set of patches, amount of memory and number of repetitions; checks have separate curves. Uses
/// only rows with one written cache line per page.
fn curves(lines: &[Line]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for line in lines.iter().filter(|line| line.published.cache_lines == 1) {
        let Published { patches, bytes, repetitions, threads, is_check, .. } = &line.published;
        let checks = if *is_check { " (checks)" } else { "" };
        let name = format!("{patches}, {} GB x {repetitions}{checks}", gigabytes(*bytes));
        let at = curves.iter().position(|curve| curve.name == name).unwrap_or_else(|| {
            curves.push(Curve { name, simulated: Vec::new(), published: Vec::new() });
            curves.len() - 1
        });
        curves[at].simulated.push(Point::from(&line.row));
        curves[at].published.push(Point {
            threads: *threads,
            per_wall_second: line.published.pages_per_wall_second,
            per_cpu_second: line.published.pages_per_cpu_second,
        });
    }
    curves
}

fn words(comparison: &Comparison) -> String {
    let row = |line: &Line| {
        let published = &line.published;
        let pair = |model: f64, paper: f64| {
            vec![rate(model), rate(paper), format!("{:.2}", model / paper)]
        };
        let mut cells = vec![
            published.patches.clone(),
            gigabytes(published.bytes),
            published.repetitions.to_string(),
            published.threads.to_string(),
            published.cache_lines.to_string(),
        ];
        cells.extend(pair(line.row.pages_per_cpu_second, published.pages_per_cpu_second));
        cells.extend(pair(line.row.pages_per_wall_second, published.pages_per_wall_second));
        let mark = match line.role {
            Role::Fitted => "f",
            Role::Check => "c",
            Role::HeldOut | Role::Base => "",
        };
        cells.push(mark.to_string());
        cells
    };
    let columns = [
        "patches",
        "Gb",
        "Rep",
        "Threads",
        "CLine",
        "flt/cpu/s",
        "published",
        "ratio",
        "fault/wsec",
        "published",
        "ratio",
        "",
    ];
    let mut text = format!(
        "{}: simulated beside published (Lameter 2005); f: a constant was fitted to the row's fault/wsec; c: a check \
         that came after\nthe model, never fitted. Left out of what was published of it: {}\n\n",
        comparison.machine, comparison.left_out
    );
    text += &table(&columns, comparison.lines.iter().map(row).collect(), &[0, 11]);
    text += "\nfault/wsec is off in the geometric mean by\n";
    for (error, of) in [
        (comparison.scaling_error, "rows with several threads"),
        (comparison.held_out_error, "rows that nothing was fitted to"),
        (comparison.single_error, "rows with one thread"),
        (comparison.check_error, "checks"),
    ] {
        if let Some(error) = error {
            text += &format!("  {:>6}  {of}\n", percent(error));
        }
    }
    for part in &comparison.by_patches {
        text += &format!("  {:>6}  {} with several threads\n", percent(part.error), part.patches);
    }
    if let Some(order) = comparison.check_order {
        text += &format!(
            "order: {} of {} pairs of patches that the checks separate by more than 5 % are in their order, at least half as far apart\n",
            order.right, order.pairs
        );
    }
    if comparison.peaks.iter().any(|peak| peak.published > 1 || peak.simulated > 1) {
        text += "number of threads with the most faults a second\n";
    }
    for peak in &comparison.peaks {
        text += &format!(
            "  {} {} x {}{}: {} published, {} simulated\n",
            peak.patches,
            gigabytes(peak.bytes),
            peak.repetitions,
            if peak.is_check { " (checks)" } else { "" },
            peak.published,
            peak.simulated
        );
    }
    text + &bounds(&comparison.bounds) + &builds(&comparison.builds)
}

/// Formats bounds on the rates that no patch of the fault path can exceed, computed from the published rows alone. See
/// docs/decisions/faults.md#8 and
/// #13.
fn bounds(bounds: &[Bound]) -> String {
    if bounds.is_empty() {
        return String::new();
    }
    let row = |bound: &Bound| {
        vec![
            bound.patches.clone(),
            gigabytes(bound.bytes),
            bound.repetitions.to_string(),
            bound.threads.to_string(),
            rate(bound.pages_per_wall_second),
            rate(bound.busy_cpus),
            rate(bound.at_most),
        ]
    };
    let columns = ["patches", "Gb", "Rep", "Threads", "published", "CPUs busy", "at most"];
    let curve = |bound: &Bound| (bound.patches.clone(), bound.bytes, bound.repetitions);
    let falls = bounds
        .windows(2)
        .all(|pair| curve(&pair[0]) != curve(&pair[1]) || pair[1].at_most < pair[0].at_most);
    let what = match falls {
        true => {
            "With
more threads less is left, under every patch. So these rows do not support \"almost linear\" scaling up to 512 CPUs with
all patches together (2005), and the model does not show it (docs/decisions/faults.md, 8)."
        }
        false => {
            "Where
twice the threads are twice as fast, with and without patches, while no more CPUs are busy, it looks as if there was less to
do (inferred; docs/decisions/faults.md, 13)."
        }
    };
    let text = format!(
        "
If faults took no CPU time at all: the published fault/wsec, and what starting, waiting and unmapping leave of it. {what}
"
    );
    text + &table(&columns, bounds.iter().map(row).collect(), &[0])
}

/// Formats published compilations next to the times predicted from the cost of a fault. See
/// docs/decisions/faults.md#10.
fn builds(builds: &[Build]) -> String {
    if builds.is_empty() {
        return String::new();
    }
    let row = |build: &Build| {
        vec![
            build.computer.clone(),
            format!("{} {}", build.patches, build.setting).trim_end().to_string(),
            known(build.faults, |faults| faults.to_string()),
            seconds(build.system_seconds),
            seconds(build.saved_seconds),
            known(build.saved_at_most_seconds, seconds),
            known(build.zeroed_pages, rate),
            seconds(build.user_seconds),
            seconds(build.more_user_seconds),
            known(build.more_user_at_most_seconds, seconds),
        ]
    };
    let columns = [
        "computer", "kernel", "faults", "system", "saved", "at most", "pages", "user", "more",
        "at most",
    ];
    let text = "
Kernel compilation: faults, system and user time as published, and how much less or more they are than without the patch.
Simulated, nothing fitted: saved at most, by the price of a fault, if each gets a page that was zeroed before; the pages that
the published saving is the price of; the user time if the program uses every line of these pages, which are in no cache.
Where less was saved, fewer pages were zeroed ahead or zeroing them costs less in a compilation (docs/decisions/faults.md, 10).
";
    text.to_string() + &table(&columns, builds.iter().map(row).collect(), &[0, 1])
}
