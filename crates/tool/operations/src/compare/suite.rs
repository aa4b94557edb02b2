//! An entry of a suite: one application, its requirements, and its comparison. `compare --suite` runs one entry,
//! `evaluate` runs all.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use host::{Root, process};
use launch::{Program, Word};
use sys::scratch::Scratch;
use toml_keys::Reader;
use units::Pid;
use workload::Workload;

use super::suite_keys::{self as keys, Suite};
use super::{Request, shift};
use crate::Failure;
use crate::jobs::JobOutcome;
use crate::reporter::say;
use crate::workloads::WorkloadArgs;
use crate::{facts, signals};

/// A setup that takes this long, in seconds, is told.
const TOLD_SECONDS: f64 = 2.0;

/// Placeholder for the directory of the suite's file, in all commands.
const SUITE: &str = "{suite}";
/// Placeholder for an empty directory: one per run for a service, one for all runs of a command.
const DIRECTORY: &str = "{dir}";

/// One application.
pub struct Entry {
    /// Name in tables. If the file has only one entry, the file's name.
    pub name: String,
    /// The suite's file.
    pub path: PathBuf,
    /// Programs that must be installed.
    needs: Vec<String>,
    /// A command that succeeds if all other requirements are met.
    check: Option<String>,
    /// How to install the requirements.
    packages: Option<String>,
    pub(super) suite: Suite,
}

/// The environment that `setup` made. It lives while a command is compared.
pub struct Around {
    directory: Option<Scratch>,
    teardown: Option<String>,
}

/// Splits `FILE:NAME` at the first colon that follows an existing file's name, because both parts may contain colons.
pub fn split(text: &str) -> Option<(&str, &str)> {
    let mut colons = splits(text);
    colons.find(|(file, _)| Path::new(file).is_file()).or_else(|| text.rsplit_once(':'))
}

/// Returns, for each colon, the text before and after it.
pub fn splits(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices(':').map(|(at, _)| (&text[..at], &text[at + 1..]))
}

impl Entry {
    fn from_keys(reader: &mut Reader<'_>, path: &Path, is_one_of_several: bool) -> Self {
        let stem = path.file_stem().map_or(String::new(), |it| it.to_string_lossy().into_owned());
        let name = match is_one_of_several {
            true => reader.must("name"),
            false => reader.optional("name").unwrap_or(stem),
        };
        Self {
            name,
            path: path.to_path_buf(),
            needs: keys::several(reader, "needs"),
            check: reader.optional("check"),
            packages: reader.optional("packages"),
            suite: keys::keys(reader),
        }
    }

    /// Reads the entries of a file; for `FILE:NAME`, only the entry of that name.
    pub fn read(path: &Path) -> Result<Vec<Self>, Failure> {
        let text = path.display().to_string();
        let Some((file, name)) = split(&text).filter(|_| !path.exists()) else {
            return keys::entries(path, |reader, several| Self::from_keys(reader, path, several));
        };
        let mut entries = Self::read(Path::new(file))?;
        let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        entries.retain(|entry| entry.name == name);
        match entries.is_empty() {
            false => Ok(entries),
            true => Err(Failure::usage(format!(
                "{file}: no entry `{name}`; it has {}",
                names.join(", ")
            ))),
        }
    }

    /// Returns the missing programs, and how to install them. Runs nothing.
    pub fn missing_programs(&self) -> Option<String> {
        let search = facts::search_path();
        let is_missing = |name: &&String| Program::find(name, &search).is_err();
        let missing: Vec<&str> = self.needs.iter().filter(is_missing).map(String::as_str).collect();
        (!missing.is_empty()).then(|| self.with_packages(format!("needs {}", missing.join(", "))))
    }

    /// Returns the missing requirements, and how to install them. Runs the entry's `check`.
    pub fn missing(&self) -> Option<String> {
        self.missing_programs().or_else(|| {
            let check = self.check.as_ref()?;
            let failed = sh(&self.fill(check, None)).err();
            failed.map(|_| self.with_packages(format!("`{check}` fails")))
        })
    }

    /// Returns the command that must succeed before the entry is run.
    pub fn check(&self) -> Option<&str> {
        self.check.as_deref()
    }

