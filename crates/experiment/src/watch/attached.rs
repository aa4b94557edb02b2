//! Which processes of a run add to its counters.

use std::collections::BTreeMap;
use std::time::Instant;

use host::Root;
use units::Pid;

use crate::counters::Mark;

/// Which processes add to the run's counters.
pub(super) struct Attached {
    mark: Option<Mark>,
    processes: BTreeMap<Pid, Attachment>,
    /// Processes that executed another program and had not added to it before.
    left: usize,
}

struct Attachment {
    /// The command's name when its mappings were last read.
    name: String,
    since: Instant,
    read: Instant,
    is_attached: bool,
    /// How often in a row the library was in it, and the counters not.
    misses: u32,
}

/// One miss is a process that is about to attach.
const MISSES: u32 = 2;

impl Attached {
    pub(super) fn new(mark: Option<Mark>) -> Self {
        Self { mark, processes: BTreeMap::new(), left: 0 }
    }

    /// Mappings are read when a process is seen first or executed another program, and, farther and farther
    /// apart, until it is attached: the library may not be loaded yet.
    pub(super) fn note(&mut self, root: &Root, pid: Pid, name: &str) {
        let Some(mark) = &self.mark else { return };
        let now = Instant::now();
        if self.processes.get(&pid).is_some_and(|process| process.name != name) {
            let before = self.processes.remove(&pid);
            self.left += before.map_or(0, |before| usize::from(before.is_missing()));
        }
        let process = self.processes.entry(pid).or_insert_with(|| Attachment {
            name: name.to_string(),
            since: now,
            read: now,
            is_attached: false,
            misses: 0,
        });
        let is_first = process.read == now;
        let is_due = now - process.read >= process.read - process.since;
        if process.is_attached || !(is_first || is_due) {
            return;
        }
        let Ok(is_uncounted) = mark.is_uncounted(root, pid) else { return };
        process.read = now;
        process.is_attached = is_uncounted == Some(false);
        process.misses = if is_uncounted == Some(true) { process.misses + 1 } else { 0 };
    }

    /// How many have the library in them and do not add to the counters.
    pub(super) fn missing(&self) -> usize {
        let now = self.processes.values().filter(|process| process.is_missing()).count();
        now + self.left
    }
}

impl Attachment {
    fn is_missing(&self) -> bool {
        self.misses >= MISSES
    }
}
