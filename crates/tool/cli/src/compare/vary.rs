//! `--vary NAME=VALUES`: a comparison at each value of a workload's option, or of `{NAME}` in a program's arguments.

use experiment::analysis::analyse;
use experiment::arrays;
use experiment::document::Document;
use experiment::measure::Measure;
use experiment::series::{Point, SCHEMA, Series};
use experiment::verdict::Verdict;
use launch::Word;
use units::ByteSize;

use super::{Args, MAX_SECONDS};
use crate::exit::{self, Done, Failure};
use crate::pool::show::table;
use crate::runs::JobOutcome;

/// More values than anybody wants to wait for.
const MAX_VALUES: usize = 64;

/// What is varied, and over what.
#[derive(Clone, Debug, PartialEq)]
pub struct Vary {
    name: String,
    values: Vec<Value>,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    text: String,
    number: u64,
}

/// Reads `size=128K..3G`, `size=128K,1M`, `clients=1..4x`.
pub fn parse(text: &str) -> Result<Vary, String> {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    parse_for(text, cpus)
}

fn parse_for(text: &str, cpus: u64) -> Result<Vary, String> {
    let expected = || {
        format!("invalid series `{text}`: expected e.g. size=128K..3G, size=1M,1G or clients=1..4x")
    };
    let (name, values) = text.split_once('=').ok_or_else(expected)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(expected());
    }
    let number = |text: &str| -> Result<u64, String> {
        match text.strip_suffix('x').map(str::parse::<u64>) {
            Some(times) => {
                times.ok().and_then(|times| times.checked_mul(cpus)).ok_or_else(expected)
            }
            None => text.parse::<ByteSize>().map(ByteSize::bytes).map_err(|_| expected()),
        }
    };
    let values: Vec<Value> = match values.split_once("..") {
        Some((from, to)) => {
            let is_size =
                [from, to].iter().any(|end| end.ends_with(|c: char| c.is_alphabetic() && c != 'x'));
            let (from, to) = (number(from)?, number(to)?);
            if from == 0 || from > to {
                return Err(format!(
                    "{}; the range must begin above 0 and not beyond its end",
                    expected()
                ));
            }
            let mut numbers: Vec<u64> =
                std::iter::successors(Some(from), |last| last.checked_mul(2))
                    .take_while(|n| *n < to)
                    .collect();
            numbers.push(to);
            let text = |number: u64| match is_size {
                true => ByteSize(number).to_exact().replace("iB", ""),
                false => number.to_string(),
            };
            numbers.into_iter().map(|number| Value { text: text(number), number }).collect()
        }
        None => {
            let one = |text: &str| -> Result<Value, String> {
                let is_relative = text.ends_with('x');
                let number = number(text)?;
                let text = if is_relative { number.to_string() } else { text.to_string() };
                Ok(Value { text, number })
            };
            values.split(',').map(one).collect::<Result<_, _>>()?
        }
    };
    if values.len() > MAX_VALUES {
        return Err(format!("`{text}` has {} values; at most {MAX_VALUES}", values.len()));
    }
    Ok(Vary { name: name.to_string(), values })
}

/// Runs the comparisons. The time is shared: each value may use an equal part of what is left.
pub fn run(args: &Args, vary: &Vary) -> Result<Done, Failure> {
    let commands: Vec<Vec<Word>> =
        vary.values.iter().map(|value| command(args, vary, value)).collect::<Result<_, _>>()?;
    let metrics = args.metric_specs()?;
    args.outputs.check()?;
    args.outputs.refuse_csv()?;
    let mut left = args.rule.max_time.unwrap_or(MAX_SECONDS);
    let mut series = Series {
        schema: SCHEMA.to_string(),
        varied: vary.name.clone(),
        points: Vec::new(),
        missing: vary.values.iter().map(|value| value.text.clone()).collect(),
    };
    let mut ended = Ok(Done::Fine);
    for (value, command) in vary.values.iter().zip(commands) {
        let mut job = args.job(command, metrics.clone())?;
        let mark = format!("{{{}}}", vary.name);
        job.service =
            job.service.map(|(service, user)| (service.replacing(&mark, &value.text), user));
        let part = left / series.missing.len() as f64;
        job.settings.max_seconds = Some(part.max(f64::MIN_POSITIVE));
        job.settings.patience_seconds = None;
        let outcome = match super::shift::run(job, args.workload, &mut || ()) {
            Ok(outcome) => outcome,
            Err(failure) => {
                ended = Err(failure.on(&format!("{}={}", vary.name, value.text)));
                break;
            }
        };
        let (made, signal) = match outcome {
            JobOutcome::Document(document) => (Some(document), None),
            JobOutcome::Signal(signal, made) => (made, Some(signal)),
        };
        if let Some(document) = made {
            left = (left - document.total_seconds()).max(0.0);
            series.missing.remove(0);
            series.points.push(Point {
                value: value.text.clone(),
                number: value.number as f64,
                comparison: *document,
            });
        }
        if let Some(signal) = signal {
            ended = Ok(Done::Signal(signal));
            break;
        }
    }
    if series.points.is_empty() {
        if matches!(ended, Ok(Done::Signal(_))) {
            exit::say("interrupted before every arm had two runs: no verdict");
        }
        return ended;
    }
    finish(args, &series)?;
    match ended? {
        Done::Fine => args.judged(series.points.iter().map(|one| &one.comparison)),
        done => Ok(done),
    }
}

