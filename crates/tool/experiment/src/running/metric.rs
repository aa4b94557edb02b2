//! The metric of a running service: what it is, and how its figure is found in text. Pure.

use serde::{Deserialize, Serialize};

use crate::metric::Metric as Printed;
use crate::stats::Better;

/// A metric, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Name in tables.
    pub name: String,
    /// The better direction.
    pub better: Better,
    /// What a counter's increase is divided by; `null`: the figure is not a counter's.
    pub per: Option<Per>,
    /// Where the figure comes from.
    pub source: Source,
}

/// What a counter's increase during a block is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Seconds of elapsed time.
    Second,
    /// Seconds of CPU time, user and system, of the service's processes.
    CpuSecond,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum Source {
    /// A number that a command prints at the end of a block, or at both ends if it is a counter.
    Command {
        /// The command, for `sh -c`.
        command: String,
        /// The number is the first group of the last match; `null`: the command prints nothing else.
        regex: Option<String>,
    },
    /// A Prometheus metric of a server on this machine.
    Url {
        /// Where it is read.
        url: String,
        /// Name and labels: `requests_total{code="200"}`.
        series: String,
    },
}

impl Metric {
    /// Formats the name with the unit of a rate.
    pub fn heading(&self) -> String {
        match self.per {
            None => self.name.clone(),
            Some(Per::Second) => format!("{}/s", self.name),
            Some(Per::CpuSecond) => format!("{} per CPU second", self.name),
        }
    }
}

/// Finds the number in what a command printed: by a regular expression, or all of it.
///
/// # Errors
/// One line: the expression is invalid or does not match, or what it matched is not a positive number.
pub fn printed(text: &str, regex: Option<&str>) -> Result<f64, String> {
    match regex {
        Some(regex) => {
            let metric = Printed::compile(regex).map_err(|error| error.to_string())?;
            metric.find(text).map_err(|error| error.to_string())
        }
        None => {
            let whole: String = text.trim().chars().take(120).collect();
            // A counter may begin at zero.
            let number = whole.parse::<f64>().ok();
            number.filter(|number| (0.0..=units::MAX_FIGURE).contains(number)).ok_or_else(|| {
                format!(
                    "it printed {whole:?}, not one number; --metric REGEX finds it in more text"
                )
            })
        }
    }
}

/// Type of a Prometheus metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only increases: its rate is the figure.
    Counter,
    /// Its value is the figure. Also metrics without a type.
    Gauge,
}

/// A name and the labels that a series must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    name: String,
    labels: Vec<(String, String)>,
}

impl Series {
    /// Parses `NAME` or `NAME{label="value",...}`.
    ///
    /// # Errors
    /// One line with what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("invalid series `{text}`: expected e.g. requests_total{{code=\"200\"}}");
        let (name, labels, rest) = head(text.trim()).ok_or_else(wrong)?;
        match rest.is_empty() {
            true => Ok(Self { name: name.to_string(), labels }),
            false => Err(wrong()),
        }
    }

    /// Finds the series in a page of the Prometheus text format. Several series with these labels add up, as by `sum`.
    ///
    /// # Errors
    /// One line: no such series, or its value is not a number from 0 up.
    pub fn find(&self, page: &str) -> Result<(Kind, f64), String> {
        let (mut sum, mut found, mut kind) = (0.0, 0, Kind::Gauge);
        for line in page.lines() {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                let mut words = comment.split_whitespace();
                // OpenMetrics names the family: the series has the suffix `_total`.
                let is_own = |name: &str| {
                    name == self.name || self.name.strip_suffix("_total") == Some(name)
                };
                if words.next() == Some("TYPE") && words.next().is_some_and(is_own) {
                    kind =
                        if words.next() == Some("counter") { Kind::Counter } else { Kind::Gauge };
                }
                continue;
            }
            let Some((name, labels, rest)) = head(line) else { continue };
            if name != self.name || !self.labels.iter().all(|own| labels.contains(own)) {
                continue;
            }
            let value = rest.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
            let value = value.filter(|value| (0.0..=units::MAX_FIGURE).contains(value));
            sum += value
                .ok_or_else(|| format!("{}: {rest:?} is not a number from 0 up", self.name))?;
            found += 1;
        }
        match found {
            0 => Err(format!("the page has no series {} with these labels", self.name)),
            _ => Ok((kind, sum)),
        }
    }
}

