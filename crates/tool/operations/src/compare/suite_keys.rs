//! `--suite FILE`: a TOML file of service options. Every error names its line.
//!
//! ```toml
//! service = "redis-server --port {port} --save ''"
//! ready = "redis-cli -p {port} ping"
//! load = "redis-benchmark -p {port} -t get -n 1000000 --csv"
//! metric = ['GET="GET","([0-9.]+)']   # or one text
//! arm = ["base", "thp"]               # with --arm, those are used instead; likewise --metric
//! ```
//!
//! A file of several entries has `[[entry]]` tables, each with a name. An entry may be a `command` or a `workload`
//! instead of a service.

use std::path::Path;

use launch::Recipe;
use toml_keys::{DeValue, Field, Reader, list, parsed, word, wrong};

use super::ServiceArgs;
use crate::Failure;
use crate::files;
use crate::jobs::arms::{self, BetterArg};

const MAX_FILE: u64 = 1 << 20;

/// The keys of an entry.
#[derive(Default)]
pub struct Suite {
    pub service: ServiceArgs,
    /// Arguments of `compare` for a command or workload; `None` for a service.
    pub plain: Option<Vec<String>>,
    pub metric: Vec<String>,
    pub metric_name: Vec<String>,
    pub metric_better: Vec<BetterArg>,
    pub arms: Vec<Recipe>,
    pub min_coverage: Option<f64>,
}

/// Reads a file with several entries, or with one entry and no heading. `entry` parses the keys; its flag says whether
/// the file has several.
pub fn entries<T>(
    path: &Path,
    entry: impl Fn(&mut Reader<'_>, bool) -> T,
) -> Result<Vec<T>, Failure> {
    let text = files::text(path, MAX_FILE, "a suite: TOML with service and load, or command")?;
    read(&text, path, entry)
}

fn read<T>(
    text: &str,
    path: &Path,
    entry: impl Fn(&mut Reader<'_>, bool) -> T,
) -> Result<Vec<T>, Failure> {
    let entries = |keys: &mut Reader<'_>| {
        let mut entries = Vec::new();
        match keys.find("entry").is_some() {
            true => keys.tables("entry", |keys| entries.push(entry(keys, true))),
            false => entries.push(entry(keys, false)),
        }
        entries
    };
    toml_keys::read(path.display(), text, entries).map_err(|error| {
        Failure::mistakes(error.problems.iter().map(|problem| problem.in_file(&error.file)))
    })
}

pub fn keys(keys: &mut Reader<'_>) -> Suite {
    // With `command` or `workload`, all service keys but setup and teardown are unknown.
    let plain = plain(keys);
    if plain.is_some() {
        let around = ServiceArgs {
            setup: keys.optional("setup"),
            teardown: keys.optional("teardown"),
            ..ServiceArgs::default()
        };
        return figures(keys, Suite { service: around, plain, ..Suite::default() });
    }
    let time = |value: &DeValue<'_>| match value.as_str() {
        Some(text) => arms::seconds(text),
        None => Err(wrong(value, "a time in quotes, e.g. \"90s\" or \"5m\"")),
    };
    let service = ServiceArgs {
        service: keys.required("service"),
        load: keys.required("load"),
        ready: keys.optional("ready"),
        ready_timeout: keys.optional_by("ready-timeout", time),
        setup: keys.optional("setup"),
        prepare: keys.optional("prepare"),
        stop: keys.optional("stop"),
        stop_timeout: keys.optional_by("stop-timeout", time),
        teardown: keys.optional("teardown"),
        user: keys.optional("as"),
        suite: None,
    };
    figures(keys, Suite { service, ..Suite::default() })
}

/// Returns the arguments of `compare` for a command or a workload; `None`, with an error recorded, if they are invalid.
fn plain(keys: &mut Reader<'_>) -> Option<Vec<String>> {
    let words = |value: &DeValue<'_>| {
        let text: String = parsed(value, "a command in quotes")?;
        let words = launch::split_words(&text).filter(|words| !words.is_empty());
        words.ok_or_else(|| format!("`{text}`: it is empty, or a quote is not closed"))
    };
    let mut plain = None;
    for (name, before) in [("workload", None), ("command", Some("--".to_string()))] {
        let Some(found) = keys.find(name) else { continue };
        plain = Some(match words(found.value) {
            Ok(words) => before.into_iter().chain(words).collect(),
            Err(what) => {
                keys.problem(found.line, found.key, what);
                Vec::new()
            }
        });
    }
    plain
}

