//! The record of superpages made in a process, from which they are split again.
//!
//! One file for each program of a process, in a directory of root's: a line per address, written before the
//! call that changes it, so that the record of a killed writer has all that it made. `-` takes an address back. See
//! docs/decisions/manage.md#7.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host::{Root, process};
use services::Process;
use units::Pid;

use crate::holder::{holder, write_own};

/// Directory of the records. It is empty after a boot, as all processes have ended.
pub const DIR: &str = "/run/superpage/manage";
/// First line of a record.
const HEADER: &str = "superpages made by superpage manage, 1";
/// Largest record that is read: a process of 16 TiB.
const LARGEST: u64 = 256 << 20;
/// Digits of an address: a line that was cut off has fewer.
const DIGITS: usize = 16;

/// The record of the program that one process executes.
///
/// A writer holds a shared lock of the file (flock), so that no other process removes it meanwhile.
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
    pub fn open(root: &Root, dir: &Path, process: &Process) -> Result<Self, String> {
        let path = dir.join(Name::of(root, process)?.file());
        let starts = match read(&path) {
            Ok(starts) => starts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(unread(&path, &error)),
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

    /// Adds an address. It is written even if it is known: another process may have taken it back since.
    pub(crate) fn add(&mut self, start: u64) -> Result<(), String> {
        self.starts.insert(start);
        self.write(&format!("{start:016x}\n"))
    }

    pub(crate) fn remove(&mut self, start: u64) -> Result<(), String> {
        match self.starts.remove(&start) {
            true => self.write(&format!("-{start:016x}\n")),
            false => Ok(()),
        }
    }

    /// Keeps only these addresses. Without any the record is removed, unless another process is writing to it.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn keep(mut self, left: &[u64]) -> Result<(), String> {
        let left: BTreeSet<u64> = left.iter().copied().collect();
        let gone: Vec<u64> = self.starts.difference(&left).copied().collect();
        gone.into_iter().try_for_each(|start| self.remove(start))?;
        if !left.is_empty() {
            return Ok(());
        }
        // An empty record may be there too.
        let file = self.file.take().or_else(|| sys::trust::open_regular(&self.path).ok().flatten());
        match file {
            Some(file) if file.try_lock().is_ok() => std::fs::remove_file(&self.path)
                .or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })
                .map_err(|error| format!("{}: {error}", self.path.display())),
            _ => Ok(()),
        }
    }

    fn write(&mut self, line: &str) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        // Another process may have removed the file before this one locked it.
        if self.file.as_ref().is_none_or(|file| file.metadata().is_ok_and(|it| it.nlink() == 0)) {
            self.file = Some(create(&self.path).map_err(failed)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let length = file.metadata().map_err(failed)?.len();
        file.write_all(line.as_bytes()).map_err(|error| {
            // A full file system may have taken a part of the line.
            let _ = file.set_len(length);
            failed(error)
        })
    }
}

/// Unlocks explicitly: a child that another thread forked shares the open file description until it calls execve.
impl Drop for Record {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

/// What a record is named after: a process, and the program that it executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    /// The pid namespace in which the pid means the process.
    namespace: u64,
    pid: Pid,
    start_ticks: u64,
    /// Start of the stack, which is another one after an execve.
    stack: u64,
}

impl Name {
    fn of(root: &Root, process: &Process) -> Result<Self, String> {
        let stat = process::stat(root, process.pid).map_err(|error| error.to_string())?;
        let namespace = namespace(root).map_err(|error| format!("/proc/self/ns/pid: {error}"))?;
        let (pid, start_ticks) = (process.pid, process.start_ticks);
        Ok(Self { namespace, pid, start_ticks, stack: stat.stack_start })
    }

    fn file(self) -> String {
        format!("{}-{}-{}-{:x}", self.namespace, self.pid, self.start_ticks, self.stack)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let name = Self {
            namespace: parts.next()?.parse().ok()?,
            pid: Pid(parts.next()?.parse().ok()?),
            start_ticks: parts.next()?.parse().ok()?,
            stack: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        parts.next().is_none().then_some(name)
    }
}

/// The pid namespace of this process.
fn namespace(root: &Root) -> io::Result<u64> {
    Ok(std::fs::metadata(root.path("/proc/self/ns/pid"))?.ino())
}

/// The processes that have a record in `dir` and still execute the same program. Records of others are removed; those of
/// other pid namespaces stay.
///
/// # Errors
/// The directory cannot be read.
pub fn recorded(root: &Root, dir: &Path) -> Result<Vec<Process>, String> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}; run as root", dir.display())),
    };
    let own = namespace(root).map_err(|error| format!("/proc/self/ns/pid: {error}"))?;
    let mut running = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(Name::parse).filter(|it| it.namespace == own)
        else {
            continue;
        };
        let is_over = match Process::read(root, name.pid) {
            Ok(Some(process)) if process.start_ticks == name.start_ticks => {
                let is_same = Name::of(root, &process).is_ok_and(|now| now == name);
                running.extend(is_same.then_some(process));
                !is_same
            }
            Ok(_) => true,
            // One that cannot be read may run: its record stays.
            Err(error) => error.is_gone(),
        };
        if is_over {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    running.sort_by_key(|process| process.pid);
    Ok(running)
}

