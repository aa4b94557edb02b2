//! Where a trace is written: a file beside its name, which takes the name when all is written. Killed
//! half-way, a writer leaves the old file as it was.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::TraceError;

/// A file being written.
pub(crate) struct Output {
    /// What the caller calls it.
    pub path: PathBuf,
    to: To,
    replace: bool,
    /// Bytes so far.
    pub written: u64,
}

enum To {
    /// A file of its own, and the name that it takes.
    Beside(NamedTempFile, PathBuf),
    /// A device, or a pipe: nothing can be beside it.
    Through(File),
}

impl Output {
    /// Begins to write `path`. With `replace`, a file that is there goes when the new one is whole;
    /// without, it is an error, now and then.
    pub fn create(path: &Path, replace: bool) -> Result<Self, TraceError> {
        let io = |doing| TraceError::io(path, doing);
        let to = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let what = "a directory";
                return Err(TraceError::NotAFile { path: path.to_path_buf(), what });
            }
            Ok(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(path);
                To::Through(file.map_err(io("cannot be written"))?)
            }
            Ok(_) if !replace => return Err(TraceError::Exists { path: path.to_path_buf() }),
            Ok(_) => {
                // A link stays one: what it points to is replaced.
                let target = fs::canonicalize(path).map_err(io("cannot be found"))?;
                let file = beside(&target).map_err(io("cannot be written"))?;
                To::Beside(file, target)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = beside(path).map_err(io("cannot be written"))?;
                To::Beside(file, path.to_path_buf())
            }
            Err(error) => return Err(io("cannot be written")(error)),
        };
        Ok(Self { path: path.to_path_buf(), to, replace, written: 0 })
    }

    /// Writes to a file that needs no name; errors call it `path`.
    pub fn through(file: File, path: &Path) -> Self {
        let to = To::Through(file);
        Self { path: path.to_path_buf(), to, replace: true, written: 0 }
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let file: &mut dyn Write = match &mut self.to {
            To::Beside(file, _) => file,
            To::Through(file) => file,
        };
        file.write_all(bytes).map_err(TraceError::io(&self.path, "cannot be written"))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// The file takes its name.
    pub fn finish(self) -> Result<(), TraceError> {
        let Self { path, to, replace, .. } = self;
        let To::Beside(file, name) = to else { return Ok(()) };
        let io = |doing| TraceError::io(&path, doing);
        // Before the rename: after a crash of the machine the name must not stand for a hole.
        file.as_file().sync_all().map_err(io("cannot be written to disk"))?;
        let done = if replace { file.persist(&name) } else { file.persist_noclobber(&name) };
        match done {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(TraceError::Exists { path })
            }
            Err(error) => Err(io("cannot be given its name")(error.error)),
        }
    }
}

fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file name"));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        // What a file gets that a program creates; the umask takes from it.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}
