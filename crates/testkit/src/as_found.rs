//! Settings of the machine that a test changes: put back when the test ends, also in a panic, and by another process
//! if the test is killed.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Settings as they were when this was made.
#[derive(Debug)]
pub struct AsFound {
    /// Files, and what they are to say again.
    settings: Vec<(PathBuf, String)>,
    _keeper: Keeper,
}

impl AsFound {
    /// Notes what these files say. Those that cannot be read are left out.
    pub fn note(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let read = |file: PathBuf| {
            let text = fs::read_to_string(&file).ok()?;
            // Of a choice, the one that is in force.
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

/// Every hugetlb pool as it was when this was made; put back when it is dropped, also in a panic.
#[derive(Debug)]
pub struct PoolsAsFound {
    /// Directory, persistent pages, overcommit limit.
    pools: Vec<(PathBuf, u64, u64)>,
    _keeper: Keeper,
}

impl PoolsAsFound {
    /// Notes the sizes and overcommit limits of all pools.
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

    /// Without surplus pages: written back, they would become persistent.
    fn read(dir: &Path) -> Option<(u64, u64)> {
        let number = |file: &str| {
            let text = fs::read_to_string(dir.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let persistent = number("nr_hugepages")?.checked_sub(number("surplus_hugepages")?)?;
        Some((persistent, number("nr_overcommit_hugepages")?))
    }

    /// Whether every pool is as it was.
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

/// A process that writes to files if this one is killed, which ends its input. A signal to the test's process group does not
/// reach it.
#[derive(Debug)]
struct Keeper(Option<Child>);

impl Keeper {
    /// None for who may not write them.
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