/// Removes the records of programs that ended. What cannot be read or removed stays.
pub fn forget_ended(root: &Root, dir: &Path) {
    let _ = recorded(root, dir);
}

/// The right to compare the memory of a process by switching it, until it is dropped or this process ends.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

/// A comparison switches the memory of a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} compares its memory (superpage compare); wait for the end of that",
    by.map_or("another process".to_string(), |pid| format!("process {pid}"))
)]
pub struct Compared {
    /// Who compares; `None`: unknown.
    pub by: Option<Pid>,
}

/// Why a process cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process has it.
    #[error(transparent)]
    Compared(#[from] Compared),
    /// The file of the claim cannot be written.
    #[error("{0}; run as root")]
    Io(String),
}

impl Claim {
    /// Claims a process in `dir`.
    ///
    /// # Errors
    /// Another process has claimed it, or the claim cannot be written.
    pub fn new(root: &Root, dir: &Path, process: &Process) -> Result<Self, ClaimError> {
        let path = claim_path(root, dir, process).map_err(ClaimError::Io)?;
        let failed = |error: io::Error| ClaimError::Io(format!("{}: {error}", path.display()));
        loop {
            make_dir(dir).map_err(failed)?;
            let mut options = sys::trust::no_links();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = options.open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(Compared { by: holder(&file) }.into()),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The holder before may have removed it.
            if file.metadata().map_err(failed)?.nlink() > 0 {
                write_own(&mut file);
                return Ok(Self { file, path });
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// Fails if a comparison switches the memory of a process.
///
/// # Errors
/// [`Compared`].
pub fn check_uncompared(root: &Root, dir: &Path, process: &Process) -> Result<(), Compared> {
    let Ok(path) = claim_path(root, dir, process) else { return Ok(()) };
    // Without a file there is no claim.
    let Ok(Some(file)) = sys::trust::open_regular(&path) else { return Ok(()) };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(Compared { by: holder(&file) }),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn claim_path(root: &Root, dir: &Path, process: &Process) -> Result<PathBuf, String> {
    let namespace = namespace(root).map_err(|error| format!("/proc/self/ns/pid: {error}"))?;
    let Process { pid, start_ticks, .. } = process;
    // No name of a record.
    Ok(dir.join(format!("compared-{namespace}-{pid}-{start_ticks}")))
}

/// Makes the directory of the records.
fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let owner = std::fs::symlink_metadata(dir)?;
    match owner.is_dir() && owner.uid() == sys::param::effective_user() {
        true => Ok(()),
        false => Err(io::Error::other("the directory belongs to another user")),
    }
}

/// Opens a record for writing, with the lock of a writer. A line that a killed writer left cut off is removed.
fn create(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        make_dir(dir)?;
    }
    loop {
        let mut options = sys::trust::no_links();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        if file.try_lock().is_ok() {
            let mut text = Vec::new();
            (&file).take(LARGEST).read_to_end(&mut text)?;
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
            if whole == 0 {
                file.write_all(format!("{HEADER}\n").as_bytes())?;
            }
        }
        file.lock_shared()?;
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Why a record is unknown, with the remedy. Only root may search the directory, so a file that is not there is denied too.
fn unread(path: &Path, error: &io::Error) -> String {
    match (error.kind(), path.parent()) {
        (io::ErrorKind::PermissionDenied, Some(dir)) => format!(
            "{}: only root may read which superpages were made before; run as root",
            dir.display()
        ),
        _ => format!("{}: {error}; remove the file if it is damaged", path.display()),
    }
}

fn read(path: &Path) -> io::Result<BTreeSet<u64>> {
    let file = sys::trust::open_regular(path)?.ok_or(io::ErrorKind::NotFound)?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    parse(&text).map_err(io::Error::other)
}

/// Reads a record. The last line may be cut off: the call that it announces was not made.
fn parse(text: &str) -> Result<BTreeSet<u64>, String> {
    let mut starts = BTreeSet::new();
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    match lines.next().map(str::trim_end) {
        None => return Ok(starts),
        Some(HEADER) => {}
        Some(_) => return Err(format!("expected {HEADER:?} in line 1")),
    }
    for (at, line) in lines.enumerate() {
        let line = line.trim_end();
        let (takes_back, number) = match line.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, line),
        };
        let start = u64::from_str_radix(number, 16).ok().filter(|_| number.len() == DIGITS);
        let start = start.ok_or_else(|| format!("expected {DIGITS} digits in line {}", at + 2))?;
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

    fn open(dir: &Path) -> Record {
        Record::open(&Root::real(), dir, &process()).unwrap()
    }

    fn starts(dir: &Path) -> Vec<u64> {
        open(dir).starts().collect()
    }

    fn files(dir: &Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn a_record_has_what_was_added_and_not_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        for start in [0x200000, 0x400000, 0x600000] {
            record.add(start).unwrap();
        }
        record.remove(0x400000).unwrap();
        assert_eq!(record.path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(starts(dir.path()), [0x200000, 0x600000]);
        drop(record);
        open(dir.path()).keep(&[0x600000]).unwrap();
        assert_eq!(starts(dir.path()), [0x600000]);
        open(dir.path()).keep(&[]).unwrap();
        assert_eq!(files(dir.path()), 0);
    }

    #[test]
    fn a_record_that_may_not_be_read_is_not_called_damaged() {
        let path = Path::new("/run/superpage/manage/1-2-3-4");
        let line = |kind: io::ErrorKind| unread(path, &kind.into());
        let denied = line(io::ErrorKind::PermissionDenied);
        assert!(denied.starts_with("/run/superpage/manage: "), "{denied}");
        assert!(denied.ends_with("; run as root"), "{denied}");
        assert!(line(io::ErrorKind::InvalidData).ends_with("if it is damaged"));
    }

    #[test]
    fn a_process_is_compared_once_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (root, own) = (Root::real(), process());
        check_uncompared(&root, dir.path(), &own).unwrap();
        let claim = Claim::new(&root, dir.path(), &own).unwrap();
        let by = Some(sys::param::own_pid());
        let second = Claim::new(&root, dir.path(), &own);
        assert!(matches!(second, Err(ClaimError::Compared(held)) if held.by == by));
        assert_eq!(check_uncompared(&root, dir.path(), &own), Err(Compared { by }));
        let other = Process { start_ticks: own.start_ticks + 1, ..own.clone() };
        Claim::new(&root, dir.path(), &other).unwrap();
        // A claim is no record.
        assert_eq!(recorded(&root, dir.path()).unwrap(), []);
        drop(claim);
        assert_eq!(files(dir.path()), 0);
        // What a killed one left.
        std::fs::write(claim_path(&root, dir.path(), &own).unwrap(), "12").unwrap();
        check_uncompared(&root, dir.path(), &own).unwrap();
        Claim::new(&root, dir.path(), &own).unwrap();
    }

    #[test]
    fn what_is_made_during_an_undo_stays_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = open(dir.path());
        writer.add(0x200000).unwrap();
        open(dir.path()).keep(&[]).unwrap();
        assert_eq!(files(dir.path()), 1, "a writer has it open");
        // The same place again, which the writer has recorded before, and another one.
        writer.add(0x200000).unwrap();
        writer.add(0x400000).unwrap();
        assert_eq!(starts(dir.path()), [0x200000, 0x400000]);
        std::fs::remove_file(&writer.path).unwrap();
        writer.add(0x600000).unwrap();
        assert_eq!(starts(dir.path()), [0x600000]);
    }

    #[test]
    fn a_line_that_was_cut_off_was_not_carried_out_and_spoils_no_other() {
        let whole = format!("{HEADER}\n{:016x}\n{:016x}\n", 0x200000, 0x400000);
        let dir = tempfile::tempdir().unwrap();
        let path = open(dir.path()).path.clone();
        for length in 0..=whole.len() {
            let lines = whole[..length].matches('\n').count().saturating_sub(1);
            assert_eq!(parse(&whole[..length]).unwrap().len(), lines, "{length}");
            std::fs::write(&path, &whole[..length]).unwrap();
            open(dir.path()).add(0x600000).unwrap();
            assert_eq!(starts(dir.path()).len(), lines + 1, "{length}");
            std::fs::remove_file(&path).unwrap();
        }
        for bad in ["something else\n", &format!("{HEADER}\nxyz\n"), &format!("{HEADER}\n200000\n")]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn records_of_programs_that_ended_are_removed_and_those_of_other_namespaces_stay() {
        let dir = tempfile::tempdir().unwrap();
        let own = process();
        open(dir.path()).add(0x200000).unwrap();
        let name = Name::of(&Root::real(), &own).unwrap();
        for other in [
            // The pid is another process's now; it executes another program.
            Name { start_ticks: own.start_ticks + 1, ..name },
            Name { stack: name.stack + 16, ..name },
            Name { namespace: name.namespace + 1, ..name },
        ] {
            std::fs::write(dir.path().join(other.file()), "").unwrap();
        }
        std::fs::write(dir.path().join("other"), "").unwrap();
        assert_eq!(recorded(&Root::real(), dir.path()).unwrap(), [own]);
        assert_eq!(files(dir.path()), 3);
        assert_eq!(recorded(&Root::real(), Path::new("/does/not/exist")).unwrap(), []);
    }
}
