//! `superpage verify-cost`: compares the predicted saving of superpages with the measured one.
//!
//! Published work makes this check with STREAM. Here any program is predicted on base pages and run on superpages; the
//! output is the error.
//! See docs/decisions/prediction.md#6.

use launch::Word;
use operations::jobs::arms::{MOST_RUNS, seconds, share};
use operations::predict::Subject;
use operations::verify_cost::{Measured, Method, Request, Row};
use operations::workloads::WorkloadArgs;
use prediction::Range;
use report::format::{digits, percent};
use serde_json::json;
use workload::Workload;

use crate::bench::Outputs;
use crate::compare::plans;
use crate::exit::{self, Done, Failure};
use crate::pool::show::table;

/// Predict what superpages save, then measure it, and report the error.
///
/// Without a name, does so for stream and gups. There are two predictions. By replay: short windows of the program are
/// recorded instruction by instruction as it runs, which takes at most 15 times its CPU time, and executed again over
/// memory of the same shape, on base pages and on superpages. From prices: all accesses are recorded under QEMU, which
/// takes 20 to 130 times the program's CPU time (those of built-in workloads are known), and multiplied with what
/// accesses cost here. Compares the share of CPU time that superpages save: of the program, or of the timed phase of a
/// workload. Runs continue until their ratio is known within 2 % at 99 % confidence, or until --max-runs or --max-time;
/// the saving has a confidence interval. The bounds of a replay come from resampled windows and passes. Those from
/// prices come from the least and the most favourable costs and run times; the lower bound also assumes that page
/// walks overlap with other work.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Built-in workloads: gups, chase, stream, touch, pagerank, btree, hashmap.
    workloads: Vec<Workload>,

    /// Program and arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<Word>,

    /// Minimum runs per arm, made in pairs [default: 6, at most --max-runs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MOST_RUNS)))]
    min_runs: Option<u32>,

    /// Maximum runs per arm.
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MOST_RUNS)))]
    max_runs: u32,

    /// Maximum time for all measured runs of a program: 90s, 5m, 1h.
    #[arg(long, default_value = "90s", value_name = "TIME", value_parser = seconds)]
    max_time: f64,

    /// How to predict: replay, prices, or both.
    #[arg(long, value_enum, default_value = "both", value_name = "METHOD")]
    method: MethodArg,

    /// Exit with 1 if the mean error (of the replays, if there are any) is larger than this share of the time.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    within: Option<f64>,

    /// Print what would be run; do nothing.
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,

    // These flags come last: the help headings of flattened flags hold for all flags after them.
    #[command(flatten)]
    workload_args: WorkloadArgs,

    #[command(flatten)]
    outputs: Outputs,
}

/// The values of `--method`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum MethodArg {
    /// Windows of the program, replayed.
    Replay,
    /// All accesses, priced.
    Prices,
    /// Both.
    Both,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.outputs.check(None)?;
    let subjects = args.subjects()?;
    if args.dry_run {
        for subject in &subjects {
            exit::print(&format!("{}\n", subject.name()))?;
            exit::print(&plans::in_words(&args.request().job(subject)?.plans()?))?;
        }
        return Ok(Done::Fine);
    }
    let mut rows = Vec::new();
    let mut ended = Ok(Done::Fine);
    for subject in &subjects {
        match args.request().measure(subject) {
            Ok(Measured::Row(row)) => rows.push(*row),
            Ok(Measured::Signal(signal)) => ended = Ok(Done::Signal(signal)),
            Err(failure) => ended = Err(failure.on(&subject.name())),
        }
        if !matches!(ended, Ok(Done::Fine)) {
            break; // keep the rows of earlier subjects
        }
    }
    if rows.is_empty() {
        return ended;
    }
    let error = mean(rows.iter().map(Row::error));
    let replay_error = mean(rows.iter().map(Row::replay_error));
    let text = match args.outputs.json {
        true => document(&rows, error, replay_error)?,
        false => text(&rows, error, replay_error),
    };
    args.outputs.deliver(&text)?;
    if !matches!(ended, Ok(Done::Fine)) {
        return ended;
    }
    let judged = replay_error.or(error);
    let is_off = args.within.zip(judged).is_some_and(|(most, error)| error > most);
    Ok(if is_off { Done::Negative } else { Done::Fine })
}

