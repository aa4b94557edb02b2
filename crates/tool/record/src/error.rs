//! Why a program cannot be recorded, each in one line: what, on what, remedy.

use std::io;
use std::path::PathBuf;

use trace::TraceError;

/// A recording that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Programs of other architectures than x86-64 are not recorded.
    #[error("recording needs an x86-64 machine; record there, and copy the trace")]
    ThisMachine,
    /// QEMU is not installed.
    #[error("qemu-x86_64 was not found in PATH; install it: apt-get install qemu-user")]
    NoQemu,
    /// QEMU is there and cannot be used.
    #[error("{}: {what}; install Debian's: apt-get install qemu-user", path.display())]
    BadQemu {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// There is no C compiler.
    #[error(
        "no C compiler `cc` was found in PATH to build the QEMU plugin; install one: apt-get install \
         gcc libc6-dev"
    )]
    NoCompiler,
    /// The C compiler failed.
    #[error(
        "{} could not build the QEMU plugin: {said}; install what is missing: apt-get install gcc \
         libc6-dev", path.display()
    )]
    Compiler {
        /// The compiler.
        path: PathBuf,
        /// Its first line.
        said: String,
    },
    /// Somebody else could put code where the plugin is kept.
    #[error(
        "{}: {what}, so others could change the QEMU plugin; fix that, or set XDG_CACHE_HOME to a \
         directory of your own", path.display()
    )]
    Untrusted {
        /// The directory or file.
        path: PathBuf,
        /// Whose it is, or who may write it.
        what: String,
    },
    /// The program is none that QEMU's x86-64 runs.
    #[error("{}: {what}; only 64-bit x86 programs can be recorded; {remedy}", path.display())]
    Foreign {
        /// The program.
        path: PathBuf,
        /// What it is.
        what: String,
        /// What helps.
        remedy: &'static str,
    },
    /// A file or a process.
    #[error("{}: {doing}: {source}{remedy}", path.display())]
    Io {
        /// What it was done to.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// Its answer.
        source: io::Error,
        /// What helps, after a semicolon; or nothing.
        remedy: &'static str,
    },
    /// Nothing was ever heard of the plugin.
    #[error(
        "{}: QEMU ended ({status}) before the program started; see its message above; is the program's \
         loader installed?", path.display()
    )]
    Silent {
        /// The program.
        path: PathBuf,
        /// How QEMU ended.
        status: String,
    },
    /// The plugin said something that cannot be; a newer or older one than this.
    #[error("the recorder's plugin sent {what}; remove {} and try again", plugin.display())]
    Garbled {
        /// What was wrong.
        what: String,
        /// The plugin.
        plugin: PathBuf,
    },
    /// The kernel does not let us see page faults.
    #[error("page faults cannot be recorded: {what}; {remedy}")]
    NoFaults {
        /// What was refused, and by whom.
        what: String,
        /// What helps.
        remedy: &'static str,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl RecordError {
    /// Whether this machine, or this user on it, cannot; otherwise the request was wrong.
    pub fn is_cannot(&self) -> bool {
        matches!(
            self,
            Self::ThisMachine
                | Self::NoQemu
                | Self::BadQemu { .. }
                | Self::NoCompiler
                | Self::Compiler { .. }
                | Self::Untrusted { .. }
                | Self::NoFaults { .. }
        )
    }

    /// An operation on a file that failed.
    pub(crate) fn io(path: &std::path::Path, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), doing, source, remedy: "" }
    }
}

impl From<sys::trust::Untrusted> for RecordError {
    fn from(sys::trust::Untrusted { path, what }: sys::trust::Untrusted) -> Self {
        Self::Untrusted { path, what }
    }
}
