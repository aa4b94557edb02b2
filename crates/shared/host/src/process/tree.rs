//! A process and its live descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use units::Pid;

use super::stat::{Stat, stat};
use crate::{ReadError, Root};

/// `pid` and all its live descendants, `pid` first, parents before children. Omits exited processes and zombies; the
/// list is empty if `pid` does not exist. Misses children whose parent exited, because the kernel gives them to the
/// nearest subreaper.
pub fn tree(root: &Root, pid: Pid) -> Vec<Pid> {
    let processes = tree_with_stat(root, pid).into_iter();
    processes.filter(|(_, stat)| !stat.is_dead()).map(|(pid, _)| pid).collect()
}

/// Returns the tree with each process's stat. Includes zombies.
pub fn tree_with_stat(root: &Root, pid: Pid) -> Vec<(Pid, Stat)> {
    if stat(root, pid).is_err() {
        return Vec::new();
    }
    let has_children_files = root
        .list(&format!("/proc/{pid}/task"))
        .unwrap_or_default()
        .iter()
        .any(|task| root.path(&format!("/proc/{pid}/task/{task}/children")).exists());
    if has_children_files {
        descend(pid, |parent| children(root, parent), |pid| stat(root, pid).ok())
    } else {
        // Without CONFIG_PROC_CHILDREN, read the parent of every process.
        let (by_parent, mut stats) = all_processes(root);
        let children = |parent| by_parent.get(&parent).cloned().unwrap_or_default();
        descend(pid, children, |pid| stats.remove(&pid))
    }
}

/// Parses the fifth field of `/proc/loadavg`: the most recent pid.
pub(super) fn parse_newest(text: &str, path: &Path) -> Result<Pid, ReadError> {
    let pid = text.split_ascii_whitespace().nth(4).and_then(|pid| pid.parse().ok());
    let bad = || ReadError::malformed(path, 1, text.trim_end(), "a pid in field 5");
    pid.map(Pid).ok_or_else(bad)
}

/// Parses the number of running threads from the field `2/612`.
pub(super) fn parse_running(text: &str, path: &Path) -> Result<u64, ReadError> {
    let threads = text.split_ascii_whitespace().nth(3).and_then(|field| field.split_once('/'));
    let running = threads.and_then(|(running, _)| running.parse().ok());
    running.ok_or_else(|| {
        ReadError::malformed(path, 1, text.trim_end(), "threads that run, and all, in field 4")
    })
}

/// Breadth first. Visits each pid once, so that reused pids cannot form a cycle.
fn descend(
    first: Pid,
    children: impl Fn(Pid) -> Vec<Pid>,
    mut stat: impl FnMut(Pid) -> Option<Stat>,
) -> Vec<(Pid, Stat)> {
    let mut seen = BTreeSet::from([first]);
    let mut order = vec![first];
    let mut next = 0;
    while let Some(parent) = order.get(next).copied() {
        order.extend(children(parent).into_iter().filter(|child| seen.insert(*child)));
        next += 1;
    }
    order.into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

fn children(root: &Root, parent: Pid) -> Vec<Pid> {
    let tasks = root.list(&format!("/proc/{parent}/task")).unwrap_or_default();
    let files = tasks.iter().map(|task| format!("/proc/{parent}/task/{task}/children"));
    let texts = files.filter_map(|file| root.read(&file).ok());
    let pids = |text: String| -> Vec<Pid> {
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().map(Pid)).collect()
    };
    texts.flat_map(pids).collect()
}

/// Every process in `/proc`, lowest pid first.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn pids(root: &Root) -> Result<Vec<Pid>, ReadError> {
    let names = root.list("/proc")?;
    let mut pids: Vec<Pid> = names.iter().filter_map(|name| name.parse().ok().map(Pid)).collect();
    pids.sort_unstable();
    Ok(pids)
}

fn all_processes(root: &Root) -> (BTreeMap<Pid, Vec<Pid>>, BTreeMap<Pid, Stat>) {
    let mut by_parent: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    let mut stats = BTreeMap::new();
    for pid in pids(root).unwrap_or_default() {
        let Ok(stat) = stat(root, pid) else { continue };
        by_parent.entry(stat.parent).or_default().push(pid);
        stats.insert(pid, stat);
    }
    (by_parent, stats)
}
