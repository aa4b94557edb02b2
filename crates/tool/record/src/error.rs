//! Why a program cannot be recorded, as one-line errors: operation, object, remedy.

use std::io;
use std::path::PathBuf;

use trace::TraceError;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Recording needs an x86-64 machine.
    #[error("recording needs an x86-64 machine; record there, and copy the trace")]
    ThisMachine,
    /// QEMU is not installed.
    #[error("qemu-x86_64 was not found in PATH; install it: apt-get install qemu-user")]
    NoQemu,
    /// QEMU is installed but unusable.
    #[error("{}: {what}; install Debian's: apt-get install qemu-user", path.display())]
    BadQemu {
        /// The file.
        path: PathBuf,
        /// Its defect.
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
        /// The first line of its output.
        said: String,
    },
    /// Another user could replace the plugin.
    #[error(
        "{}: {what}, so others could change the QEMU plugin; fix that, or set XDG_CACHE_HOME to a \
         directory of your own", path.display()
    )]
    Untrusted {
        /// The directory or file.
        path: PathBuf,
        /// The owner, or the write permission that is too wide.
        what: String,
    },
    /// The file is not a program for x86-64.
    #[error("{}: {what}; only 64-bit x86 programs can be recorded; {remedy}", path.display())]
    Foreign {
        /// The program.
        path: PathBuf,
        /// Kind of the file.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// An operation on a file or process failed.
    #[error("{}: {doing}: {source}{remedy}", path.display())]
    Io {
        /// The file or program.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The error.
        source: io::Error,
        /// The remedy, after a semicolon; or empty.
        remedy: &'static str,
    },
    /// The plugin never sent a frame.
    #[error(
        "{}: QEMU ended ({status}) before the program started; see its message above; is the program's \
         loader installed?", path.display()
    )]
    Silent {
        /// The program.
        path: PathBuf,
        /// QEMU's exit status.
        status: String,
    },
    /// The plugin sent an invalid frame; it may be of another version.
    #[error("the recorder's plugin sent {what}; remove {} and try again", plugin.display())]
    Garbled {
        /// The invalid frame.
        what: String,
        /// Path of the plugin.
        plugin: PathBuf,
    },
    /// The kernel does not permit recording page faults.
    #[error("page faults cannot be recorded: {what}; {remedy}")]
    NoFaults {
        /// What was refused, and why.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl RecordError {
    /// Whether this machine or user lacks a prerequisite, as opposed to an invalid request.
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

    /// Makes an error for a failed operation on a file.
    pub(crate) fn io(path: &std::path::Path, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), doing, source, remedy: "" }
    }
}

impl From<sys::trust::Untrusted> for RecordError {
    fn from(sys::trust::Untrusted { path, what }: sys::trust::Untrusted) -> Self {
        Self::Untrusted { path, what }
    }
}
