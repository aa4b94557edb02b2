//! `--vary NAME=VALUES`: a comparison at each value of a workload's option, or of `{NAME}` in a program's arguments.

use experiment::metric::MetricSpec;
use experiment::series::{Point, SCHEMA, Series};
use launch::Word;
use units::ByteSize;

use super::{MAX_SECONDS, Request};
use crate::Failure;
use crate::jobs::JobOutcome;

const MAX_VALUES: usize = 64;

/// The varied option and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Vary {
    name: String,
    values: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq)]
struct Value {
    text: String,
    number: u64,
}

/// Parses `size=128K..3G`, `size=128K,1M`, `clients=1..4x`.
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

/// Outcome of a series.
#[derive(Debug)]
pub struct Varied {
    /// The comparisons.
    pub series: Series,
    /// The signal that interrupted the series.
    pub signal: Option<i32>,
    /// Why the series ended before its last value.
    pub failed: Option<Failure>,
}

/// The comparisons of a series, checked and ready to run.
pub struct Jobs<'a> {
    request: &'a Request,
    vary: &'a Vary,
    commands: Vec<Vec<Word>>,
    metrics: Vec<MetricSpec>,
}

impl<'a> Jobs<'a> {
    /// Prepares the comparisons of a request.
    ///
    /// # Errors
    /// The request contradicts itself.
    pub fn new(request: &'a Request, vary: &'a Vary) -> Result<Self, Failure> {
        let commands = vary.values.iter().map(|value| command(request, vary, value));
        let commands = commands.collect::<Result<_, _>>()?;
        Ok(Self { request, vary, commands, metrics: request.metric_specs()? })
    }

    /// Runs the comparisons. Each may use an equal part of the remaining time.
    ///
    /// # Errors
    /// The request contradicts itself. Later failures are in [`Varied::failed`].
    pub fn run(self) -> Result<Varied, Failure> {
        let Self { request, vary, commands, metrics } = self;
        let mut left = request.rule.max_time.unwrap_or(MAX_SECONDS);
        let series = Series {
            schema: SCHEMA.to_string(),
            varied: vary.name.clone(),
            points: Vec::new(),
            missing: vary.values.iter().map(|value| value.text.clone()).collect(),
        };
        let mut varied = Varied { series, signal: None, failed: None };
        for (value, command) in vary.values.iter().zip(commands) {
            let series = &mut varied.series;
            let mut job = request.job(command, metrics.clone())?;
            let mark = format!("{{{}}}", vary.name);
            job.service =
                job.service.map(|(service, user)| (service.replacing(&mark, &value.text), user));
            let part = left / series.missing.len() as f64;
            job.settings.max_seconds = Some(part.max(f64::MIN_POSITIVE));
            job.settings.patience_seconds = None;
            let (made, signal) = match super::shift::run(job, request.workload, &mut || ()) {
                Ok(JobOutcome::Document(document)) => (Some(document), None),
                Ok(JobOutcome::Signal(signal, made)) => (made, Some(signal)),
                Err(failure) => {
                    varied.failed = Some(failure.on(&format!("{}={}", vary.name, value.text)));
                    break;
                }
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
            varied.signal = signal;
            if signal.is_some() {
                break;
            }
        }
        Ok(varied)
    }
}

fn command(request: &Request, vary: &Vary, value: &Value) -> Result<Vec<Word>, Failure> {
    let Some(workload) = request.workload else {
        let mark = format!("{{{}}}", vary.name);
        let words = request.command_to_compare()?;
        let around = request.service.around()?;
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
    let varied = request.workload_args.with(&vary.name, &value.text)?;
    crate::workloads::command(workload, &varied.settings(workload)?)
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
