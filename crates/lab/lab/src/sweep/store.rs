//! The directory of a sweep. `plan.json`, `groups/*.jsonl` (one file per pass, one line per cell),
//! `locks/` (one file per shard) and `logs/` (what jobs of a cluster print). The only file of the sweeps that touches files.
//!
//! A group's file appears whole or not at all: it is written beside and renamed. Nothing in it is
//! believed all the same: every line carries a hash of what it says, and a file with a line that was cut
//! or changed counts as not there. Files are named by their group and members, so runs never write over each
//! other's results, only over the same ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::{Group, PLAN_SCHEMA, Plan, Shard, SweepError};
use crate::Report;

/// A sweep's directory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
}

/// Contents of the directory.
#[derive(Debug, Default)]
pub struct Contents {
    /// Reports by cell.
    pub reports: BTreeMap<Hash, Report>,
    /// Files with lines that cannot be used.
    pub damaged: Vec<Damage>,
}

/// A file with lines that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The first such line, from 1.
    pub line: usize,
    /// Reason.
    pub why: String,
}

/// A shard that is ours to write, until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
    pub(super) shard: Shard,
}

/// A sweep whose jobs are ours to submit and to watch, as long as a shard is held.
#[derive(Debug)]
pub struct Launched {
    _file: File,
}

/// The name of that lock, and of files that are being written for it (`NAME.launch.tmp`).
const LAUNCH: &str = "launch";

#[derive(Serialize, Deserialize)]
struct Line<R> {
    cell: Hash,
    check: Hash,
    report: R,
}

impl Store {
    /// The sweep in `directory`, which need not exist before it is planned.
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the plan. The same plan again is no change; another one only with `replace`.
    ///
    /// # Errors
    /// [`SweepError::OtherPlan`]: another plan is there. [`SweepError::File`]: it cannot be written.
    pub fn write_plan(&self, plan: &Plan, replace: bool) -> Result<(), SweepError> {
        match self.plan() {
            Ok(old) if old == *plan => return Ok(()),
            Ok(_) | Err(SweepError::BadPlan { .. }) if !replace => {
                return Err(SweepError::OtherPlan(self.directory.clone()));
            }
            Ok(_) | Err(SweepError::BadPlan { .. } | SweepError::NoPlan(_)) => {}
            Err(error) => return Err(error),
        }
        self.make_directories()?;
        let mut text = serde_json::to_string_pretty(plan).expect("a plan is plain data");
        text.push('\n');
        self.write(&self.plan_file(), &text, "plan")
    }

