//! Carrying a plan out: the child is started exactly as decided, or not at all.

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

/// Where the child's standard streams go.
#[derive(Debug)]
pub enum Streams {
    /// They are ours: a launcher.
    Inherit,
    /// No input; each output into a file of its own: an experiment.
    Into {
        /// Standard output.
        stdout: File,
        /// Standard error.
        stderr: File,
    },
}

/// How to start, beyond the plan.
#[derive(Debug)]
pub struct Start {
    /// Its streams.
    pub streams: Streams,
    /// Killed when we end, however we end.
    pub die_with_parent: bool,
    /// Further variables: padding that shifts the child's stack, as `(name, value)`.
    pub environment: Vec<(String, String)>,
    /// Where to start it; our own directory if `None`.
    pub directory: Option<PathBuf>,
    /// The CPUs it may run on; none: ours.
    pub cpus: Vec<usize>,
    /// A process group of its own, which ^C at the terminal does not reach.
    pub own_group: bool,
    /// Who it is to run as; ourselves if `None`.
    pub user: Option<User>,
}

impl Default for Start {
    /// As we are ourselves: our streams, our directory, no further variable.
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

/// Starts the child. It must be waited for with [`sys::wait`], which also says what it used.
///
/// # Errors
/// It cannot be executed.
pub fn start(plan: &Plan, how: Start) -> Result<Pid, LaunchError> {
    let (mut command, setup) = prepared(plan, how)?;
    sys::spawn::prepare(&mut command, setup);
    let child = command.spawn().map_err(|source| cannot_start(plan, source))?;
    Ok(Pid(child.id() as i32))
}

/// The same below a guard, which ends all that the child started too when we end, however we end. The guard is what
/// must be waited for.
///
/// # Errors
/// It cannot be executed.
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
    // Its lowest superpage begins at a multiple of its size, so up to one more is needed.
    let stack = plan.stack.map(|size| size.bytes().saturating_add(SUPERPAGE_SLACK));
    let descriptor = if plan.in_place { Some(files_for(&mut command)?) } else { None };
    let Start { die_with_parent, cpus, own_group, user, .. } = how;
    let setup = ChildSetup { thp, die_with_parent, stack, cpus, own_group, user, descriptor };
    Ok((command, setup))
}

/// A directory of files of superpages for the library in a command: its descriptor, and the number that it has there.
fn files_for(command: &mut Command) -> Result<(Arc<OwnedFd>, i32), LaunchError> {
    let files = sys::mount::superpage_files()?;
    let number = sys::spawn::high_descriptor();
    command.env(abi::environment::IN_PLACE, format!("{number}:{}:{}", files.device, files.inode));
    Ok((Arc::new(files.directory), number))
}

/// Two of the usual size.
const SUPERPAGE_SLACK: u64 = 4 << 20;

fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "; its interpreter or loader is missing",
        Some(libc::EACCES) => "; it, or a directory above it, may not be executed by you",
        Some(libc::E2BIG) => "; its arguments and environment are too long",
        _ => "",
    }
}
