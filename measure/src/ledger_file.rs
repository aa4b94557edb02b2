//! The ledger of one run: a file that the processes of the program add to, and what it says. Used by whoever starts
//! a program with libsuperpage.so in it.

use std::fs;
use std::io::Write;

use ledger::Totals;
use tempfile::NamedTempFile;

/// The file, gone when this is.
#[derive(Debug)]
pub struct LedgerFile(NamedTempFile);

impl LedgerFile {
    /// An empty one; `None` where no file can be made: then what the program got is not summed up.
    pub fn create() -> Option<Self> {
        let shared_memory = fs::metadata("/dev/shm").is_ok_and(|it| it.is_dir());
        let dir = if shared_memory { "/dev/shm".into() } else { std::env::temp_dir() };
        let mut file = tempfile::Builder::new().prefix("superpage-").tempfile_in(dir).ok()?;
        file.write_all(&ledger::empty()).ok()?;
        // A program may become another user before it executes the one that counts. All that others
        // could do to it is to add to the sums of one run.
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let _ = file.as_file().set_permissions(open_to_all);
        Some(Self(file))
    }

    /// How the program's processes learn of it.
    pub fn variable(&self) -> (String, String) {
        ("SUPERPAGE_LEDGER".to_string(), self.0.path().display().to_string())
    }

    /// What they added so far; `None` if it cannot be read.
    pub fn totals(&self) -> Option<Totals> {
        fs::read(self.0.path()).ok().and_then(|bytes| Totals::parse(&bytes))
    }
}