    fn with_packages(&self, what: String) -> String {
        let install = self.packages.as_ref();
        what + &install.map_or(String::new(), |it| format!("; install {it}"))
    }

    fn fill(&self, text: &str, directory: Option<&Path>) -> String {
        let own = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let own = std::path::absolute(own.unwrap_or(Path::new("."))).unwrap_or_default();
        let text = text.replace(SUITE, &own.display().to_string());
        directory.map_or(text.clone(), |it| text.replace(DIRECTORY, &it.display().to_string()))
    }

    /// Completes `request` from the entry. Options of the request take precedence. A dry run runs no setup.
    fn apply(
        mut self,
        mut request: Request,
        is_dry_run: bool,
    ) -> Result<(Request, Around), Failure> {
        let mut service = std::mem::take(&mut self.suite.service);
        let plain = self.suite.plain.take();
        let directory = plain.is_some().then(|| Scratch::new(None)).transpose();
        let directory = directory.map_err(|error| Failure::cannot(format!("TMPDIR: {error}")))?;
        for text in service.texts() {
            *text = text.take().map(|text| self.fill(&text, directory.as_ref().map(Scratch::path)));
        }
        let mut around = Around { teardown: None, directory };
        match plain {
            None => request.service = service,
            Some(words) => {
                request.service.suite = None;
                if !is_dry_run {
                    around.teardown = service.teardown;
                    if let Some(setup) = service.setup {
                        sh(&setup).map_err(|why| Failure::usage(format!("setup: {why}")))?;
                    }
                } else if words.iter().any(|word| word.starts_with("{dir}/")) {
                    return Err(Failure::usage(format!(
                        "{}: --dry-run runs no setup, which would make the program",
                        self.name
                    )));
                }
                let directory = around.directory.as_ref().map(Scratch::path);
                let words = words.iter().map(|word| self.fill(word, directory));
                let parsed = parse(words)?;
                (request.workload, request.command) = (parsed.workload, parsed.command);
                request.workload_args = parsed.workload_args;
            }
        }
        if request.metric.is_empty() {
            (request.metric, request.metric_name) = (self.suite.metric, self.suite.metric_name);
            request.metric_better = self.suite.metric_better;
        }
        if let Some(least) = self.suite.min_coverage {
            request.rule.min_coverage = Some(least);
        }
        if request.arms.is_empty() {
            request.arms = self.suite.arms;
        }
        Ok((request, around))
    }

    /// Compares the entry for at most `max_seconds`, with its setup. Arms that cannot run here are left out.
    pub fn compare(self, max_seconds: f64, quiet: bool) -> Result<JobOutcome, Failure> {
        let began = Instant::now();
        // Catch signals also during setup and teardown.
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        let applied = self.apply(Request::default(), false);
        if let Some(signal) = interrupting.received() {
            return Ok(JobOutcome::Signal(signal, None));
        }
        let (request, around) = applied?;
        let left = (max_seconds - began.elapsed().as_secs_f64()).max(f64::MIN_POSITIVE);
        let outcome = request.compare_as_chosen(left, quiet);
        drop(around);
        match (outcome, interrupting.received()) {
            (Err(_), Some(signal)) => Ok(JobOutcome::Signal(signal, None)),
            (outcome, signal) => outcome.map(|outcome| outcome.interrupted_by(signal)),
        }
    }
}

impl Request {
    /// Takes the time of the suite's setup from the time that `--max-time` gives.
    fn spend(&mut self, seconds: f64) {
        let Some(limit) = &mut self.rule.max_time else { return };
        if seconds >= TOLD_SECONDS && !self.quiet {
            say(&format!("setup took {seconds:.0} s of --max-time {limit:.0}s"));
        }
        *limit = (*limit - seconds).max(f64::MIN_POSITIVE);
    }

    /// Runs the comparison. Arms that cannot run here are left out.
    fn compare_as_chosen(self, max_seconds: f64, quiet: bool) -> Result<JobOutcome, Failure> {
        let command = self.command_to_compare()?;
        let mut job = self.job(command, self.metric_specs()?)?;
        job.settings.max_seconds = Some(max_seconds);
        // One block is not enough for a result, so allow the second even past the time limit.
        job.settings.patience_seconds = Some(0.0);
        (job.is_choice, job.quiet) = (true, quiet);
        shift::run(job, self.workload, &mut || ())
    }