/// Writes what was asked for.
pub fn finish(args: &Args, series: &Series) -> Result<(), Failure> {
    args.outputs.write_series(series, &text(series))
}

fn command(args: &Args, vary: &Vary, value: &Value) -> Result<Vec<Word>, Failure> {
    let Some(workload) = args.workload else {
        let mark = format!("{{{}}}", vary.name);
        let words = args.command_to_compare()?;
        let around = args.service.around()?;
        let mut texts = around.iter().flat_map(|(service, _)| service.commands());
        let is_around = texts.any(|(_, text)| text.contains(&mark));
        if !is_around && !words.iter().any(|word| word.replaced(&mark, "") != *word) {
            return Err(Failure::usage(format!(
                "--vary {0}: the program's arguments have no {mark}; write it where the value goes",
                vary.name
            )));
        }
        return Ok(words.iter().map(|word| word.replaced(&mark, &value.text)).collect());
    };
    let varied = args.workload_args.with(&vary.name, &value.text)?;
    crate::workload::command(workload, &varied.settings(workload)?)
}

fn text(series: &Series) -> String {
    let Some(first) = series.points.first() else { return "no value was run\n".to_string() };
    let reference = &first.comparison.arms[0].name;
    let metrics = first.comparison.metrics().map(|one| Measure::Metric(one.name.clone()));
    let metrics: Vec<Measure> = std::iter::once(Measure::Wall).chain(metrics).collect();
    let mut header = vec![series.varied.as_str(), "arm", "runs"];
    header.extend(metrics.iter().map(Measure::name));
    let rows =
        series.points.iter().flat_map(|point| rows(&point.value, &point.comparison, &metrics));
    let mut text = super::table::head(&first.comparison);
    // The command is that of the first value, and the end that of the first comparison.
    text = text.lines().nth(1).and_then(|line| line.split_once(';')).map_or(
        text.clone(),
        |(machine, _)| {
            let seconds: f64 = series.points.iter().map(|one| one.comparison.total_seconds()).sum();
            format!(
                "{machine}; {seconds:.0} s for {} values of {}\n",
                series.points.len(),
                series.varied
            )
        },
    );
    text += &format!(
        "\n{}\nratios to {reference}, with their intervals\n",
        table(&header, rows.collect(), &[0, 1])
    );
    for point in &series.points {
        let missed =
            missed(&point.comparison).into_iter().map(|(arm, why)| format!("{arm}: {why}"));
        for note in missed.chain(arrays::note(&point.comparison)) {
            text += &format!("note: {}={}: {note}\n", series.varied, point.value);
        }
    }
    if !series.missing.is_empty() {
        text += &format!("note: not run: {}\n", series.missing.join(", "));
    }
    text
}

fn rows(value: &str, document: &Document, quantities: &[Measure]) -> Vec<Vec<String>> {
    let analysis = analyse(document);
    let arms = analysis.arms.iter().skip(1);
    let row = |arm: &experiment::analysis::Summary| {
        let cell = |quantity: &Measure| {
            let mut judged = analysis.judgements.iter();
            let one = judged.find(|one| one.arm == arm.name && one.quantity == *quantity);
            one.map_or("unknown".to_string(), |one| one.verdict.cell())
        };
        let mut row = vec![value.to_string(), arm.name.clone(), arm.runs.to_string()];
        row.extend(quantities.iter().map(cell));
        row
    };
    let mut rows: Vec<Vec<String>> = arms.map(row).collect();
    rows.extend(document.left_out.iter().map(|arm| {
        let mut row = vec![value.to_string(), arm.name.clone(), "0".to_string()];
        row.resize(3 + quantities.len(), "left out".to_string());
        row
    }));
    rows
}

/// Arms without figures, and why.
fn missed(document: &Document) -> Vec<(String, String)> {
    let mut missed: Vec<(String, String)> = Vec::new();
    for one in analyse(document).judgements {
        if let Verdict::DidNotTakeEffect { why } | Verdict::NoData { why } = one.verdict
            && missed.iter().all(|(arm, known)| (arm, known) != (&one.arm, &why))
        {
            missed.push((one.arm, why));
        }
    }
    missed.extend(document.left_out.iter().map(|arm| (arm.name.clone(), arm.why.clone())));
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        parse_for(text, 6).unwrap().values.into_iter().map(|value| value.text).collect()
    }

    #[test]
    fn ranges_double_and_end_where_they_are_told() {
        assert_eq!(values("size=512K..3M"), ["512K", "1M", "2M", "3M"]);
        assert_eq!(values("size=1M,1G"), ["1M", "1G"]);
        assert_eq!(values("clients=1..4x"), ["1", "2", "4", "8", "16", "24"]);
        assert_eq!(values("clients=2,1x"), ["2", "6"]);
        assert_eq!(values("threads=4..4"), ["4"]);
        for bad in ["size", "=1", "size=", "size=2M..1M", "size=0..1M", "a b=1", "n=1..y", "n=1,,2"]
        {
            assert!(parse_for(bad, 6).is_err(), "{bad}");
        }
    }
}