    /// The plan that lies here.
    ///
    /// # Errors
    /// [`SweepError::NoPlan`], [`SweepError::BadPlan`], or [`SweepError::File`]: it cannot be read.
    pub fn plan(&self) -> Result<Plan, SweepError> {
        let path = self.plan_file();
        let text = read_limited(&path)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into()));
        let text = text.map_err(|error| match error.kind() {
            ErrorKind::NotFound => SweepError::NoPlan(self.directory.clone()),
            _ => SweepError::file(&path, error),
        })?;
        let bad = |why: String| SweepError::BadPlan { path: path.clone(), why };
        let plan: Plan = report::document::read(&text).map_err(bad)?;
        if plan.schema != PLAN_SCHEMA {
            return Err(bad(format!("`{}` is not {PLAN_SCHEMA}", plan.schema)));
        }
        Ok(plan)
    }

    /// Everything that lies here and can be used. Of a file with a damaged line nothing is: whoever
    /// damaged one line may have changed another, and one pass makes all of them again.
    ///
    /// # Errors
    /// [`SweepError::File`]: the directory or a file in it cannot be read. A damaged file is no error.
    pub fn read(&self) -> Result<Contents, SweepError> {
        Self::contents(self.files("jsonl")?)
    }

    /// The same of some groups only: a shard of a large sweep does not read all of it.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_groups(&self, groups: &[Group]) -> Result<Contents, SweepError> {
        Self::contents(self.files_of(groups)?)
    }

    /// The files of some groups, whatever is in them.
    ///
    /// # Errors
    /// [`SweepError::File`]: the directory cannot be read.
    pub fn files_of(&self, groups: &[Group]) -> Result<Vec<PathBuf>, SweepError> {
        let keys: BTreeSet<String> = groups.iter().map(|group| group.key.to_string()).collect();
        let mut files = self.files("jsonl")?;
        files.retain(|path| key_of(path).is_some_and(|key| keys.contains(key)));
        Ok(files)
    }

    /// Number of passes with a file, whatever its contents.
    ///
    /// # Errors
    /// [`SweepError::File`]: the directory cannot be read.
    pub fn passes_seen(&self) -> Result<usize, SweepError> {
        let files = self.files("jsonl")?;
        Ok(files.iter().filter_map(|path| key_of(path)).collect::<BTreeSet<_>>().len())
    }

    /// Directory of the results.
    pub fn groups_directory(&self) -> PathBuf {
        self.directory.join("groups")
    }

    /// Directory of the logs of cluster jobs.
    pub fn logs_directory(&self) -> PathBuf {
        self.directory.join("logs")
    }

    fn contents(paths: Vec<PathBuf>) -> Result<Contents, SweepError> {
        let mut contents = Contents::default();
        for path in paths {
            let bytes = read_limited(&path).map_err(|error| SweepError::file(&path, error))?;
            let lines = match parse_all(&String::from_utf8_lossy(&bytes)) {
                Ok(lines) => lines,
                Err((line, why)) => {
                    contents.damaged.push(Damage { path, line, why });
                    continue;
                }
            };
            for (cell, report) in lines {
                if contents.reports.get(&cell).is_some_and(|old| *old != report) {
                    return Err(SweepError::Conflict { cell, path });
                }
                contents.reports.insert(cell, report);
            }
        }
        Ok(contents)
    }

    /// A directory may hold a copied plan only.
    fn make_directories(&self) -> Result<(), SweepError> {
        for directory in ["groups", "locks", "logs"] {
            let path = self.directory.join(directory);
            fs::create_dir_all(&path).map_err(|error| SweepError::file(&path, error))?;
        }
        Ok(())
    }

    /// Takes a shard, and clears away what a killed run of it left half written.
    pub(super) fn hold(&self, shard: Shard) -> Result<Held, SweepError> {
        let locked = || SweepError::Locked { directory: self.directory.clone(), shard };
        let file = self.lock(&shard.file_name())?.ok_or_else(locked)?;
        Ok(Held { _file: file, shard })
    }

    /// Takes the whole, to have it run by a cluster: one process submits its jobs and watches them. Shards
    /// are taken by the jobs.
    ///
    /// # Errors
    /// [`SweepError::Launched`]: another process does; [`SweepError::File`]: the directory cannot be used.
    pub fn launch(&self) -> Result<Launched, SweepError> {
        let file = self.lock(LAUNCH)?;
        let file = file.ok_or_else(|| SweepError::Launched(self.directory.clone()))?;
        Ok(Launched { _file: file })
    }

    /// Takes the lock of this name and removes its half-written files; `None`: another process holds it.
    fn lock(&self, name: &str) -> Result<Option<File>, SweepError> {
        self.make_directories()?;
        let path = self.directory.join("locks").join(format!("{name}.lock"));
        let failed = |error| SweepError::file(&path, error);
        let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        for leftover in self.files(&format!("{name}.tmp"))? {
            let _ = fs::remove_file(leftover);
        }
        Ok(Some(file))
    }

    /// Adds the reports of a group's members, in their order, whole; then removes damaged files of
    /// the same group, which have nothing any more that is not here.
    pub(super) fn add(
        &self,
        held: &Held,
        group: &Group,
        reports: &[Report],
        damaged: &[Damage],
    ) -> Result<(), SweepError> {
        let cells: Vec<String> = group.members.iter().map(|one| one.cell.to_string()).collect();
        let members = Hash::new(cells.iter().map(String::as_str));
        let path = self.groups_directory().join(format!("{}-{members}.jsonl", group.key));
        let text: String =
            group.members.iter().zip(reports).map(|(m, r)| line(m.cell, r)).collect();
        self.write(&path, &text, &held.shard.file_name())?;
        let prefix = group.key.to_string();
        for damage in damaged.iter().filter(|damage| damage.path != path) {
            let name = damage.path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.starts_with(&prefix)) {
                let _ = fs::remove_file(&damage.path);
            }
        }
        Ok(())
    }

    /// Writes a temporary file and renames it, so that no reader sees a partial file.
    fn write(&self, path: &Path, text: &str, mark: &str) -> Result<(), SweepError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{mark}.tmp"));
        let beside = PathBuf::from(beside);
        // A killed run's; a link that somebody put there is not followed.
        let _ = fs::remove_file(&beside);
        let written = File::create_new(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // The name must not reach the disk before what it names.
            file.sync_data()?;
            fs::rename(&beside, path)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            SweepError::file(path, error)
        })
    }

    /// Files of groups whose name ends like this, sorted.
    fn files(&self, ending: &str) -> Result<Vec<PathBuf>, SweepError> {
        let directory = self.groups_directory();
        let failed = |error| SweepError::file(&directory, error);
        let mut files = Vec::new();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if name.ends_with(&format!(".{ending}")) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn plan_file(&self) -> PathBuf {
        self.directory.join("plan.json")
    }
}

