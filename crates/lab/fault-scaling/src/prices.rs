//! `Prices`: the time of each stage of a fault, for one machine, kernel and number of threads. The engine and its
//! reference model share them, so a difference between the two is a difference in events.
//! See docs/decisions/faults.md#6 and #16.

use policy::rules::ResidentCount;

use super::run::LINE;
use super::{Costs, Entries, Experiment, Kernel, Lock, MapLock, Placement, Starting, Touches};

/// Prices of one experiment, in picoseconds.
#[derive(Debug, Clone)]
pub(super) struct Prices {
    pub costs: Costs,
    pub kernel: Kernel,
    /// Base pages per fault without prefault.
    pub unit: u64,
    /// Entries of a page-table page.
    pub table_entries: u64,
    /// Page-table entries per cache line.
    line_entries: u64,
    /// Number of nodes.
    pub nodes: u32,
    /// CPUs per node.
    pub per_node: u32,
    /// The node of each CPU.
    homes: Vec<u32>,
    placement: Placement,
    starting: Starting,
    threads: u32,
    /// Whether the address space's lock, the page-table lock and the counter share one contended cache line.
    pub is_one_line: bool,
    /// The pages that are touched.
    pub touches: Touches,
    /// User time per touched base page.
    pub touch: u64,
    /// Time for which zeroing a base page keeps a node's memory busy.
    pub zero_busy: u64,
}

/// Cost of a request to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Service {
    /// Time for which the server is busy.
    pub busy: u64,
    /// Additional time until the CPU continues.
    pub later: u64,
}

impl Prices {
    pub fn new(experiment: &Experiment) -> Self {
        let machine = &experiment.machine;
        let page = machine.base_page.0;
        // A machine with more CPUs than were measured has more of the same nodes.
        let cpus = machine.cpus.max(experiment.threads);
        let picoseconds =
            u128::from(page) * 1_000_000_000_000 / u128::from(machine.node_bandwidth.0);
        let nodes = cpus.div_ceil(machine.cpus_per_node);
        let mut prices = Self {
            costs: machine.costs,
            kernel: experiment.kernel,
            unit: experiment.kernel.superpage.map_or(1, |size| (size.0 / page).max(1)),
            table_entries: u64::from(machine.table_entries),
            line_entries: (LINE * u64::from(machine.table_entries) / page).max(1),
            nodes,
            per_node: machine.cpus_per_node,
            homes: Vec::new(),
            placement: machine.placement,
            starting: machine.starting,
            threads: experiment.threads,
            is_one_line: experiment.threads > 1
                && experiment.kernel.map == MapLock::AddressSpace
                && experiment.kernel.entries == Entries::OneLock,
            touches: experiment.touches,
            touch: machine.costs.touch + u64::from(experiment.cache_lines - 1) * machine.costs.line,
            zero_busy: picoseconds as u64,
        };
        prices.place(&vec![false; nodes as usize]);
        prices
    }

    /// Places threads on CPUs. A daemon occupies a CPU on the nodes in `has_daemon`. The first thread stays on the
    /// first node.
    pub fn place(&mut self, has_daemon: &[bool]) {
        let mut taken: Vec<u32> = has_daemon.iter().map(|daemon| u32::from(*daemon)).collect();
        let mut threads = vec![0; has_daemon.len()];
        self.homes.clear();
        for thread in 0..self.threads {
            let has_room = |node: &usize| threads[*node] < self.per_node;
            let nodes = || (0..taken.len()).filter(has_room);
            let fewest = || nodes().min_by_key(|node| taken[*node]);
            let idle = || nodes().find(|node| taken[*node] < self.per_node);
            let home = match self.placement {
                _ if thread == 0 => Some(0),
                Placement::Spread => fewest(),
                Placement::Packed => idle().or_else(fewest),
            };
            let home = home.unwrap_or(0);
            taken[home] += 1;
            threads[home] += 1;
            self.homes.push(home as u32);
        }
    }

    /// Returns the number of threads on each node.
    pub fn threads_of_nodes(&self) -> Vec<u32> {
        let mut threads = vec![0; self.nodes as usize];
        self.homes.iter().for_each(|home| threads[*home as usize] += 1);
        threads
    }

    /// Returns the node on which a thread runs.
    pub fn node(&self, cpu: u32) -> u32 {
        self.homes[cpu as usize]
    }

    /// Returns the first thread's time for starting all others, in picoseconds. 0 with `Pulled`: threads start in the
    /// queue of the first CPU.
    pub fn starting(&self) -> u64 {
        match self.starting {
            Starting::Together => u64::from(self.threads) * self.costs.thread,
            Starting::Pulled => 0,
        }
    }

    /// Returns the time at which a CPU gets its first thread, in picoseconds.
    pub fn start(&self, cpu: u32) -> u64 {
        let started = match self.starting {
            Starting::Together => self.threads,
            Starting::Pulled => cpu,
        };
        u64::from(started) * self.costs.thread
    }

    /// Returns the time that the first thread needs to unmap `pages` pages, in picoseconds. The cache line with a
    /// page's kernel metadata comes from the CPU that mapped it.
    pub fn unmap(&self, pages: u64) -> u64 {
        let each = pages / self.unit / u64::from(self.threads);
        let lines: u64 = (1..self.threads).map(|cpu| each * self.transfer(Some(cpu), 0)).sum();
        pages / self.unit * self.costs.unmap + lines
    }

    /// Returns the uncontended time to count a resident page in a fault, in picoseconds. An atomic's line comes from
    /// another CPU. The other kinds count under a lock that is held anyway, in the thread's own line, or not at all.
    pub fn count_resident(&self) -> u64 {
        match self.kernel.rss {
            ResidentCount::Atomic if self.threads > 1 => self.costs.transfer,
            _ => 0,
        }
    }