fn figures(keys: &mut Reader<'_>, suite: Suite) -> Suite {
    Suite {
        metric: several(keys, "metric"),
        metric_name: several(keys, "metric-name"),
        metric_better: several(keys, "metric-better"),
        arms: several(keys, "arm").into_iter().map(|Arm(recipe)| recipe).collect(),
        min_coverage: keys.optional_by("min-coverage", |value| {
            arms::share(&parsed::<String>(value, "a share in quotes, e.g. \"20%\"")?)
        }),
        ..suite
    }
}

/// Reads one value, or a list of values.
pub fn several<T: Field>(keys: &mut Reader<'_>, name: &'static str) -> Vec<T> {
    let found = keys.optional_by(name, |value| match value {
        DeValue::Array(_) => list(value, &format!("{}, or a list of such", T::allowed())),
        one => T::read(one).map(|one| vec![one]),
    });
    found.unwrap_or_default()
}

struct Arm(Recipe);

impl Field for Arm {
    fn allowed() -> String {
        "an arm in quotes, as --arm takes it".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text: String = parsed(value, &Self::allowed())?;
        arms::parse(&text).map(Self)
    }
}

impl Field for BetterArg {
    fn allowed() -> String {
        "\"higher\" or \"lower\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        word(value, &[("higher", Self::Higher), ("lower", Self::Lower)])
    }
}

#[cfg(test)]
mod tests {
    use experiment::stats::Better;

    use super::*;

    fn said(text: &str) -> String {
        match read(text, Path::new("a.toml"), |found, _| keys(found)) {
            Ok(_) => String::new(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn every_option_is_a_key() {
        let text = "service = 'a {port}'\nload = 'b'\nready = 'c'\nready-timeout = '5s'\nsetup = 'd'\n\
                    prepare = 'e'\nstop = 'f'\nstop-timeout = '1m'\nteardown = 'g'\nas = 'h'\n\
                    metric = ['p99=(.*)', 'x']\nmetric-name = ['1', '2']\nmetric-better = 'lower'\n\
                    arm = ['base', 'x: A=1']\n";
        let entries = read(text, Path::new("a.toml"), |found, _| keys(found));
        let mut entries = entries.unwrap_or_else(|why| panic!("{why}"));
        let suite = entries.pop().expect("one");
        let ServiceArgs { ready_timeout, stop_timeout, user, teardown, .. } = suite.service;
        assert_eq!((ready_timeout, stop_timeout), (Some(5.0), Some(60.0)));
        assert_eq!((user.as_deref(), teardown.as_deref()), (Some("h"), Some("g")));
        assert_eq!((suite.metric.len(), suite.metric_name.len(), suite.arms.len()), (2, 2, 2));
        assert!(
            matches!(suite.metric_better.as_slice(), [one] if Better::from(*one) == Better::Lower)
        );
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, part) in [
            ("service = 'a'\nlaod = 'b'", "a.toml:2: laod: unknown key: did you mean `load`?"),
            ("service = 'a'", "a.toml:1: load: is missing"),
            ("service = 3\nload = 'b'", "a.toml:1: service: is an integer"),
            ("service = 'a'\nload = 'b'\nready-timeout = 5", "a.toml:3: ready-timeout"),
            ("service = 'a'\nload = 'b'\narm = 'pages='", "a.toml:3: arm"),
            ("service = 'a'\nload = 'b'\nmetric-better = 'less'", "a.toml:3: metric-better"),
            ("service = 'a\n", "a.toml:1: invalid TOML"),
            ("[[entry]]\ncommand = 'a'\nload = 'b'", "a.toml:3: entry.load: unknown key"),
            ("[[entry]]\ncommand = \"'\"", "a.toml:2: entry.command: `'`: it is empty, or a quote"),
            ("command = 'a'\nmin-coverage = 3", "a.toml:2: min-coverage"),
        ] {
            assert!(said(text).contains(part), "{text}: {}", said(text));
        }
    }
}