/// Mean absolute error of the rows that have one.
fn mean(errors: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let errors: Vec<f64> = errors.flatten().map(f64::abs).collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

impl Args {
    fn subjects(&self) -> Result<Vec<Subject>, Failure> {
        let default = [Workload::Stream, Workload::Gups];
        let workloads = match self.workloads.is_empty() && self.command.is_empty() {
            true => default.to_vec(),
            false => self.workloads.clone(),
        };
        let subject = |workload| {
            let settings = self.workload_args.for_workload(workload).settings(workload)?;
            Ok(Subject::Workload(workload, settings))
        };
        let subjects: Result<Vec<Subject>, Failure> = workloads.into_iter().map(subject).collect();
        let mut subjects = subjects?;
        if !self.command.is_empty() {
            subjects.push(Subject::Program(self.command.clone()));
        }
        Ok(subjects)
    }

    fn request(&self) -> Request {
        Request {
            min_runs: self.min_runs,
            max_runs: self.max_runs,
            max_time: self.max_time,
            method: match self.method {
                MethodArg::Replay => Method::Replay,
                MethodArg::Prices => Method::Prices,
                MethodArg::Both => Method::Both,
            },
            quiet: self.outputs.quiet,
        }
    }
}

fn text(rows: &[Row], error: Option<f64>, replay_error: Option<f64>) -> String {
    let header = [
        "program",
        "base (s)",
        "superpages (s)",
        "on superpages",
        "measured",
        "between",
        "by replay",
        "between",
        "error (points)",
        "from prices",
        "between",
        "error (points)",
        "translating",
    ];
    let points = |share: Option<f64>| {
        share.map_or("-".to_string(), |share| format!("{:+.1}", 100.0 * share))
    };
    // `n/a` only if the bounds are equal: two decimals distinguish any others.
    let between = |low: f64, high: f64| match low == high {
        true => "n/a".to_string(),
        false => format!("{:.2} to {:.2} %", 100.0 * low, 100.0 * high),
    };
    let saved = |range: Option<Range>| match range {
        Some(Range { low, mid, high }) => [percent(mid), between(low, high)],
        None => ["-".to_string(), "-".to_string()],
    };
    let cells = |row: &Row| {
        let [replayed, replayed_between] =
            saved(row.replayed.as_ref().and_then(|it| Some(it.as_ref().ok()?.saved)));
        let prediction = row.priced.as_ref().map(|it| &it.prediction);
        let [priced, priced_between] = saved(prediction.map(|it| it.saved));
        vec![
            row.name.clone(),
            digits(row.seconds[0], 3),
            digits(row.seconds[1], 3),
            row.coverage.map_or("?".to_string(), percent),
            percent(row.measured()),
            row.between.map_or("?".to_string(), |saved| between(saved.low, saved.high)),
            replayed,
            replayed_between,
            points(row.replay_error()),
            priced,
            priced_between,
            points(row.error()),
            prediction.map_or("-".to_string(), |it| percent(it.translating.mid)),
        ]
    };
    let mut text = table(&header, rows.iter().map(cells).collect(), &[0]);
    text.push('\n');
    for (by, error) in [("by replay", replay_error), ("from prices", error)] {
        if let Some(error) = error {
            let points = 100.0 * error;
            text +=
                &format!("mean absolute error {by}: {points:.1} points of the base run's time\n");
        }
    }
    text += "between: by replay, of resampled windows and passes; from prices, with the prices of each visit and the \
             time of each run; at the low end walks go on beside other work\n";
    for row in rows {
        if let Some(priced) = &row.priced {
            text += &format!("{}: priced {}\n", row.name, priced.source);
        }
        match &row.replayed {
            Some(Ok(replayed)) => {
                text += &format!(
                    "{}: replayed {} windows of {} instructions; {} stand for others\n",
                    row.name,
                    replayed.windows,
                    replayed.instructions / replayed.windows.max(1) as u64,
                    percent(replayed.replaced),
                );
            }
            Some(Err(why)) => text += &format!("note: {}: no replay: {why}\n", row.name),
            None => {}
        }
        for note in &row.notes {
            text += &format!("note: {}: {note}\n", row.name);
        }
    }
    text
}

fn document(
    rows: &[Row],
    error: Option<f64>,
    replay_error: Option<f64>,
) -> Result<String, Failure> {
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| {
            let priced = row.priced.as_ref();
            json!({
                "program": row.name,
                "base_seconds": row.seconds[0],
                "superpage_seconds": row.seconds[1],
                "eligible_coverage": row.coverage,
                "measured_saved": row.measured(),
                "measured_saved_between": row.between,
                "prediction": priced.map(|it| &it.prediction),
                "prices": priced.map(|it| &it.prices),
                "error": row.error(),
                "replay": row.replayed.as_ref().map(|replayed| match replayed {
                    Ok(replayed) => json!({
                        "saved": replayed.saved,
                        "error": row.replay_error(),
                        "windows": replayed.windows,
                        "instructions": replayed.instructions,
                        "replaced": replayed.replaced,
                    }),
                    Err(why) => json!({ "reason": why }),
                }),
                "method": priced.map(|_| "recorded-trace"),
                "source": priced.map(|it| &it.source),
                "notes": row.notes,
            })
        })
        .collect();
    exit::json_text(
        "superpage.verify-cost/1",
        json!({
            "mean_absolute_error": error,
            "mean_absolute_replay_error": replay_error,
            "programs": rows,
        }),
    )
}
