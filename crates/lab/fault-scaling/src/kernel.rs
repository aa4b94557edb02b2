//! `Kernel`: how faults are served. Built from a design, or from a machine's kernel and patches.

use policy::FaultPath;
use policy::rules::{Locking, ResidentCount};
use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::{Scrub, Zeroing};

/// How a kernel serves the faults of one address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// What protects the mapping during a fault.
    pub map: MapLock,
    /// How a page-table entry is filled.
    pub entries: Entries,
    /// How resident pages are counted.
    #[serde(with = "Counting")]
    pub rss: ResidentCount,
    /// Kind of spin lock.
    pub lock: Lock,
    /// Sequential faults map up to 2^`prefault` pages; 0: one page for each fault.
    #[serde(skip_deserializing)]
    pub prefault: u32,
    /// Prezeroing of free memory.
    #[serde(skip_deserializing)]
    pub prezero: Option<Scrub>,
    /// Bytes that a fault maps. `None`: a base page.
    #[serde(skip_deserializing)]
    pub superpage: Option<ByteSize>,
}

/// Serialized form of `ResidentCount`, as in designs.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ResidentCount", rename_all = "kebab-case")]
enum Counting {
    Locked,
    Atomic,
    Split,
    OnDemand,
}

/// What protects the mapping during a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapLock {
    /// The address space's reader-writer lock, held shared: each fault writes its cache line twice.
    AddressSpace,
    /// The lock of the mapping (Linux since 6.4). Threads that fault in one mapping still share it.
    Mapping,
}

/// How a page-table entry is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entries {
    /// Under one lock for all page tables.
    OneLock,
    /// Under a lock per page-table page.
    LockPerTable,
    /// By compare-and-exchange, lock-free (Lameter).
    Atomic,
}

/// The kind of a spin lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lock {
    /// Test-and-set: all waiters reread the word at each release, and one of them wins.
    TestAndSet,
    /// Ticket: in order of arrival; all waiters reread the word at each release.
    Ticket,
    /// Queued: in order of arrival; each waiter spins on its own word (MCS).
    Queued,
    /// Hierarchical: waiters on the holder's node first. Of each other node only one waiter polls, and rarely
    /// (Lameter's backoff locks; docs/sources/policies.md 3.8).
    Hierarchical,
}

impl Kernel {
    /// Creates a kernel from a design's fault path. The machine gives the rest: the kind of locks, and the number of
    /// running threads at which zeroing pauses.
    pub fn new(path: &FaultPath, machine: &super::Machine) -> Self {
        let (map, entries) = match path.locking {
            Locking::PageTable => (MapLock::AddressSpace, Entries::OneLock),
            Locking::SplitPageTable => (MapLock::AddressSpace, Entries::LockPerTable),
            Locking::AtomicEntries => (MapLock::AddressSpace, Entries::Atomic),
            Locking::PerVma => (MapLock::Mapping, Entries::LockPerTable),
        };
        let prezero = path.prezero.map(|(start_permille, stop_permille, order)| Scrub {
            start_permille,
            stop_permille,
            order,
            stop_order: order,
            load: machine.scrub.load,
            by: Zeroing::Cpu,
        });
        let FaultPath { resident: rss, superpage, .. } = *path;
        let (prefault, lock) = (u32::from(path.prefault), machine.kernel.lock);
        Self { map, entries, rss, lock, prefault, prezero, superpage }.counted()
    }

    /// Counts resident pages with an atomic if no single page-table lock protects the count. Lameter's patches and the
    /// kernels with split locks do so (Linux 2.6.15, `add_mm_counter` in include/linux/sched.h).
    pub(super) fn counted(self) -> Self {
        let is_lost = self.rss == ResidentCount::Locked && self.entries != Entries::OneLock;
        Self { rss: if is_lost { ResidentCount::Atomic } else { self.rss }, ..self }
    }
}
