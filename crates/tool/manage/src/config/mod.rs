//! The configuration of `superpage manage`: which processes get which design, and within which limits.
//!
//! A configuration is read whole or not at all: [`Config::read`] returns every mistake of every file, and
//! [`Config::reload`] leaves the configuration in force as it is if the files have one. [`Config::decide`] is pure. Defaults:
//! docs/decisions/manage.md#1.

mod file;
mod give_back;
mod pattern;
mod request;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use design::{Design, DesignError, designs};
use host::Root;
use policy::{LaunchPages, Scale};
use regex::Regex;
use serde::{Deserialize, Serialize};
use services::Process;
use toml_keys::{FileError, guess, quoted};
use units::ByteSize;

pub use give_back::{Cause, Shortage};
pub use pattern::Glob;
pub use request::{Request, VARIABLE};

/// Main file of the system's configuration.
pub const MAIN: &str = "/etc/superpage/manage.toml";
/// Directory of the files `*.toml` that are read after [`MAIN`], in the order of their names.
pub const DROP_INS: &str = "/etc/superpage/manage.d";

/// Why the memory limits of a process are unknown ([`Outcome::UnknownLimits`]), and the remedy.
pub const HIDDEN: &str = "its cgroup is outside this container's: mount the host's /sys/fs/cgroup";

/// A design for a purpose.
#[derive(Debug)]
pub struct Choice {
    /// What matters to the service.
    pub purpose: &'static str,
    /// Name or alias of the preset.
    pub design: &'static str,
    /// What the design does there.
    pub what: &'static str,
}

/// What to choose among the designs that can be kept in force ([`can_keep`]).
pub const CHOICES: [Choice; 3] = [
    Choice {
        purpose: "throughput",
        design: "sync-64",
        what: "a superpage for each 2 MiB of which 64 base pages are in use",
    },
    Choice {
        purpose: "least memory",
        design: "freebsd",
        what: "a superpage only where all 512 base pages are in use: adds no memory",
    },
    Choice {
        purpose: "short stalls",
        design: "ingens",
        what: "at most 8 superpages in 10 s, where 460 of 512 base pages are in use",
    },
];

/// The choices in a line, and where the other designs are.
pub fn choice() -> String {
    let one = |choice: &Choice| format!("for {} {}", choice.purpose, choice.design);
    format!(
        "choose {}; `superpage design list` marks what can be kept in force",
        CHOICES.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

/// Where a configuration is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sources {
    /// [`MAIN`], if it exists, and [`DROP_INS`].
    System,
    /// One file.
    File(PathBuf),
}

/// All mistakes of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", files.iter().map(FileError::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// At least one file, in the order in which they were read.
    pub files: Vec<FileError>,
}

impl ConfigError {
    /// Mistakes, one line each: `file:line: key: what is wrong and what would be right`.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(|file| file.problems.iter().map(|one| one.in_file(&file.file)))
    }
}

/// A configuration without mistakes.
#[derive(Debug, Clone)]
pub struct Config {
    sources: Sources,
    /// The files that were read, in that order.
    pub files: Vec<PathBuf>,
    /// Settings for the whole machine.
    pub machine: Machine,
    /// Rules, in the order in which they are tried.
    pub rules: Vec<Rule>,
}

/// Whether superpages are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing is changed; the state says what would be done.
    #[default]
    Observe,
    /// Superpages are made and split.
    Enforce,
}

/// Settings for the whole machine: the table `[manage]`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Mode of rules without a mode of their own.
    pub mode: Mode,
    /// Time between two looks at a process.
    #[serde(serialize_with = "as_seconds")]
    pub interval: Duration,
    /// CPU time for looking at processes, in percent of one CPU. Making superpages is bounded by
    /// [`Limits::collapses_per_second`].
    pub cpu_share: f64,
    /// Limits of rules without limits of their own.
    pub limits: Limits,
    /// When superpages are given back.
    pub give_back: GiveBack,
}

/// Limits for making superpages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limits {
    /// Maximum number of superpages made in a second, over all processes that have this limit.
    pub collapses_per_second: u32,
    /// Memory that stays available.
    pub memory_headroom: Amount,
    /// Upper bound for the 99th percentile of the time of one call that makes superpages. A thread of the process that
    /// touches the memory meanwhile waits as long.
    #[serde(serialize_with = "as_seconds")]
    pub longest_call: Duration,
    /// Settings against superpages that are not obeyed.
    pub may_override: Vec<Override>,
}

/// A part of the machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// Bytes.
    Bytes(ByteSize),
    /// Percent of all memory.
    Percent(f64),
}

