//! `Store`: the directory of a sweep, with `plan.json`, `groups/*.jsonl` (one file per pass, one line per cell),
//! `locks/` (one file per shard) and `logs/` (output of cluster jobs). Only this file of the sweeps accesses files.
//!
//! A group's file is written under a temporary name and renamed, so it is never partial. Its contents are verified all
//! the same. Every line has a checksum, and a file with a cut or changed line is ignored. File names contain group and
//! members, so a run can overwrite only equal results.

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
    /// Files with damaged lines.
    pub damaged: Vec<Damage>,
}

/// A file with damaged lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The first damaged line, from 1.
    pub line: usize,
    /// Reason.
    pub why: String,
}

/// The lock of a shard, released on drop or at the end of the process.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
    pub(super) shard: Shard,
}

/// The lock of the process that submits and watches the sweep's cluster jobs, released like a shard's.
#[derive(Debug)]
pub struct Launched {
    _file: File,
}

/// Name of the launch lock, and part of the names of its temporary files (`NAME.launch.tmp`).
const LAUNCH: &str = "launch";

#[derive(Serialize, Deserialize)]
struct Line<R> {
    cell: Hash,
    check: Hash,
    report: R,
}

impl Store {
    /// Returns the store of `directory`, which may not exist yet.
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the plan. Writing an equal plan changes nothing. A different plan is only replaced if `replace` is set.
    ///
    /// # Errors
    /// [`SweepError::OtherPlan`]: a different plan exists. [`SweepError::File`]: the file cannot be written.
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

    /// Reads the plan of this directory.
    ///
    /// # Errors
    /// [`SweepError::NoPlan`], [`SweepError::BadPlan`], or [`SweepError::File`] if the file cannot be read.
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

    /// Reads all valid results. A file with a damaged line is ignored as a whole: other lines may have changed too, and
    /// one pass restores them all.
    ///
    /// # Errors
    /// [`SweepError::File`]: the directory or a file cannot be read. A damaged file is not an error.
    pub fn read(&self) -> Result<Contents, SweepError> {
        Self::contents(self.files("jsonl")?)
    }

    /// As [`Store::read`], but reads only these groups: a shard does not need the whole sweep.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_groups(&self, groups: &[Group]) -> Result<Contents, SweepError> {
        Self::contents(self.files_of(groups)?)
    }

    /// Returns the files of these groups without reading them.
    ///
    /// # Errors
    /// [`SweepError::File`]: the directory cannot be read.
    pub fn files_of(&self, groups: &[Group]) -> Result<Vec<PathBuf>, SweepError> {
        let keys: BTreeSet<String> = groups.iter().map(|group| group.key.to_string()).collect();
        let mut files = self.files("jsonl")?;
        files.retain(|path| key_of(path).is_some_and(|key| keys.contains(key)));
        Ok(files)
    }

    /// Returns the number of passes that have a file, valid or not.
    ///
    /// # Errors
    /// [`SweepError::File`]: the directory cannot be read.
    pub fn passes_seen(&self) -> Result<usize, SweepError> {
        let files = self.files("jsonl")?;
        Ok(files.iter().filter_map(|path| key_of(path)).collect::<BTreeSet<_>>().len())
    }

    /// Returns the directory of the results.
    pub fn groups_directory(&self) -> PathBuf {
        self.directory.join("groups")
    }

    /// Returns the directory of the logs of cluster jobs.
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

    /// Creates the missing directories: the directory may contain only a copied plan.
    fn make_directories(&self) -> Result<(), SweepError> {
        for directory in ["groups", "locks", "logs"] {
            let path = self.directory.join(directory);
            fs::create_dir_all(&path).map_err(|error| SweepError::file(&path, error))?;
        }
        Ok(())
    }

    /// Locks a shard, and removes the temporary files of an interrupted run.
    pub(super) fn hold(&self, shard: Shard) -> Result<Held, SweepError> {
        let locked = || SweepError::Locked { directory: self.directory.clone(), shard };
        let file = self.lock(&shard.file_name())?.ok_or_else(locked)?;
        Ok(Held { _file: file, shard })
    }

    /// Locks the sweep for the process that submits and watches its cluster jobs. The jobs lock their own shards.
    ///
    /// # Errors
    /// [`SweepError::Launched`]: another process has the lock. [`SweepError::File`]: the directory cannot be used.
    pub fn launch(&self) -> Result<Launched, SweepError> {
        let file = self.lock(LAUNCH)?;
        let file = file.ok_or_else(|| SweepError::Launched(self.directory.clone()))?;
        Ok(Launched { _file: file })
    }

    /// Takes the named lock and removes its temporary files. `None`: another process holds the lock.
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

    /// Writes the reports of a group's members, in order. Then removes the group's damaged files, which the new file
    /// replaces.
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

    /// Writes a temporary file and renames it, so no reader sees a partial file.
    fn write(&self, path: &Path, text: &str, mark: &str) -> Result<(), SweepError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{mark}.tmp"));
        let beside = PathBuf::from(beside);
        // Removes the file of a killed run. A link in its place is not followed.
        let _ = fs::remove_file(&beside);
        let written = File::create_new(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // Data must reach the disk before the rename.
            file.sync_data()?;
            fs::rename(&beside, path)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            SweepError::file(path, error)
        })
    }

    /// Returns the group files with this extension, sorted.
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

/// Returns the key in a group file's name.
fn key_of(path: &Path) -> Option<&str> {
    Some(path.file_name()?.to_str()?.split_once('-')?.0)
}

fn line(cell: Hash, report: &Report) -> String {
    let check = check(cell, report);
    let line =
        serde_json::to_string(&Line { cell, check, report }).expect("a report is plain data");
    // Otherwise the line would count as damaged, and the pass would repeat for ever.
    debug_assert_eq!(parse(&line).map(|_| ()), Ok(()));
    line + "\n"
}

/// Parses the cells and reports of a file, or returns the first damaged line and the reason.
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
/// Maximum size of a file, in bytes: larger than any plan or the results of any pass.
const MAX_FILE: u64 = 256 << 20;

fn read_limited(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= MAX_FILE;
    if fits { Ok(bytes) } else { Err(std::io::Error::other("more than 256 MiB")) }
}

// Hash of contents: 128-bit XXH3, fast and stable over versions and platforms. The hash does not resist attacks, but
// nobody gains from a collision here.

/// A hash of contents, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(u128);

impl Hash {
    /// Hashes parts, each preceded by its length, so different lists of parts give different input.
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

    /// These hashes identify results on disk and must never change. (Computed with xxHash 0.8 by python-xxhash.)
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
