//! Machine settings that a test changes. They are restored when the test ends, also after a panic; if the test is
//! killed, another process restores them.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Settings to restore on drop.
#[derive(Debug)]
pub struct AsFound {
    /// Files, and the text to write back.
    settings: Vec<(PathBuf, String)>,
    _keeper: Keeper,
}

impl AsFound {
    /// Saves the current contents of these files. Skips files that cannot be read.
    pub fn note(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let read = |file: PathBuf| {
            let text = fs::read_to_string(&file).ok()?;
            // For `a [b] c`, take the selected word.
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(text.trim()).to_string();
            Some((file, chosen))
        };
        let settings: Vec<_> = files.into_iter().filter_map(|file| read(file.into())).collect();
        let _keeper = Keeper::of(settings.iter().cloned());
        Self { settings, _keeper }
    }
}

impl Drop for AsFound {
    fn drop(&mut self) {
        for (file, text) in &self.settings {
            let _ = fs::write(file, text);
        }
    }
}

/// The state of every hugetlb pool, restored on drop, also after a panic.
#[derive(Debug)]
pub struct PoolsAsFound {
    /// Directory, number of persistent pages, and overcommit limit of each pool.
    pools: Vec<(PathBuf, u64, u64)>,
    _keeper: Keeper,
}

impl PoolsAsFound {
    /// Saves the sizes and overcommit limits of all pools.
    pub fn note() -> Self {
        let dirs = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
        let pools = dirs.filter_map(|dir| {
            let (persistent, overcommit) = Self::read(&dir.path())?;
            Some((dir.path(), persistent, overcommit))
        });
        let pools: Vec<_> = pools.collect();
        let settings = pools.iter().flat_map(|(dir, persistent, overcommit)| {
            [("nr_hugepages", persistent), ("nr_overcommit_hugepages", overcommit)]
                .map(|(file, value)| (dir.join(file), value.to_string()))
        });
        let _keeper = Keeper::of(settings);
        Self { pools, _keeper }
    }

    /// Reads the number of persistent pages and the overcommit limit. Surplus pages are not
    /// included, because writing them back would make them persistent.
    fn read(dir: &Path) -> Option<(u64, u64)> {
        let number = |file: &str| {
            let text = fs::read_to_string(dir.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let persistent = number("nr_hugepages")?.checked_sub(number("surplus_hugepages")?)?;
        Some((persistent, number("nr_overcommit_hugepages")?))
    }

    /// Whether every pool has its saved state.
    pub fn is_intact(&self) -> bool {
        self.pools.iter().all(|(dir, persistent, overcommit)| {
            Self::read(dir) == Some((*persistent, *overcommit))
        })
    }
}

impl Drop for PoolsAsFound {
    fn drop(&mut self) {
        for (dir, persistent, overcommit) in &self.pools {
            let now = Self::read(dir);
            if now.is_none_or(|(now, _)| now != *persistent) {
                let _ = fs::write(dir.join("nr_hugepages"), persistent.to_string());
            }
            if now.is_none_or(|(_, now)| now != *overcommit) {
                let _ = fs::write(dir.join("nr_overcommit_hugepages"), overcommit.to_string());
            }
        }
    }
}

/// A process that restores files if the test is killed, which closes the process's standard input. The process is in
/// its own process group, so signals to the test's group do not reach it.
#[derive(Debug)]
struct Keeper(Option<Child>);

impl Keeper {
    /// Starts no process unless this user is root, because other users cannot change the files.
    fn of(settings: impl Iterator<Item = (PathBuf, String)>) -> Self {
        let script = r#"read -r word; [ "$word" = done ] && exit
            while [ $# -gt 1 ]; do printf %s "$2" > "$1"; shift 2; done"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        for (file, text) in settings {
            command.arg(file).arg(text);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(crate::is_root().then(|| command.spawn().expect("sh starts")))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let told = child.stdin.take().map(|mut input| input.write_all(b"done\n"));
            let ended = child.wait();
            if !std::thread::panicking() {
                assert!(told.is_some_and(|it| it.is_ok()) && ended.is_ok(), "its keeper is gone");
            }
        }
    }
}
