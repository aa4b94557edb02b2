//! The record of superpages made in a process, from which they are split again.
//!
//! One file per process in a directory of root's, named by pid and start time: a line per address, written before the
//! call that changes it, so that the record of a killed writer has all that it made. `-` takes an address back. See
//! docs/decisions/manage.md#7.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host::Root;
use services::Process;
use units::Pid;

/// Directory of the records. It is empty after a boot, as all processes have ended.
pub const DIR: &str = "/run/superpage/manage";
/// First line of a record.
const HEADER: &str = "superpages made by superpage manage, 1";
/// Largest record that is read: a process of 16 TiB.
const LARGEST: u64 = 256 << 20;

/// The record of one process.
#[derive(Debug)]
pub struct Record {
    process: Process,
    path: PathBuf,
    file: Option<File>,
    starts: BTreeSet<u64>,
}

impl Record {
    /// Opens the record of a process in `dir`, or a new one, which is written with the first address.
    ///
    /// # Errors
    /// The directory or the record belongs to another user, or cannot be read.
    pub fn open(dir: &Path, process: &Process) -> Result<Self, String> {
        let path = dir.join(format!("{}-{}", process.pid, process.start_ticks));
        let starts = match read(&path) {
            Ok(starts) => starts,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Ok(Self { process: process.clone(), path, file: None, starts })
    }

    /// Addresses of the recorded superpages, lowest first.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.starts.iter().copied()
    }

    pub(crate) fn is_of(&self, process: &Process) -> bool {
        self.process.pid == process.pid && self.process.start_ticks == process.start_ticks
    }

    pub(crate) fn is_of_running(&self, root: &Root) -> bool {
        self.process.is_running(root)
    }

    pub(crate) fn add(&mut self, start: u64) -> Result<(), String> {
        match self.starts.insert(start) {
            true => self.write(&format!("{start:x}\n")),
            false => Ok(()),
        }
    }

    pub(crate) fn remove(&mut self, start: u64) -> Result<(), String> {
        match self.starts.remove(&start) {
            true => self.write(&format!("-{start:x}\n")),
            false => Ok(()),
        }
    }

    /// Keeps only these addresses; without any the record is removed.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn keep(mut self, left: &[u64]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        if left.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            };
        }
        let left: BTreeSet<u64> = left.iter().copied().collect();
        let gone: Vec<u64> = self.starts.difference(&left).copied().collect();
        gone.into_iter().try_for_each(|start| self.remove(start))
    }

    fn write(&mut self, line: &str) -> Result<(), String> {
        let path = self.path.clone();
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if self.file.is_none() {
            let file = create(&self.path).map_err(failed)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()).map_err(failed),
            None => Ok(()),
        }
    }
}

/// The processes that have a record in `dir` and still run, and the files of those that ended, which are removed.
///
/// # Errors
/// The directory cannot be read.
pub fn recorded(root: &Root, dir: &Path) -> Result<Vec<Process>, String> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", dir.display())),
    };
    let mut running = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, started)) = name.to_str().and_then(|name| name.split_once('-')) else {
            continue;
        };
        let (Ok(pid), Ok(started)) = (pid.parse(), started.parse::<u64>()) else { continue };
        match Process::read(root, Pid(pid)) {
            Ok(Some(process)) if process.start_ticks == started => running.push(process),
            Ok(_) => drop(std::fs::remove_file(entry.path())),
            Err(error) if error.is_gone() => drop(std::fs::remove_file(entry.path())),
            // It may run: its record stays.
            Err(_) => {}
        }
    }
    running.sort_by_key(|process| process.pid);
    Ok(running)
}

fn create(path: &Path) -> std::io::Result<File> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let owner = std::fs::symlink_metadata(dir)?;
        if !owner.is_dir() || owner.uid() != sys::param::effective_user() {
            return Err(std::io::Error::other("the directory belongs to another user"));
        }
    }
    let is_new = path.symlink_metadata().is_err();
    let mut file = sys::trust::no_links().append(true).create(true).mode(0o600).open(path)?;
    if is_new {
        file.write_all(format!("{HEADER}\n").as_bytes())?;
    }
    Ok(file)
}

fn read(path: &Path) -> std::io::Result<BTreeSet<u64>> {
    let mut text = String::new();
    OpenOptions::new().read(true).open(path)?.take(LARGEST).read_to_string(&mut text)?;
    parse(&text).map_err(std::io::Error::other)
}

/// Reads a record. The last line may be cut off: the call that it announces was not made.
fn parse(text: &str) -> Result<BTreeSet<u64>, String> {
    let mut starts = BTreeSet::new();
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    match lines.next().map(str::trim_end) {
        None => return Ok(starts),
        Some(HEADER) => {}
        Some(_) => return Err(format!("expected {HEADER} in line 1")),
    }
    for (at, line) in lines.enumerate() {
        let line = line.trim_end();
        let (takes_back, number) = match line.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, line),
        };
        let start = u64::from_str_radix(number, 16)
            .map_err(|_| format!("expected a hexadecimal address in line {}", at + 2))?;
        match takes_back {
            true => starts.remove(&start),
            false => starts.insert(start),
        };
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        Process::read(&Root::real(), sys::param::own_pid()).unwrap().unwrap()
    }

    #[test]
    fn a_record_has_what_was_added_and_not_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::open(dir.path(), &process()).unwrap();
        for start in [0x200000, 0x400000, 0x600000] {
            record.add(start).unwrap();
        }
        record.remove(0x400000).unwrap();
        let path =
            dir.path().join(format!("{}-{}", record.process.pid, record.process.start_ticks));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let again = Record::open(dir.path(), &process()).unwrap();
        assert_eq!(again.starts().collect::<Vec<_>>(), [0x200000, 0x600000]);
        again.keep(&[0x600000]).unwrap();
        let again = Record::open(dir.path(), &process()).unwrap();
        assert_eq!(again.starts().collect::<Vec<_>>(), [0x600000]);
        again.keep(&[]).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_line_that_was_cut_off_was_not_carried_out() {
        let whole = format!("{HEADER}\n200000\n400000\n");
        for length in 0..=whole.len() {
            let found = parse(&whole[..length]).unwrap();
            let lines = whole[..length].matches('\n').count().saturating_sub(1);
            assert_eq!(found.len(), lines, "{length}");
        }
        assert!(parse("something else\n").is_err());
        assert!(parse(&format!("{HEADER}\nxyz\n")).is_err());
    }

    #[test]
    fn records_of_processes_that_ended_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = process();
        let mut record = Record::open(dir.path(), &own).unwrap();
        record.add(0x200000).unwrap();
        // The pid is another process's now.
        let ended = Process { start_ticks: own.start_ticks + 1, ..own.clone() };
        Record::open(dir.path(), &ended).unwrap().add(0x200000).unwrap();
        std::fs::write(dir.path().join("other"), "").unwrap();
        assert_eq!(recorded(&Root::real(), dir.path()).unwrap(), [own]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(recorded(&Root::real(), Path::new("/does/not/exist")).unwrap(), []);
    }
}
