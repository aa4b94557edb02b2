//! `--on slurm|ray`: runs work on a cluster, one job per part. Submits and watches the jobs, and resubmits those that
//! failed. `sweep run` and `evaluate` define the parts and report how much of each part has no result yet.
//!
//! Only results that pass their check decide completion. A job that reports success without results has failed; a job
//! killed after its last result has succeeded.
//! See docs/decisions/lab.md#9.

mod args;
mod ray;
mod slurm;
mod tries;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Failure;
use crate::reporter::Progress;
use crate::reporter::say;
use crate::signals::{Interrupting, interrupt_experiment};
use tries::Tries;

pub use args::{ClusterArgs, On, only};

/// Work that is divided into parts, numbered from 0.
pub trait Work {
    /// Returns the kind of work.
    fn kind(&self) -> &'static Kind;

    /// Reads the results, and returns the number of pieces of a part that lack one.
    ///
    /// # Errors
    /// The results cannot be read.
    fn left(&self, part: u32) -> Result<usize, Failure>;

    /// Returns the number of pieces with a result, and of all pieces. Counts files without reading them.
    ///
    /// # Errors
    /// The directory of results cannot be read.
    fn seen(&self) -> Result<(usize, usize), Failure>;

    /// Returns the script of a Slurm job; `$SLURM_ARRAY_TASK_ID` is its part.
    fn script(&self) -> String;

    /// Returns the command of a Ray task.
    ///
    /// # Errors
    /// The existing results cannot be read.
    fn task(&self, part: u32) -> Result<Task, Failure>;

    /// Formats the error that Slurm already has jobs of this work, divided as `deal` says, and how to watch them.
    fn other_deal(&self, deal: &str) -> String;
}

/// A kind of work, such as a sweep.
#[derive(Debug)]
pub struct Kind {
    /// Name in job and directory names, such as `sweep`.
    pub name: &'static str,
    /// Name of one piece, such as `pass`.
    pub piece: &'static str,
    /// Plural of `piece`.
    pub pieces: &'static str,
    /// The program that runs a part.
    pub program: &'static str,
    /// Names of the files in the directory that every task gets.
    pub shared: &'static [&'static str],
    /// Subdirectory of the results.
    pub folder: &'static str,
    /// A Python regular expression for the names of result files. No other file is copied back.
    pub results: &'static str,
    /// Signal sent to a task's program when its Ray worker is gone.
    pub ends_by: i32,
}

/// The command of a Ray task, run in its own directory.
#[derive(Debug)]
pub struct Task {
    /// File names of the results that the task already has.
    pub files: Vec<String>,
    /// Arguments of the program.
    pub words: Vec<Word>,
}

/// An argument of a command.
#[derive(Debug)]
pub enum Word {
    /// Literal text.
    Text(String),
    /// A path relative to the task's directory; an empty path is the directory itself.
    Place(String),
}

/// Resources reserved for each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// This many CPUs of a node.
    Cpus(u32),
    /// A whole node.
    Node,
}

/// One execution of work on a cluster.
pub struct Launch<'a> {
    /// The work.
    pub work: &'a dyn Work,
    /// The flags.
    pub args: &'a ClusterArgs,
    /// Full path of the directory with results and `logs`, because jobs start in another directory.
    pub directory: String,
    /// Identifies the jobs and directories of this work.
    pub id: String,
    /// Number of parts.
    pub parts: u32,
    /// Says, as one word, how the work was divided into parts.
    pub deal: String,
    /// Resources reserved for each part.
    pub share: Share,
    /// Candidates for the program on the nodes; a node uses the first that exists.
    pub programs: Vec<String>,
}

/// How watching a cluster ended.
#[derive(Debug, Default)]
pub struct Watched {
    /// Number of parts submitted, resubmissions included.
    pub submitted: u64,
    /// Parts that were given up, with the reasons.
    pub given_up: Vec<(u32, String)>,
    /// Why the remaining parts are unfinished.
    pub stopped: Option<String>,
    /// The signal that interrupted the watching.
    pub signal: Option<i32>,
    /// Whether the jobs continue in the background (`--detach`).
    pub detached: bool,
}