    /// Returns the time that the first thread needs to read the resident count of `pages` pages, in picoseconds. It
    /// reads one line for a single counter, or one per thread for split counters. Without counters it reads all
    /// page-table entries, from the CPUs that filled them. See docs/decisions/faults.md#12.
    pub fn read_resident(&self, pages: u64) -> u64 {
        let line = |cpu: u32| self.transfer(Some(cpu), 0).max(self.costs.line);
        let lines = || (0..self.threads).map(line).sum::<u64>();
        match self.kernel.rss {
            ResidentCount::Locked | ResidentCount::Atomic => line(self.threads - 1),
            ResidentCount::Split => lines(),
            ResidentCount::OnDemand => {
                let each = pages / self.unit / u64::from(self.threads);
                each.div_ceil(self.line_entries) * lines()
            }
        }
    }

    /// Returns the time to transfer a modified line between two CPUs, in picoseconds.
    fn transfer(&self, from: Option<u32>, to: u32) -> u64 {
        match from {
            // No CPU has modified the line yet.
            None => 0,
            Some(from) if from == to => 0,
            Some(from) if self.node(from) == self.node(to) => self.costs.transfer_near,
            Some(_) => self.costs.transfer,
        }
    }

    /// Returns the number of waiters that add traffic. Waiters on one node share its copy of the line, so at most one
    /// per node counts.
    fn crowd(&self, waiting: usize) -> u64 {
        (waiting as u64).min(u64::from(self.nodes) - 1)
    }

    /// Returns the cost of an atomic instruction on a shared line. The requester waits for request, forwarding and
    /// reply. The line is busy for the last third only, so other requests overlap.
    pub fn atomic(&self, from: Option<u32>, to: u32, waiting: usize) -> Service {
        let transfer = self.transfer(from, to);
        let busy = match transfer {
            0 => 0,
            _ => transfer / 3 + self.crowd(waiting) * self.costs.crowding,
        };
        Service { busy, later: transfer - transfer / 3 }
    }

    /// Returns the cost of a spin lock: taken from its last holder, kept for `hold`, released. Meanwhile the waiters
    /// read its word, or use other data in its line.
    pub fn lock(&self, from: Option<u32>, to: u32, waiting: Waiting, hold: u64) -> Service {
        let take = self.transfer(from, to);
        let is_stolen = waiting.is_table && self.is_one_line;
        if waiting.all == 0 && !is_stolen {
            return Service { busy: take + hold, later: 0 };
        }
        let far = self.costs.transfer;
        let refill = far / 3;
        // Waiters take the line away; the holder must fetch it back to change the counter in it.
        let is_counted = is_stolen && self.kernel.rss == ResidentCount::Locked;
        let stolen = if is_counted { far } else { 0 };
        let extra = match self.kernel.lock {
            // Every node rereads the word, then all waiters try, one after another.
            Lock::TestAndSet => far + stolen + self.crowd(waiting.all) * refill,
            // Every node rereads the word; the next holder is served after half of them on average.
            Lock::Ticket => far + stolen + self.crowd(waiting.all) * refill / 2,
            Lock::Queued => stolen,
            // Waiters on the same node share a bus; of the other nodes only one polls.
            Lock::Hierarchical => {
                let near = self.costs.transfer_near;
                if waiting.near > 0 { near + stolen } else { far + stolen + refill }
            }
        };
        Service { busy: take + extra + hold, later: 0 }
    }

    /// Returns the first page from `page` on that a fault maps because it is touched.
    pub fn next(&self, page: u64) -> u64 {
        // The next fault begins where the last one ended.
        if self.touches == Touches::ALL {
            return page;
        }
        self.touches.next(page) / self.unit * self.unit
    }

    /// Returns the time before a fault's first stage, in picoseconds: the trap, and the touches of the pages it maps.
    pub fn entry(&self, page: u64, batch: u64) -> u64 {
        let touched = match self.touches {
            Touches::ALL => batch,
            some => some.before(page + batch) - some.before(page),
        };
        self.costs.entry + touched * self.touch
    }

    /// Returns the number of page-table entries for a batch of pages: one per superpage.
    fn entries(&self, batch: u64) -> u64 {
        // Avoids a division for base pages.
        if self.unit == 1 { batch } else { batch / self.unit }
    }

    /// Returns the time to fill the entries of a batch under the lock, in picoseconds.
    pub fn fill(&self, batch: u64) -> u64 {
        self.entries(batch) * self.costs.fill
    }

    /// Returns the time for a batch outside of locks, in picoseconds.
    pub fn outside(&self, batch: u64) -> u64 {
        self.entries(batch) * self.costs.page
    }

    /// Returns the time for a CPU to zero `pages` pages, and the time for which this occupies its node's bus. The bus
    /// keeps order, so slower remote stores hold it longer (inferred: two CPUs of a node slow each other down by a
    /// factor of 1.6, on local and remote memory alike; altix-8, prefault, 1 and 4 GB).
    pub fn zero(&self, pages: u64, is_local: bool) -> (u64, u64) {
        let page = if self.unit > 1 { self.costs.zero_bulk } else { self.costs.zero };
        if is_local {
            return (pages * page, pages * self.zero_busy);
        }
        let far = page + self.costs.zero_remote;
        let busy = u128::from(self.zero_busy) * u128::from(far) / u128::from(page.max(1));
        (pages * far, pages * busy as u64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Number of waiting CPUs.
    pub all: usize,
    /// Number of waiting CPUs on the taker's node.
    pub near: usize,
    /// Whether the lock protects page tables.
    pub is_table: bool,
}