impl Amount {
    /// Bytes of a machine that has `total` bytes; a share is rounded down.
    pub fn bytes(self, total: ByteSize) -> ByteSize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => ByteSize((total.bytes() as f64 * percent / 100.0) as u64),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

/// A setting against superpages that the kernel does not apply to MADV_COLLAPSE. Others cannot be overridden: see
/// docs/decisions/manage.md#2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Override {
    /// `never` in `/sys/kernel/mm/transparent_hugepage/enabled`, or in the switch of the superpage size.
    ThpNever,
    /// The process holds a userfaultfd. The kernel still refuses memory that is registered for missing pages and has
    /// some, and memory that is registered for write protection.
    Userfaultfd,
}

/// When superpages are given back: the table `[manage.give-back]`. See [`Shortage::cause`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GiveBack {
    /// Percent of time in which some task waited for memory (`some avg10` of `/proc/pressure/memory`).
    pub pressure: f64,
    /// Available memory below which memory is short, also without PSI.
    pub free_memory: Amount,
    /// Time for which a range that was given back gets no superpage.
    #[serde(serialize_with = "as_seconds")]
    pub leave_alone: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            interval: Duration::from_secs(1),
            cpu_share: 1.0,
            limits: Limits::default(),
            give_back: GiveBack::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            collapses_per_second: 100,
            memory_headroom: Amount::Percent(5.0),
            longest_call: Duration::from_millis(1),
            may_override: Vec::new(),
        }
    }
}

impl Default for GiveBack {
    fn default() -> Self {
        Self {
            pressure: 5.0,
            free_memory: Amount::Percent(5.0),
            leave_alone: Duration::from_secs(600),
        }
    }
}

/// A rule: `[[rule]]`.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Where it is written.
    pub place: Place,
    /// Conditions, all of which must be met.
    pub conditions: Conditions,
    /// What its processes get.
    pub gets: Gets,
    /// Mode of its processes.
    pub mode: Mode,
    /// Limits of its processes.
    pub limits: Limits,
}

/// Place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Conditions of a rule; a missing one is met by every process.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    /// A systemd unit in the process's cgroup: `redis.service`, `redis`, `postgresql@*.service`.
    pub unit: Option<Glob>,
    /// Path of the process's memory cgroup, or of one above it.
    pub cgroup: Option<Glob>,
    /// The command's name, at most 15 bytes.
    pub comm: Option<Glob>,
    /// The command line.
    pub command: Option<Regex>,
    /// Effective user id.
    pub user: Option<u32>,
}

/// What the processes of a rule get.
#[derive(Debug, Clone)]
pub enum Gets {
    /// A design.
    Design(Arc<Design>),
    /// The design that the process asks for in its environment. Processes that ask for none do not match the rule.
    AsRequested,
    /// Nothing: the manager does not touch them.
    Nothing,
}

/// What a process gets.
#[derive(Debug, Clone)]
pub struct Decision<'a> {
    /// The first rule that matches; `None`: no rule does.
    pub rule: Option<&'a Rule>,
    /// What the process gets.
    pub outcome: Outcome,
}

/// What a process gets.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// No rule matches: nothing.
    Unmatched,
    /// The rule says so: nothing.
    LeaveAlone,
    /// The process asks for a design that cannot be kept in force: nothing.
    BadRequest {
        /// What it asks for.
        asked: String,
        /// Why it cannot have that.
        why: String,
    },
    /// Its environment cannot be read, so what it asks for is unknown: nothing.
    UnknownRequest {
        /// Why it cannot be read.
        why: String,
    },
    /// Its cgroup is outside this command's cgroup namespace and not below `/sys/fs/cgroup`, so its memory limits are
    /// unknown: nothing.
    UnknownLimits,
    /// A design is kept in force, in the rule's mode and limits.
    Keep(Arc<Design>),
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn read(root: &Root, sources: &Sources) -> Result<Self, ConfigError> {
        file::read(root, sources)
    }

    /// Reads the text of one file. Errors name `file`; designs are looked for beside it.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn from_toml(file: &Path, text: &str) -> Result<Self, ConfigError> {
        file::parse(file, text)
    }

    /// Reads the files again. On a mistake the configuration in force stays.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub fn reload(&mut self, root: &Root) -> Result<(), ConfigError> {
        *self = Self::read(root, &self.sources)?;
        Ok(())
    }

    /// What a process gets: the first rule that matches decides. `request` is called at most once, and only if a rule
    /// needs what the process asks for.
    pub fn decide(&self, process: &Process, request: impl FnOnce() -> Request) -> Decision<'_> {
        let mut request = Some(request);
        let mut asked = None;
        for rule in self.rules.iter().filter(|rule| rule.conditions.are_met_by(process)) {
            let outcome = match &rule.gets {
                Gets::Design(design) => Outcome::Keep(Arc::clone(design)),
                Gets::Nothing => Outcome::LeaveAlone,
                Gets::AsRequested => {
                    let asked = asked.get_or_insert_with(|| request.take().map(|read| read()));
                    match asked.as_ref().expect("it is read once") {
                        Request::None => continue,
                        Request::Unknown(why) => Outcome::UnknownRequest { why: why.clone() },
                        Request::Design(name) => requested(name),
                    }
                }
            };
            let outcome = match outcome {
                Outcome::Keep(_) if has_hidden_cgroup(process) => Outcome::UnknownLimits,
                outcome => outcome,
            };
            return Decision { rule: Some(rule), outcome };
        }
        Decision { rule: None, outcome: Outcome::Unmatched }
    }
}

