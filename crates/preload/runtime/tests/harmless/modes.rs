//! The ways in which each case is run beside the native one, and whether this machine has them.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::common::{DIR, library};
use crate::programs;

/// Whose memory is backed, and by what.
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
    /// `--heap --mmap --stack 4M --pages thp`, and a report that cannot be written, which is said at the end
    K,
}

/// 4 GiB for the cases that run at a time; none is taken that is not used.
const PAGES: u64 = 2048;

impl Mode {
    fn is_pool(self) -> bool {
        matches!(self, Self::H | Self::S)
    }

    /// What the library is asked for.
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
            // On a machine as busy as one that runs tests, too.
            variables.push(("SUPERPAGE_PREZERO", "67108864,load=100000".to_string()));
            variables.push(("SUPERPAGE_PREFAULT", "67108864".to_string()));
        }
        variables
    }

    /// Makes sure that this machine has what it needs, until this process ends.
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

/// The machine's lock and its pools as they were found, with more pages allowed.
struct Machine {
    // Dropped first: put back while the lock is held.
    _found: testkit::PoolsAsFound,
    _lock: testkit::MachineLock,
}

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);

/// Takes the machine's lock and raises the pool's limit, once for all tests of this process: who takes
/// it anew for each waits for all others each time. Whether that could be done.
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
        // What others hold beyond the limit counts towards it.
        let surplus = std::fs::read_to_string(format!("{DIR}/surplus_hugepages")).ok()?;
        let limit = PAGES + surplus.trim().parse::<u64>().ok()?;
        std::fs::write(format!("{DIR}/nr_overcommit_hugepages"), limit.to_string()).ok()?;
        Some(machine)
    }
}

/// Why there may be none.
pub const NEEDS_MACHINE: &str = "needs root and hugetlb pages of 2 MiB";

/// A command without the library, however these tests were started.
pub fn natively(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SUPERPAGE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
    // The system's programs rather than scripts that look for them.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("/usr/bin:/bin:{path}"));
    // glibc's own messages to stderr, also where there is a terminal.
    command.env("LIBC_FATAL_STDERR_", "1").current_dir(env!("CARGO_TARGET_TMPDIR"));
    command
}

/// `LD_PRELOAD` for a mode, with what else is preloaded.
pub fn preload(also: Option<&Path>) -> String {
    let library = library();
    let paths = [Some(library.as_path()), also];
    let paths = paths.into_iter().flatten().map(|path| path.to_str().expect("a path in UTF-8"));
    paths.collect::<Vec<_>>().join(" ")
}