    /// Returns the request completed from its suite, and the environment that setup made.
    ///
    /// # Errors
    /// The suite cannot be read, or its setup fails.
    pub fn with_suite(self, is_dry_run: bool) -> Result<(Self, Option<Around>), Failure> {
        let Some(path) = self.service.suite.clone() else { return Ok((self, None)) };
        let mut entries = Entry::read(&path)?;
        let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        match (entries.pop(), entries.is_empty()) {
            (Some(entry), true) => {
                let began = Instant::now();
                let (mut request, around) = entry.apply(self, is_dry_run)?;
                request.spend(began.elapsed().as_secs_f64());
                Ok((request, Some(around)))
            }
            _ => Err(Failure::usage(format!(
                "{0}: choose an entry, as --suite {0}:NAME: {1}; superpage evaluate runs all",
                path.display(),
                names.join(", ")
            ))),
        }
    }
}

/// The arguments of a workload or command entry, parsed as `compare` parses them.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Words {
    workload: Option<Workload>,
    #[arg(last = true)]
    command: Vec<Word>,
    #[command(flatten)]
    workload_args: WorkloadArgs,
}

fn parse(words: impl Iterator<Item = String>) -> Result<Words, Failure> {
    Words::try_parse_from(words).map_err(|error| {
        let said = error.to_string();
        Failure::usage(said.lines().next().unwrap_or_default().trim_start_matches("error: "))
    })
}

/// Runs a suite's command silently. On failure returns the end of its standard error.
fn sh(command: &str) -> Result<(), String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
    let failed = |error: std::io::Error| format!("sh: {error}");
    let mut errors = tempfile::tempfile().map_err(failed)?;
    shell.stderr(errors.try_clone().map_err(failed)?);
    let asked = signals::interrupt_experiment(Arc::default()).map_err(|why| why.to_string())?;
    let mut child = shell.spawn().map_err(failed)?;
    let mut told = 0;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        // The terminal signals the child too; forward signals that were sent only to this process.
        if asked.signal() != told {
            told = asked.signal();
            for pid in process::tree(&Root::real(), Pid(child.id() as i32)) {
                let _ = sys::signal::send(pid, told);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    errors.rewind().and_then(|()| errors.read_to_end(&mut said)).map_err(failed)?;
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_string();
    Err(format!("`{command}` failed ({status}): {last}"))
}

impl Drop for Around {
    fn drop(&mut self) {
        if let Some(Err(why)) = self.teardown.as_deref().map(sh) {
            say(&format!("teardown: {why}"));
        }
        if let Some(Err(left)) = self.directory.take().map(Scratch::close) {
            say(&format!("the directory for {{dir}}: {left}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_suite_is_read_and_names_files_that_are_there() {
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../suites");
        let mut names = BTreeSet::new();
        for directory in [suites.clone(), suites.join("published")] {
            for file in std::fs::read_dir(directory).unwrap().flatten().map(|it| it.path()) {
                if file.extension().is_none_or(|it| it != "toml") {
                    continue;
                }
                for mut entry in Entry::read(&file).unwrap_or_else(|why| panic!("{why}")) {
                    let name = entry.name.clone();
                    assert!(entry.suite.arms.len() > 1, "{name}");
                    assert!(entry.needs.is_empty() || entry.packages.is_some(), "{name}");
                    let texts = entry.suite.service.texts().into_iter().filter_map(|it| it.take());
                    let texts: Vec<String> =
                        texts.chain(entry.suite.plain.take().into_iter().flatten()).collect();
                    for text in texts {
                        let filled = entry.fill(&text, None);
                        let own = |word: &&str| word.starts_with('/') && word.contains("/suites/");
                        for path in filled.split([' ', '\'', '"']).filter(own) {
                            assert!(Path::new(path).is_file(), "{name}: {path}");
                        }
                    }
                    assert!(names.insert(name.clone()), "two entries are named {name}");
                }
            }
        }
        assert!(names.len() > 30, "{names:?}");
    }
}
