//! Executes a plan: starts the child exactly as decided, or not at all.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use sys::guard::Guarded;
use sys::prctl::ThpControl;
use sys::spawn::ChildSetup;
use sys::user::User;
use units::Pid;

use crate::plan::ThpRequest;
use crate::{LaunchError, Plan};

/// The child's standard streams.
#[derive(Debug)]
pub enum Streams {
    /// Inherited, for a launcher.
    Inherit,
    /// Without input, and each output in its own file, for an experiment.
    Into {
        /// Standard output.
        stdout: File,
        /// Standard error.
        stderr: File,
    },
}

/// Options of a start that are not part of the plan.
#[derive(Debug)]
pub struct Start {
    /// Standard streams of the child.
    pub streams: Streams,
    /// Whether the kernel kills the child when this process ends, for any reason.
    pub die_with_parent: bool,
    /// Additional variables, as `(name, value)`: padding that shifts the child's stack.
    pub environment: Vec<(String, String)>,
    /// Working directory of the child; `None`: inherited.
    pub directory: Option<PathBuf>,
    /// CPU affinity of the child; empty: inherited.
    pub cpus: Vec<usize>,
    /// Whether the child gets its own process group, which ^C at the terminal does not reach.
    pub own_group: bool,
    /// User of the child; `None`: the current user.
    pub user: Option<User>,
}

impl Default for Start {
    /// Returns options under which the child inherits everything and gets no additional variable.
    fn default() -> Self {
        Self {
            streams: Streams::Inherit,
            die_with_parent: false,
            environment: Vec::new(),
            directory: None,
            cpus: Vec::new(),
            own_group: false,
            user: None,
        }
    }
}

/// Starts the child. The caller must wait for it with [`sys::wait`], which also returns its resource usage.
///
/// # Errors
/// The program cannot be executed.
pub fn start(plan: &Plan, how: Start) -> Result<Pid, LaunchError> {
    let (mut command, setup) = prepared(plan, how)?;
    sys::spawn::prepare(&mut command, setup);
    let child = command.spawn().map_err(|source| cannot_start(plan, source))?;
    Ok(Pid(child.id() as i32))
}

/// Starts the child below a guard, which ends the child and all its descendants when this process ends, for any reason.
/// The caller must wait for the guard.
///
/// # Errors
/// The program cannot be executed.
pub fn start_guarded(plan: &Plan, how: Start) -> Result<Guarded, LaunchError> {
    let (mut command, setup) = prepared(plan, how)?;
    sys::guard::spawn(&mut command, |command| sys::spawn::prepare(command, setup))
        .map_err(|source| cannot_start(plan, source))
}

fn cannot_start(plan: &Plan, source: std::io::Error) -> LaunchError {
    LaunchError::Start { program: plan.program.path.clone(), remedy: remedy(&source), source }
}

fn prepared(plan: &Plan, mut how: Start) -> Result<(Command, ChildSetup), LaunchError> {
    let mut command = Command::new(&plan.program.path);
    command.args(&plan.arguments);
    for (name, value) in sys::secure::removed_variables() {
        command.env(name, value);
    }
    for change in &plan.environment {
        command.env(&change.variable, &change.value);
    }
    command.envs(std::mem::take(&mut how.environment));
    if let Some(directory) = how.directory {
        command.current_dir(directory);
    }
    if let Streams::Into { stdout, stderr } = how.streams {
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    }
    let thp = match plan.thp {
        ThpRequest::Inherit => None,
        ThpRequest::System => Some(ThpControl::System),
        ThpRequest::Disabled => Some(ThpControl::Disabled),
        ThpRequest::OnlyAdvised => Some(ThpControl::OnlyAdvised),
    };
    // The stack's lowest superpage begins at a multiple of its size, which needs up to one superpage more.
    let stack = plan.stack.map(|size| size.bytes().saturating_add(SUPERPAGE_SLACK));
    let descriptor = if plan.in_place { Some(files_for(&mut command)?) } else { None };
    let Start { die_with_parent, cpus, own_group, user, .. } = how;
    let setup = ChildSetup { thp, die_with_parent, stack, cpus, own_group, user, descriptor };
    Ok((command, setup))
}

/// Creates a directory of superpage files for the library in a command. Returns its descriptor, and the descriptor's
/// number in the child.
fn files_for(command: &mut Command) -> Result<(Arc<OwnedFd>, i32), LaunchError> {
    let files = sys::mount::superpage_files()?;
    let number = sys::spawn::high_descriptor();
    command.env(abi::environment::IN_PLACE, format!("{number}:{}:{}", files.device, files.inode));
    Ok((Arc::new(files.directory), number))
}

/// Bytes added to a fixed stack: two superpages of the usual size.
const SUPERPAGE_SLACK: u64 = 4 << 20;

fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "; its interpreter or loader is missing",
        Some(libc::EACCES) => "; it, or a directory above it, may not be executed by you",
        Some(libc::E2BIG) => "; its arguments and environment are too long",
        _ => "",
    }
}
