//! `Server`: a resource that one CPU has at a time, with its queue of waiting CPUs: a lock, or a cache line that atomic
//! instructions change.
//!
//! ```text
//! idle --arrive--> busy (until the time that `serve` returns) --leave--> idle, or busy for the next CPU
//! ```
//!
//! Between events a server has no other state, so comparing servers suffices to detect periods.

use std::collections::VecDeque;

use super::Lock;
use super::prices::{Prices, Service, Waiting};

/// Kind of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A cache line that atomic instructions change.
    Line,
    /// The lock of one page-table page, or of all page tables.
    TableLock,
    /// The lock of a node's free list.
    ListLock,
}

#[derive(Debug, Clone)]
pub(super) struct Server {
    kind: Kind,
    /// The last CPU that had the server.
    owner: Option<u32>,
    is_busy: bool,
    /// Waiting CPUs, in order of arrival.
    queue: VecDeque<u32>,
    /// Consecutive turns on one node while other nodes waited (hierarchical locks only).
    stayed: u32,
}

/// Maximum number of consecutive turns of a hierarchical lock on one node while other nodes wait. Then the waiting
/// nodes "get angry" and stop the CPUs of the favoured node (docs/sources/policies.md 3.8).
const PATIENCE: u32 = 50;

impl Server {
    pub fn new(kind: Kind) -> Self {
        Self { kind, owner: None, is_busy: false, queue: VecDeque::new(), stayed: 0 }
    }

    /// Returns the server's kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Resets the server to idle, with the first thread as its last owner.
    pub fn reset(&mut self) {
        *self = Self { owner: Some(0), ..Self::new(self.kind) };
    }

    /// Requests the server for a CPU, which holds a lock for the time `hold` (0 for lines), while `beside` CPUs wait
    /// for the other lock in the same line. Returns `None` if the CPU is queued.
    pub fn arrive(
        &mut self,
        cpu: u32,
        hold: u64,
        beside: usize,
        prices: &Prices,
    ) -> Option<Service> {
        if self.is_busy {
            self.queue.push_back(cpu);
            return None;
        }
        let service = self.serve(cpu, hold, beside, prices);
        // A request that takes no time leaves the server idle.
        self.is_busy = service.busy > 0;
        if !self.is_busy {
            self.owner = Some(cpu);
        }
        Some(service)
    }

    /// Releases the server. Returns the next CPU, if any waits.
    pub fn leave(&mut self, cpu: u32, prices: &Prices) -> Option<u32> {
        self.owner = Some(cpu);
        self.is_busy = false;
        match self.choose(cpu, prices)? {
            0 => self.queue.pop_front(),
            place => self.queue.remove(place),
        }
    }

    /// Passes the server to the next CPU. Returns the cost of its turn.
    pub fn pass(&mut self, cpu: u32, hold: u64, beside: usize, prices: &Prices) -> Service {
        self.is_busy = true;
        self.serve(cpu, hold, beside, prices)
    }

    /// Returns the queue index of the next CPU.
    fn choose(&mut self, cpu: u32, prices: &Prices) -> Option<usize> {
        if self.queue.is_empty() {
            self.stayed = 0;
            return None;
        }
        if self.kind == Kind::Line || prices.kernel.lock != Lock::Hierarchical {
            return Some(0);
        }
        let node = prices.node(cpu);
        let near = self.queue.iter().position(|other| prices.node(*other) == node);
        let far = self.queue.iter().position(|other| prices.node(*other) != node);
        match (near, far) {
            (Some(near), Some(_)) if self.stayed < PATIENCE => {
                self.stayed += 1;
                Some(near)
            }
            (Some(near), None) => Some(near),
            (_, far) => {
                self.stayed = 0;
                far
            }
        }
    }

    fn serve(&self, cpu: u32, hold: u64, beside: usize, prices: &Prices) -> Service {
        if self.kind == Kind::Line {
            return prices.atomic(self.owner, cpu, self.queue.len() + beside);
        }
        let near = match prices.kernel.lock {
            Lock::Hierarchical => {
                let node = prices.node(cpu);
                self.queue.iter().filter(|other| prices.node(**other) == node).count()
            }
            _ => 0,
        };
        let is_table = self.kind == Kind::TableLock;
        let waiting = Waiting { all: self.queue.len() + beside, near, is_table };
        prices.lock(self.owner, cpu, waiting, hold)
    }

    /// Returns the number of waiting CPUs.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Appends the whole state.
    pub fn state(&self, into: &mut Vec<u64>) {
        let owner = self.owner.map_or(u64::from(u32::MAX), u64::from);
        into.push(owner << 32 | u64::from(self.stayed) << 1 | u64::from(self.is_busy));
        into.push(self.queue.len() as u64);
        into.extend(self.queue.iter().map(|cpu| u64::from(*cpu)));
    }
}
