//! What files and the boot loader ask for: sysctl.d, the kernel command line, and files that set the THP mode at boot.

use std::collections::BTreeMap;

use host::Root;
use units::{ByteSize, PageSize};

use crate::facts::{Fact, Missing};

/// A setting in sysctl.d.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlLine {
    /// The file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The key with dots, such as `vm.nr_hugepages`.
    pub key: String,
    /// The value as written.
    pub value: String,
    /// Whether this kernel has the setting.
    pub is_there: bool,
}

/// Directories of sysctl.d(5), the first has precedence: its file hides those of the same name in later ones.
const SYSCTL_DIRS: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];

/// Reads sysctl.d and `/etc/sysctl.conf` in the order in which they are applied: by file name, `sysctl.conf` last.
pub(crate) fn sysctl(root: &Root) -> Fact<Vec<SysctlLine>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for dir in SYSCTL_DIRS {
        match root.list(dir) {
            Ok(names) => {
                for name in names.into_iter().filter(|name| name.ends_with(".conf")) {
                    files.entry(name.clone()).or_insert_with(|| format!("{dir}/{name}"));
                }
            }
            Err(error) if error.is_gone() => {}
            Err(error) => return Fact::missing(dir, Missing::from(error)),
        }
    }
    let files = files.into_values().chain(["/etc/sysctl.conf".to_string()]);
    let mut lines = Vec::new();
    for file in files {
        let text = match small_file(root, &file) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(why) => return Fact::missing(file, why),
        };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            // sysctl(8): a leading `-` ignores errors. Slashes may stand for dots.
            let key = key.trim().trim_start_matches('-').replace('/', ".");
            let setting = root.path(&format!("/proc/sys/{}", key.replace('.', "/")));
            let is_there = !key.contains("..") && setting.symlink_metadata().is_ok();
            let (line, value) = (index + 1, value.trim().to_string());
            lines.push(SysctlLine { file: file.clone(), line, key, value, is_there });
        }
    }
    Fact::known("/etc/sysctl.d", lines)
}

/// Reads a regular file; `None`: there is none, or it is a device such as `/dev/null`, which masks a file.
fn small_file(root: &Root, file: &str) -> Result<Option<String>, Missing> {
    match root.read_regular(file) {
        Ok(text) => Ok(text),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The words of the kernel command line about superpages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootLine {
    /// `transparent_hugepage=`; the last one counts.
    pub thp: Option<String>,
    /// Pages asked for by `hugepages=`, by page size; `None` as the size: the default size. A word with nodes
    /// (`0:1,1:2`) counts the sum.
    pub pools: Vec<(Option<PageSize>, u64)>,
}

impl BootLine {
    /// Parses a command line. Words after `--` are for init.
    pub fn parse(text: &str) -> Self {
        let mut line = Self::default();
        let mut size = None;
        for word in text.split_ascii_whitespace().take_while(|word| *word != "--") {
            let Some((key, value)) = word.split_once('=') else { continue };
            let page =
                || value.parse::<ByteSize>().ok().and_then(|it| PageSize::new(it.bytes()).ok());
            match key {
                "transparent_hugepage" => line.thp = Some(value.to_string()),
                "hugepagesz" => size = page(),
                "hugepages" => {
                    let pages = value.split(',').map(|part| {
                        let (_, pages) = part.split_once(':').unwrap_or(("", part));
                        pages.parse::<u64>().unwrap_or(0)
                    });
                    line.pools.push((size, pages.fold(0, u64::saturating_add)));
                }
                _ => {}
            }
        }
        line
    }
}

/// A file that sets the THP mode at boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setter {
    /// Which program applies the file.
    pub kind: SetterKind,
    /// The file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The mode: `always`, `madvise` or `never`.
    pub mode: String,
}

/// The program that applies a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetterKind {
    /// An enabled systemd unit; has its name.
    Unit(String),
    /// The active TuneD profile; has its name.
    Tuned(String),
    /// systemd-tmpfiles.
    Tmpfiles,
    /// A script that runs at boot.
    Script,
}