impl Conditions {
    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        let Self { unit, cgroup, comm, command, user } = self;
        unit.is_none() && cgroup.is_none() && comm.is_none() && command.is_none() && user.is_none()
    }

    /// Whether a process meets all conditions.
    pub fn are_met_by(&self, process: &Process) -> bool {
        let cgroup = process.cgroup.as_deref().unwrap_or("/");
        let unit = |wanted: &Glob| {
            let units = process.unit.as_deref().into_iter().chain(cgroup.split('/'));
            units.filter(|one| !one.is_empty()).any(|one| is_unit(wanted, one))
        };
        self.unit.as_ref().is_none_or(unit)
            && self.cgroup.as_ref().is_none_or(|wanted| is_in_cgroup(wanted, cgroup))
            && self.comm.as_ref().is_none_or(|wanted| wanted.is_match(&process.name))
            && self.user.is_none_or(|wanted| process.user == Some(wanted))
            && self.command.as_ref().is_none_or(|wanted| wanted.is_match(&process.command_line()))
    }
}

/// Whether a part of a cgroup's path is the wanted unit, whose pattern may lack the suffix.
fn is_unit(wanted: &Glob, part: &str) -> bool {
    let Some((name, suffix)) = part.rsplit_once('.') else { return false };
    ["service", "scope", "slice"].contains(&suffix)
        && (wanted.is_match(part) || wanted.is_plain() && wanted.is_match(name))
}

/// Whether the cgroup, or one above it, is the wanted one.
fn is_in_cgroup(wanted: &Glob, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    ends.map(|end| &path[..end]).any(|above| match above {
        "" => wanted.is_match("/"),
        above => wanted.is_match(above),
    })
}

/// Whether the path of the process's cgroup leads out of this command's cgroup namespace.
fn has_hidden_cgroup(process: &Process) -> bool {
    process.cgroup.as_deref().is_some_and(|path| path.split('/').any(|part| part == ".."))
}

/// The design that a process asks for.
fn requested(name: &str) -> Outcome {
    match known(name).and_then(keepable) {
        Ok(design) => Outcome::Keep(design),
        Err(why) => Outcome::BadRequest { asked: name.to_string(), why },
    }
}

/// Finds a preset.
fn known(name: &str) -> Result<Design, String> {
    designs::find(name).map_err(|error| match error {
        DesignError::Unknown { nearest, .. } => {
            format!("unknown design {}{} {}", quoted(name), guess(nearest, "\""), choice())
        }
        file @ DesignError::File { .. } => file.to_string(),
    })
}

/// Returns the design if it can be kept in force; the error names it, and says what to choose.
fn keepable(design: Design) -> Result<Arc<Design>, String> {
    match can_keep(&design) {
        Ok(()) => Ok(Arc::new(design)),
        Err(why) => {
            Err(format!("design {} cannot be kept in force: {why}; {}", design.name, choice()))
        }
    }
}

/// Checks that a design can be kept in force on running processes.
///
/// # Errors
/// Why not.
pub fn can_keep(design: &Design) -> Result<(), String> {
    let policy = design.policy(Scale::X86);
    match policy.launch().pages {
        LaunchPages::Base => {
            Err("it makes no superpages; to leave processes alone write leave-alone = true"
                .to_string())
        }
        LaunchPages::Pool => {
            Err("its superpages are pages of a pool, which a running process cannot get"
                .to_string())
        }
        LaunchPages::Transparent | LaunchPages::OwnKernel => live::check_design(&policy),
    }
}

/// The directory of a file.
fn directory(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

/// Serializes a time as a number of seconds.
fn as_seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

#[cfg(test)]
mod tests;
