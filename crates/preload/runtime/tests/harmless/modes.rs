//! The modes in which each case is compared with the native run, and what each mode needs of this machine.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::common::{DIR, library};
use crate::programs;

/// Which memory is backed, and on which pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `--heap --mmap --pages thp`
    T,
    /// The same with `--prezero --prefault`
    P,
    /// `--heap --mmap --pages hugetlb`
    H,
    /// The same with `--shm`
    S,
    /// `--heap --mmap --stack 4M --pages thp`, and a report that cannot be written, about which the library prints a
    /// message at the end
    K,
}

/// 4 GiB, for the cases that run at the same time. Pages that are not used are not taken from memory.
const PAGES: u64 = 2048;

impl Mode {
    fn is_pool(self) -> bool {
        matches!(self, Self::H | Self::S)
    }

    /// Returns the library's settings for this mode.
    pub fn variables(self) -> Vec<(&'static str, String)> {
        let pages = if self.is_pool() { "hugetlb:2097152" } else { "thp" };
        let memory = match self {
            Self::S => "heap,mmap,shm",
            Self::K => "heap,mmap,stack=4194304",
            _ => "heap,mmap",
        };
        let mut variables = vec![
            ("SUPERPAGE_PAGES", pages.to_string()),
            ("SUPERPAGE_MEMORY", memory.to_string()),
            ("SUPERPAGE_FALLBACK", "thp".to_string()),
        ];
        if self == Self::K {
            variables.push(("SUPERPAGE_REPORT", "json:/proc/none/report".to_string()));
        }
        if self == Self::P {
            // Memory is also prepared on a busy machine, such as one that runs tests.
            variables.push(("SUPERPAGE_PREZERO", "67108864,load=100000".to_string()));
            variables.push(("SUPERPAGE_PREFAULT", "67108864".to_string()));
        }
        variables
    }

    /// Ensures for the life of this process that this machine has what the mode needs. An error says what is missing.
    ///
    /// # Errors
    /// Why it has not.
    pub fn prepare(self) -> Result<(), &'static str> {
        let chosen = std::env::var("SUPERPAGE_TEST_MODES").ok();
        if chosen.is_some_and(|chosen| !chosen.contains(&format!("{self:?}"))) {
            return Err("not among SUPERPAGE_TEST_MODES");
        }
        if !self.is_pool() {
            return if programs::has_thp() { Ok(()) } else { Err("THP of 2 MiB are off") };
        }
        has_machine().then_some(()).ok_or(NEEDS_MACHINE)
    }
}

/// The machine's lock and the pools as they were, with more pages allowed.
struct Machine {
    // Declared first, so that it is dropped first: the pools are restored while the lock is held.
    _found: testkit::PoolsAsFound,
    _lock: testkit::MachineLock,
}

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);

/// Takes the machine's lock and raises the pool's limit, once for all tests of this process: taking the lock for each
/// test would wait for all other tests each time. Returns whether that succeeded.
pub fn has_machine() -> bool {
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if machine.is_none() {
        *machine = Machine::new();
        if machine.is_some() {
            // SAFETY: a function of this program; the test harness ends by `exit`, also on failure.
            unsafe { libc::atexit(put_back) };
        }
    }
    machine.is_some()
}

extern "C" fn put_back() {
    drop(MACHINE.lock().unwrap_or_else(PoisonError::into_inner).take());
}

impl Machine {
    fn new() -> Option<Self> {
        if !testkit::is_root() || !Path::new(DIR).exists() {
            return None;
        }
        let lock = testkit::machine_lock()?;
        let machine = Self { _found: testkit::PoolsAsFound::note(), _lock: lock };
        // Surplus pages of others count towards the limit.
        let surplus = std::fs::read_to_string(format!("{DIR}/surplus_hugepages")).ok()?;
        let limit = PAGES + surplus.trim().parse::<u64>().ok()?;
        std::fs::write(format!("{DIR}/nr_overcommit_hugepages"), limit.to_string()).ok()?;
        Some(machine)
    }
}

/// Why the machine may not be available.
pub const NEEDS_MACHINE: &str = "needs root and hugetlb pages of 2 MiB";

/// Returns a command without the library, whatever the environment of these tests.
pub fn natively(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SUPERPAGE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
    // The system's programs come first in PATH, before scripts that start other versions.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("/usr/bin:/bin:{path}"));
    // Lets glibc write its messages to stderr even if there is a terminal.
    command.env("LIBC_FATAL_STDERR_", "1").current_dir(env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Returns `LD_PRELOAD` for a mode, including another preloaded library.
pub fn preload(also: Option<&Path>) -> String {
    let library = library();
    let paths = [Some(library.as_path()), also];
    let paths = paths.into_iter().flatten().map(|path| path.to_str().expect("a path in UTF-8"));
    paths.collect::<Vec<_>>().join(" ")
}
