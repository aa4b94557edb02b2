//! `--on slurm|ray`: work that is dealt to parts, each run by a job of a cluster. Here they are submitted, watched and,
//! where they failed, submitted again. `sweep run` and `evaluate` say what a part is, and what of it is left.
//!
//! What is done is known from the results alone, checked as ever: a job that says it went well and left nothing
//! has failed, and one that was killed after its last result has not.
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

/// What is to be done, in parts that are numbered from 0.
pub trait Work {
    /// What kind of work it is.
    fn kind(&self) -> &'static Kind;

    /// How many pieces of a part are left, by its results, which are read.
    ///
    /// # Errors
    /// They cannot be read.
    fn left(&self, part: u32) -> Result<usize, Failure>;

    /// How many pieces are there, of how many, at a glance.
    ///
    /// # Errors
    /// Their directory cannot be read.
    fn seen(&self) -> Result<(usize, usize), Failure>;

    /// What a job of Slurm's runs; `$SLURM_ARRAY_TASK_ID` is its part.
    fn script(&self) -> String;

    /// What a task of Ray's runs.
    ///
    /// # Errors
    /// The results that are there cannot be read.
    fn task(&self, part: u32) -> Result<Task, Failure>;

    /// What Slurm's jobs are whose name ends in another deal than this launch's, and how to watch those.
    fn other_deal(&self, deal: &str) -> String;
}

/// A kind of work.
#[derive(Debug)]
pub struct Kind {
    /// In the names of jobs and of directories: `sweep`.
    pub name: &'static str,
    /// A piece, in words: `pass`.
    pub piece: &'static str,
    /// Several of them.
    pub pieces: &'static str,
    /// The program that does a part.
    pub program: &'static str,
    /// Files of the directory that every task gets.
    pub shared: &'static [&'static str],
    /// The directory of results in it.
    pub folder: &'static str,
    /// A regular expression for the names of results, as Python has them. No other file comes back.
    pub results: &'static str,
    /// The signal that a task's program gets when its worker is gone.
    pub ends_by: i32,
}

/// What a task of Ray's runs, in a directory that is its own.
#[derive(Debug)]
pub struct Task {
    /// Results that it has already, by their names.
    pub files: Vec<String>,
    /// The words after the program.
    pub words: Vec<Word>,
}

/// A word of a command.
#[derive(Debug)]
pub enum Word {
    /// As it is.
    Text(String),
    /// A path in the task's directory; empty: that directory.
    Place(String),
}

/// What a part has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many CPUs of a node.
    Cpus(u32),
    /// A node, and nothing beside it.
    Node,
}

/// Work that is to be done by a cluster.
pub struct Launch<'a> {
    /// The work.
    pub work: &'a dyn Work,
    /// The flags.
    pub args: &'a ClusterArgs,
    /// Full path of the directory with its results, and `logs`: jobs start in another.
    pub directory: String,
    /// What tells its jobs, and their directories, from those of other work.
    pub id: String,
    /// How many parts there are.
    pub parts: u32,
    /// How the work was dealt to them, in a word.
    pub deal: String,
    /// What each has for itself.
    pub share: Share,
    /// The program on the nodes: the first of these that is there.
    pub programs: Vec<String>,
}

/// How watching a cluster ended.
#[derive(Debug, Default)]
pub struct Watched {
    /// How often a part was given to the cluster.
    pub submitted: u64,
    /// Parts that were given up, and why.
    pub given_up: Vec<(u32, String)>,
    /// Why parts are left that were not given up.
    pub stopped: Option<String>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The jobs go on without us, as asked for (`--detach`).
    pub detached: bool,
}

/// What would be submitted.
#[derive(Debug, serde::Serialize)]
pub struct Submission {
    /// The command, in words.
    pub command: Vec<String>,
    /// What it reads: a job's script, or the driver of the tasks.
    pub script: String,
}

/// What watching a cluster needs: progress, signals, and what was tried.
struct Watch {
    progress: Progress,
    interrupting: Interrupting,
    tries: Tries,
    quiet: bool,
}

impl Watch {
    /// Tells how far it is.
    fn tell(&mut self, launch: &Launch, how: &str) -> Result<(), Failure> {
        let (done, of) = launch.work.seen()?;
        let what = || format!("{done} of {of} {}; {how}", launch.work.kind().pieces);
        self.progress.tell(done as u64, Some(of as u64), what);
        Ok(())
    }

    /// The signal that came, if one did.
    fn signal(&self) -> Option<i32> {
        self.interrupting.received()
    }

    /// Waits, or until a signal comes.
    fn wait(&self, time: Duration) {
        const SLICE: Duration = Duration::from_millis(50);
        let began = Instant::now();
        while self.signal().is_none() && began.elapsed() < time {
            std::thread::sleep(SLICE.min(time));
        }
    }

    /// Says a line beside the progress.
    fn say(&self, line: &str) {
        if !self.quiet {
            self.progress.aside(|| say(line));
        }
    }
}

/// Why the watch over a cluster ended, if not because all was there or given up.
#[derive(Default)]
struct Outcome {
    signal: Option<i32>,
    stopped: Option<String>,
    detached: bool,
}

impl Launch<'_> {
    /// Has it done, to the end.
    ///
    /// # Errors
    /// The cluster cannot be used, or results not read.
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

    /// What would be submitted of these parts.
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
    /// As it would be typed.
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

/// Makes the directories below `directory` that jobs read and write; for root only where no other user can write, who else could
/// have root run code.
pub fn make_directories(directory: &str, names: &[&str]) -> Result<(), Failure> {
    names.iter().try_for_each(|name| {
        let path = Path::new(directory).join(name);
        sys::trust::directory(&path).map_err(|error| {
            Failure::usage(format!("{}: {error}; choose another directory", path.display()))
        })
    })
}

/// The text of a path, which goes into scripts.
///
/// # Errors
/// It is not UTF-8.
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

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:%+@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The last line that says something: of a log, of a command's errors.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}
