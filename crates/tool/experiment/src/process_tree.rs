//! Finds and ends the processes of a run.
//!
//! An experiment is the subreaper of its descendants: a program that daemonizes becomes our own child and stays part of
//! its run. Descendants that existed before the first run are neither watched nor ended. (In a shell,
//! `superpage … > >(tee log)` makes `tee` our child.)
//! See docs/decisions/compare.md#2.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use host::process::Stat;
use host::{Root, process};
use sys::wait::Usage;
use units::Pid;

/// Maximum wait for killed processes to disappear; a process in the middle of I/O may take long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The processes of a run.
#[derive(Clone, Debug)]
pub struct ProcessTree {
    root: Root,
    head: Pid,
    /// Descendants of `head` that existed before the first run, with their start times; `None` if `head`
    /// itself is a member.
    preexisting: Option<BTreeSet<(Pid, u64)>>,
}

/// Processes that a run left running.
#[derive(Clone, Debug, Default)]
pub struct Stragglers {
    /// Number of processes ended.
    pub ended: u32,
    /// Resource usage of these processes and of other orphans of the run.
    pub usage: Vec<Usage>,
    /// Processes that did not end.
    pub remaining: Vec<Pid>,
}

impl ProcessTree {
    /// Creates the tree of a child and its descendants.
    pub fn from_child(root: Root, child: Pid) -> Self {
        Self { root, head: child, preexisting: None }
    }

    /// Creates the tree of the descendants of one of our processes, without that process.
    pub fn below(root: Root, head: Pid) -> Self {
        Self { root, head, preexisting: Some(BTreeSet::new()) }
    }

    /// Creates the tree of this process's future descendants.
    pub fn below_us(root: Root) -> Self {
        let head = sys::param::own_pid();
        let below = process::tree(&root, head).into_iter().filter(|pid| *pid != head);
        let preexisting = below.filter_map(|pid| Some((pid, started(&root, pid)?))).collect();
        Self { root, head, preexisting: Some(preexisting) }
    }

    /// Returns the members that are alive.
    pub fn members(&self) -> Vec<Pid> {
        let processes = self.processes().into_iter();
        processes.filter(|(_, stat)| !stat.is_dead()).map(|(pid, _)| pid).collect()
    }

    /// Returns the current members, including zombies; parents before children.
    pub fn processes(&self) -> Vec<(Pid, Stat)> {
        let mut tree = process::tree_with_stat(&self.root, self.head);
        if let Some(preexisting) = &self.preexisting {
            tree.retain(|(pid, stat)| {
                *pid != self.head && !preexisting.contains(&(*pid, stat.start_ticks))
            });
        }
        tree
    }

    /// Ends every member, so that the next run has the machine to itself. Repeats, because the children of an ended
    /// member become ours.
    pub fn end(&self) -> Stragglers {
        let (began, own) = (Instant::now(), sys::param::own_pid());
        let mut done = Stragglers::default();
        let mut killed = BTreeSet::new();
        loop {
            while let Ok(Some((_, usage))) = sys::wait::reap_any() {
                done.usage.push(usage);
            }
            let (dead, live): (Vec<_>, Vec<_>) =
                self.processes().into_iter().partition(|(_, stat)| stat.is_dead());
            done.remaining = live.into_iter().map(|(pid, _)| pid).collect();
            // Reap zombies that are our children here: their usage belongs to the run.
            let is_waited_for = !dead.iter().any(|(_, stat)| stat.parent == own);
            let is_over = done.remaining.is_empty() && is_waited_for;
            if is_over || began.elapsed() > PATIENCE {
                return done;
            }
            for pid in &done.remaining {
                if sys::signal::send(*pid, libc::SIGKILL).is_ok() && killed.insert(*pid) {
                    done.ended += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn started(root: &Root, pid: Pid) -> Option<u64> {
    process::stat(root, pid).ok().map(|stat| stat.start_ticks)
}