/// What would be submitted.
#[derive(Debug, serde::Serialize)]
pub struct Submission {
    /// The words of the command.
    pub command: Vec<String>,
    /// Standard input of the command: a job's script, or the source of the Ray driver.
    pub script: String,
}

struct Watch {
    progress: Progress,
    interrupting: Interrupting,
    tries: Tries,
    quiet: bool,
}

impl Watch {
    fn tell(&mut self, launch: &Launch, how: &str) -> Result<(), Failure> {
        let (done, of) = launch.work.seen()?;
        let what = || format!("{done} of {of} {}; {how}", launch.work.kind().pieces);
        self.progress.tell(done as u64, Some(of as u64), what);
        Ok(())
    }

    fn signal(&self) -> Option<i32> {
        self.interrupting.received()
    }

    fn wait(&self, time: Duration) {
        const SLICE: Duration = Duration::from_millis(50);
        let began = Instant::now();
        while self.signal().is_none() && began.elapsed() < time {
            std::thread::sleep(SLICE.min(time));
        }
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            self.progress.aside(|| say(line));
        }
    }
}

/// Why watching ended before all parts were complete or given up.
#[derive(Default)]
struct Outcome {
    signal: Option<i32>,
    stopped: Option<String>,
    detached: bool,
}

impl Launch<'_> {
    /// Submits the work and watches it to the end.
    ///
    /// # Errors
    /// The cluster cannot be used, or results cannot be read.
    pub fn run(&self, quiet: bool) -> Result<Watched, Failure> {
        let kind = self.work.kind();
        let left = (0..self.parts).map(|part| Ok((part, self.work.left(part)?)));
        let left = left.collect::<Result<Vec<_>, Failure>>()?;
        let mut watch = Watch {
            progress: Progress::new(quiet, kind.pieces),
            interrupting: interrupt_experiment(Default::default())?,
            tries: Tries::new(left, self.args.retries, kind.piece),
            quiet,
        };
        let outcome = match self.args.on {
            On::Ray => ray::run(self, &mut watch),
            On::Local | On::Slurm => slurm::run(self, &mut watch),
        };
        watch.progress.clear();
        let Outcome { signal, stopped, detached } = outcome?;
        let given_up = watch.tries.given_up().map(|(part, why)| (part, why.clone())).collect();
        let submitted = watch.tries.submitted();
        Ok(Watched { submitted, given_up, stopped, signal, detached })
    }

    /// Returns the submission of these parts.
    pub fn submission(&self, parts: &[u32]) -> Submission {
        let (command, script) = match self.args.on {
            On::Ray => (ray::command(self), ray::DRIVER.to_string()),
            On::Local | On::Slurm => (slurm::submission(self, parts, 0), self.work.script()),
        };
        Submission { command: words_of(&command), script }
    }

    fn poll(&self) -> Duration {
        Duration::from_secs_f64(self.args.poll)
    }
}

impl Submission {
    /// Formats the submission as a shell session.
    pub fn text(&self) -> String {
        let line: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        format!("$ {}\n{}", line.join(" "), self.script)
    }
}

impl Word {
    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Place(path) => serde_json::json!({ "place": path }),
        }
    }
}

/// Creates the directories below `directory` that jobs read and write. If root runs the jobs, other users must not be
/// able to write there, because they could make root run their code.
pub fn make_directories(directory: &str, names: &[&str]) -> Result<(), Failure> {
    names.iter().try_for_each(|name| {
        let path = Path::new(directory).join(name);
        sys::trust::directory(&path).map_err(|error| {
            Failure::usage(format!("{}: {error}; choose another directory", path.display()))
        })
    })
}

/// Returns a path as UTF-8 text for scripts.
///
/// # Errors
/// The path is not UTF-8.
pub fn text_of(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_string).ok_or_else(|| {
        let shown = path.display();
        Failure::usage(format!("{shown}: not UTF-8, as scripts are; choose another name"))
    })
}

fn words_of(command: &Command) -> Vec<String> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:%+@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the last line that is not blank; for logs and error output.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}