type Labels = Vec<(String, String)>;

/// Splits a line into name, labels and the rest.
fn head(line: &str) -> Option<(&str, Labels, &str)> {
    let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == ':';
    let end = line.find(|one| !is_name(one)).unwrap_or(line.len());
    let (name, mut rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|one: char| one.is_ascii_digit()) {
        return None;
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.trim_start().strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once('=')?;
            let (value, after) = quoted(after.trim_start())?;
            labels.push((label.trim().to_string(), value));
            let after = after.trim_start();
            rest = after.strip_prefix(',').map_or(after, str::trim_start);
            if !after.starts_with([',', '}']) {
                return None;
            }
        }
        rest = &rest[1..];
    }
    Some((name, labels, rest.trim_start()))
}

/// Reads a quoted value with the escapes `\\`, `\"` and `\n`; returns the value and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.strip_prefix('"')?.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[1 + at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            letter => value.push(letter),
        }
    }
    None
}

/// Checks a regular expression before anything is run.
///
/// # Errors
/// One line with what is wrong.
pub fn check_regex(regex: &str) -> Result<(), String> {
    Printed::compile(regex).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000
http_requests_total{method=\"get\",code=\"200\"} 3
http_requests_total{method=\"post\",code=\"a\\\"b}\\n\"} 5e1
# TYPE temperature gauge
temperature 21.5
# TYPE served counter
served_total 8
no_type{x=\"1\",} 2
broken{x=\"1\" 3
nan_value NaN
";

    #[test]
    fn series_are_found_by_their_labels_and_add_up() {
        for (series, kind, value) in [
            ("http_requests_total{method=\"post\",code=\"200\"}", Kind::Counter, 1027.0),
            ("http_requests_total{code=\"200\"}", Kind::Counter, 1030.0),
            ("http_requests_total", Kind::Counter, 1080.0),
            ("http_requests_total{code=\"a\\\"b}\\n\"}", Kind::Counter, 50.0),
            ("temperature", Kind::Gauge, 21.5),
            ("served_total", Kind::Counter, 8.0),
            ("no_type", Kind::Gauge, 2.0),
        ] {
            let found = Series::parse(series).unwrap().find(PAGE);
            assert_eq!(found, Ok((kind, value)), "{series}");
        }
    }

    #[test]
    fn what_is_not_there_or_no_number_is_told() {
        for (series, part) in [
            ("http_requests", "no series http_requests"),
            ("http_requests_total{code=\"500\"}", "no series http_requests_total"),
            ("broken", "no series broken"),
            ("nan_value", "\"NaN\" is not a number"),
        ] {
            let why = Series::parse(series).unwrap().find(PAGE).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        for wrong in ["", "{}", "9a", "a b", "a{b}", "a{b=\"c}", "a{b=\"c\"} 1"] {
            assert!(Series::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_prints_one_number_or_one_that_matches() {
        assert_eq!(printed(" 12.5\n", None), Ok(12.5));
        assert_eq!(printed("0", None), Ok(0.0));
        assert_eq!(printed("ops: 1\nops: 2\n", Some("ops: ([0-9]+)")), Ok(2.0));
        for (text, regex) in [
            ("", None),
            ("1 2", None),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("x", Some("[0-9]")),
        ] {
            assert!(printed(text, regex).is_err(), "{text}");
        }
        assert!(check_regex("ops: ([0-9]+)").is_ok());
        assert!(check_regex("(").unwrap_err().contains("not valid"));
    }

    proptest::proptest! {
        #[test]
        fn any_page_and_any_series_is_read_or_refused_in_one_line(
            page in "(([a-z_:{}=\"\\\\, #\u{e9}0-9.]{0,20})\n){0,6}",
            series in "[a-z_{}=\"\\\\,\u{e9}0-9]{0,12}",
        ) {
            for series in [Series::parse(&series), Series::parse("a")] {
                let found = series.and_then(|series| series.find(&page));
                if let Err(why) = found {
                    assert_eq!(why.lines().count(), 1, "{why}");
                }
            }
        }
    }
}
