//! Runs a phase of a service: a shell command below a guard. The command is ended with all its descendants.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use host::Root;
use sys::guard::{self, Guarded};
use sys::spawn::{self, ChildSetup};
use sys::user::User;
use sys::wait;
use units::Pid;

use super::error::ServiceError;
use crate::execute::{Interrupt, RunError, tail_of};
use crate::process_tree::ProcessTree;

pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// Maximum wait for killed processes to disappear.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Place<'a> {
    pub(super) user: Option<&'a User>,
    pub(super) directory: Option<&'a Path>,
    pub(super) cpus: &'a [usize],
}

/// Events, besides the command's own end, that end the wait for it.
pub(super) struct Until<'a> {
    /// Reports that the user requested a stop.
    pub(super) interrupt: Option<&'a Interrupt>,
    /// The service, whose end ends the wait.
    pub(super) service: Option<Pid>,
    pub(super) deadline: Option<Instant>,
}

pub(super) enum End {
    Done(ExitStatus),
    TooLong,
    ServiceEnded,
}

pub(super) struct Ran {
    pub(super) end: End,
    pub(super) wall: Duration,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs the shell command `text` of the phase `name`.
pub(super) fn run(
    name: &'static str,
    text: &str,
    place: &Place,
    until: &Until,
) -> Result<Ran, RunError> {
    let mut stdout = tempfile::tempfile().map_err(RunError::Output)?;
    let mut stderr = tempfile::tempfile().map_err(RunError::Output)?;
    let mut command = Command::new("sh");
    command.args(["-c", text]).stdin(Stdio::null());
    command.stdout(copy(&stdout)?).stderr(copy(&stderr)?);
    command.envs(place.user.into_iter().flat_map(variables));
    if let Some(directory) = place.directory {
        command.current_dir(directory);
    }
    let setup = ChildSetup {
        cpus: place.cpus.to_vec(),
        own_group: true,
        user: place.user.cloned(),
        ..ChildSetup::default()
    };
    let began = Instant::now();
    let started = guard::spawn(&mut command, |command| spawn::prepare(command, setup));
    let asked = if place.user.is_some() { ", and may the user of --as execute it" } else { "" };
    let shell = |error| ServiceError::Shell(name, error, asked);
    let guarded = started.map_err(|error| RunError::service("", shell(error)))?;
    let end = attend(guarded.guard, until);
    let wall = began.elapsed();
    let end = match end {
        Ok(Some(end @ (End::TooLong | End::ServiceEnded))) => {
            kill(guarded)?;
            end
        }
        Ok(_) => End::Done(wait::reap(guarded.guard)?.0),
        Err(error) => {
            kill(guarded)?;
            return Err(error);
        }
    };
    Ok(Ran { end, wall, stdout: tail_of(&mut stdout)?, stderr: tail_of(&mut stderr)? })
}

/// Waits until the command has ended (`None`), or another event comes first.
fn attend(guard: Pid, until: &Until) -> Result<Option<End>, RunError> {
    let pids: Vec<Pid> = std::iter::once(guard).chain(until.service).collect();
    loop {
        let now = Instant::now();
        let left = until.deadline.map_or(PAUSE, |deadline| deadline.saturating_duration_since(now));
        match wait::first_ended(&pids, left.min(PAUSE))? {
            Some(0) => return Ok(None),
            Some(_) => return Ok(Some(End::ServiceEnded)),
            None if until.interrupt.is_some_and(Interrupt::is_asked) => {
                return Err(RunError::Interrupted);
            }
            None if left.is_zero() => return Ok(Some(End::TooLong)),
            None => {}
        }
    }
}

/// Kills all processes below a guard, which then ends.
pub(super) fn kill(guarded: Guarded) -> Result<(), RunError> {
    if end_all(guarded)? {
        wait::reap(guarded.guard)?;
    }
    Ok(())
}

/// Kills all processes below a guard, but does not wait for the guard. Returns false if a process does not end.
pub(super) fn end_all(guarded: Guarded) -> Result<bool, RunError> {
    let (tree, began) = (ProcessTree::below(Root::real(), guarded.guard), Instant::now());
    while began.elapsed() < PATIENCE {
        for pid in tree.members() {
            let _ = sys::signal::send(pid, libc::SIGKILL);
        }
        if wait::first_ended(&[guarded.guard], Duration::from_millis(10))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn copy(file: &File) -> Result<File, RunError> {
    file.try_clone().map_err(RunError::Output)
}

pub(super) fn variables(user: &User) -> [(String, String); 3] {
    let home = user.home.display().to_string();
    let named = |variable: &str| (variable.to_string(), user.name.clone());
    [("HOME".to_string(), home), named("USER"), named("LOGNAME")]
}
