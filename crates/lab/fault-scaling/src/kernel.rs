//! `Kernel`: how faults are served, as a value: made from a design, or from a machine's own and patches.

use policy::FaultPath;
use policy::rules::{Locking, ResidentCount};
use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::{Scrub, Zeroing};

/// How one operating system serves the faults of one address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// What protects the mapping during a fault.
    pub map: MapLock,
    /// How an entry of a page table is filled.
    pub entries: Entries,
    /// How resident pages are counted.
    #[serde(with = "Counting")]
    pub rss: ResidentCount,
    /// Kind of spin lock.
    pub lock: Lock,
    /// Sequential faults map up to 2^this pages. 0: one page a fault.
    #[serde(skip_deserializing)]
    pub prefault: u32,
    /// Prezeroing of free memory.
    #[serde(skip_deserializing)]
    pub prezero: Option<Scrub>,
    /// Bytes that a fault maps. `None`: a base page.
    #[serde(skip_deserializing)]
    pub superpage: Option<ByteSize>,
}

/// Counting as designs specify it.
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
    /// The address space's reader-writer lock, held shared: one line in memory, written twice a fault.
    AddressSpace,
    /// The mapping's own (Linux since 6.4). Threads in one mapping share it all the same.
    Mapping,
}

/// How an entry of a page table is filled.
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
    /// Waiters on the holder's node first; of each other node only one looks, and rarely (Lameter's
    /// backoff locks; docs/sources/policies.md 3.8).
    Hierarchical,
}

impl Kernel {
    /// A kernel that serves faults so. What that does not say is the machine's: the kind of locks, and the number of
    /// running threads at which zeroing rests.
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

    /// Without the one lock there is nothing to count under: an atomic then, as Lameter's patches and
    /// the kernels with split locks have it (Linux 2.6.15, `add_mm_counter` in include/linux/sched.h).
    pub(super) fn counted(self) -> Self {
        let is_lost = self.rss == ResidentCount::Locked && self.entries != Entries::OneLock;
        Self { rss: if is_lost { ResidentCount::Atomic } else { self.rss }, ..self }
    }
}