/// The key in the name of a group's file.
fn key_of(path: &Path) -> Option<&str> {
    Some(path.file_name()?.to_str()?.split_once('-')?.0)
}

fn line(cell: Hash, report: &Report) -> String {
    let check = check(cell, report);
    let line =
        serde_json::to_string(&Line { cell, check, report }).expect("a report is plain data");
    // Else it would be taken for damaged, and made again for ever.
    debug_assert_eq!(parse(&line).map(|_| ()), Ok(()));
    line + "\n"
}

/// The cells and reports of a file, or the first line that is damaged, and how.
fn parse_all(text: &str) -> Result<Vec<(Hash, Report)>, (usize, String)> {
    if !text.ends_with('\n') {
        return Err((text.lines().count().max(1), "was cut".to_string()));
    }
    let lines = text.lines().enumerate();
    lines.map(|(index, line)| parse(line).map_err(|why| (index + 1, why))).collect()
}

fn parse(line: &str) -> Result<(Hash, Report), String> {
    let read: Line<Report> = report::document::read(line)?;
    let Line { cell, check: stated, report } = read;
    let as_written = check(cell, &report) == stated;
    if as_written { Ok((cell, report)) } else { Err("was changed".to_string()) }
}

fn check(cell: Hash, report: &Report) -> Hash {
    let report = serde_json::to_string(report).expect("a report is plain data");
    Hash::new([cell.to_string().as_str(), &report])
}
/// More than any plan, or the results of any pass; whoever puts a disk in its place gets an answer.
const MAX_FILE: u64 = 256 << 20;

fn read_limited(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= MAX_FILE;
    if fits { Ok(bytes) } else { Err(std::io::Error::other("more than 256 MiB")) }
}

// The hash of contents: 128 bits of XXH3, which is fast, stable over versions and platforms, and not
// meant against an adversary; nobody gains by a collision here.

/// A hash of contents, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(u128);

impl Hash {
    /// Of parts, each with its length before it, so that no two lists of parts give the same bytes.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut state = Xxh3::new();
        for part in parts {
            state.update(&(part.len() as u64).to_le_bytes());
            state.update(part.as_bytes());
        }
        Self(state.digest128())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Hash {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("invalid hash `{text}`")))
    }
}

#[cfg(test)]
mod hash_tests {
    use super::*;

    /// Results that lie on disk are found by these numbers: they must never change. (Computed with
    /// xxHash 0.8 by python-xxhash.)
    #[test]
    fn is_the_same_for_ever() {
        assert_eq!(Hash::new(["superpage"]).to_string(), "ec9ea8e8f3a6d20a4c9c4088044bce0a");
        assert_eq!(Hash::new(["super", "page"]).to_string(), "db028ffde190edbd1a3d65070fdac9dc");
        assert_ne!(Hash::new(["ab", "c"]), Hash::new(["a", "bc"]));
        let hash = Hash::new(["x"]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(serde_json::to_string(&hash).unwrap(), format!("\"{hash}\""));
        assert!(serde_json::from_str::<Hash>("\"zz\"").is_err());
    }
}