const UNITS: &str = "/etc/systemd/system";
const SCRIPTS: [&str; 2] = ["/etc/rc.local", "/etc/rc.d/rc.local"];

/// Finds files that set the THP mode at boot: enabled units in `/etc/systemd/system`, the active TuneD profile,
/// tmpfiles.d and rc.local. Files that cannot be read are skipped: none of them is the only place where a mode can be set.
pub(crate) fn setters(root: &Root) -> Vec<Setter> {
    let mut found = Vec::new();
    let names = root.list(UNITS).unwrap_or_default();
    let wants: Vec<&String> = names
        .iter()
        .filter(|name| name.ends_with(".wants") || name.ends_with(".requires"))
        .collect();
    for name in names.iter().filter(|name| name.ends_with(".service")) {
        let link = |dir: &String| root.path(&format!("{UNITS}/{dir}/{name}")).symlink_metadata();
        if wants.iter().any(|dir| link(dir).is_ok()) {
            let kind = SetterKind::Unit(name.clone());
            found.extend(set_in(root, &kind, &format!("{UNITS}/{name}")));
        }
    }
    found.extend(tuned(root));
    for dir in ["/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d"] {
        for name in root.list(dir).unwrap_or_default() {
            found.extend(set_in(root, &SetterKind::Tmpfiles, &format!("{dir}/{name}")));
        }
    }
    for file in SCRIPTS {
        found.extend(set_in(root, &SetterKind::Script, file));
    }
    found
}

/// The lines of a file that name the THP directory's `enabled` and a mode.
fn set_in(root: &Root, kind: &SetterKind, file: &str) -> Vec<Setter> {
    let Ok(Some(text)) = small_file(root, file) else { return Vec::new() };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'));
    let set = lines.filter_map(|(index, line)| {
        line.contains("transparent_hugepage/enabled").then_some(())?;
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        let mode = words.find(|word| ["always", "madvise", "never"].contains(word))?;
        let (kind, text, mode) = (kind.clone(), line.trim().to_string(), mode.to_string());
        Some(Setter { kind, file: file.to_string(), line: index + 1, text, mode })
    });
    set.collect()
}

/// Where TuneD has its profiles; version 2.23 moved them below `profiles`.
const PROFILES: [&str; 4] =
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];

/// The THP mode of the active TuneD profile, or of a profile that it includes.
fn tuned(root: &Root) -> Vec<Setter> {
    let active = small_file(root, "/etc/tuned/active_profile").ok().flatten().unwrap_or_default();
    let active = active.split_ascii_whitespace();
    active.filter_map(|profile| of_profile(root, profile, profile, 8)).collect()
}

fn of_profile(root: &Root, active: &str, profile: &str, depth: usize) -> Option<Setter> {
    if profile.contains('/') || profile.starts_with('.') {
        return None;
    }
    let files = PROFILES.iter().map(|dir| format!("{dir}/{profile}/tuned.conf"));
    let (text, file) =
        files.filter_map(|file| Some((small_file(root, &file).ok()??, file))).next()?;
    let mut include = None;
    for (index, line) in text.lines().enumerate() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key.trim() {
            "transparent_hugepages" | "transparent_hugepage" => {
                return Some(Setter {
                    kind: SetterKind::Tuned(active.to_string()),
                    file,
                    line: index + 1,
                    text: line.trim().to_string(),
                    mode: value.trim().to_string(),
                });
            }
            "include" => include = Some(value.trim().to_string()),
            _ => {}
        }
    }
    let include = include.filter(|_| depth > 0)?;
    include.split(',').find_map(|one| of_profile(root, active, one.trim(), depth - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_two_dashes_are_for_init() {
        let text = "quiet transparent_hugepage=never hugepages=4 hugepagesz=1G hugepages=0:1,1:2 -- \
                    transparent_hugepage=always\n";
        let line = BootLine::parse(text);
        assert_eq!(line.thp.as_deref(), Some("never"));
        assert_eq!(line.pools, [(None, 4), (PageSize::new(1 << 30).ok(), 3)]);
    }
}
