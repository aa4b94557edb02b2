//! `Memory`: for each node, the numbers of free pages and of zeroed ones, the time for which the memory bus is busy,
//! and the daemon that zeroes free pages (scrubd).
//!
//! The daemon's work is computed lazily, when a caller asks about its node. The result is exact without events. See
//! docs/decisions/faults.md#2, #3 and #11.

use policy::ahead::{Decision, Facts, Refill};

use super::prices::Prices;
use super::{Engine, Experiment, FreeBlocks, Kernel, Zeroing};

#[derive(Debug, Clone)]
pub(super) struct Memory {
    nodes: Vec<Node>,
    scrub: Option<Rule>,
}

/// The daemons' settings, the same on every node.
#[derive(Debug, Clone, Copy)]
struct Rule {
    refill: Refill,
    /// Number of pages of the largest block that the daemon zeroes at once.
    largest: u64,
    /// Number of pages of the smallest block that the daemon zeroes at once.
    smallest: u64,
    /// CPU time per page.
    time: u64,
    /// The engine and its time per page in picoseconds. The CPU zeroes the blocks that the engine does not take.
    engine: Option<(Engine, u64)>,
    /// Page size in bytes.
    page: u64,
    /// Number of running threads.
    running: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    /// Number of free pages, including zeroed ones.
    free: u64,
    zeroed: u64,
    /// Remaining time of the daemon's current block, in picoseconds.
    left: u64,
    /// Number of pages of the daemon's current block; 0 while the daemon sleeps.
    block: u64,
    /// Work of the daemon since the last call of [`Memory::work`].
    work: Work,
    /// Whether the daemon has a CPU to run on while threads fault.
    has_idle_cpu: bool,
    /// Time up to which the daemon's work is computed.
    seen: u64,
    /// Time until which zeroing occupies the node's memory bus.
    busy_until: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Number of pages zeroed.
    pub pages: u64,
    /// CPU time used.
    pub cpu: u64,
}

/// Allocated pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// Time at which the pages are zeroed.
    pub done: u64,
    /// The node of the pages.
    pub node: usize,
}

impl Memory {
    /// Creates the memory before the first repetition: all pages are free, and as many are zeroed as the daemons ever
    /// zero.
    pub fn new(experiment: &Experiment, prices: &Prices) -> Self {
        let machine = &experiment.machine;
        let frames = machine.node_memory.0 / machine.base_page.0;
        let Kernel { prezero, .. } = experiment.kernel;
        let page = machine.base_page.0;
        let engine = |scrub: Zeroing| machine.engine.filter(|_| scrub == Zeroing::Bte);
        let engine_time = |engine: Engine| {
            let time = u128::from(page) * 1_000_000_000_000 / u128::from(engine.bandwidth.0);
            (engine, (time as u64).max(1))
        };
        let scrub = prezero.map(|scrub| Rule {
            refill: scrub.refill(frames),
            largest: 1 << scrub.order,
            smallest: 1 << scrub.stop_order,
            time: machine.costs.zero_bulk.max(1),
            engine: engine(scrub.by).map(engine_time),
            page,
            running: u64::from(experiment.threads),
        });
        // No thread runs before the first repetition, so a load of 1 or more lets the daemon zero.
        let zeroed = scrub.filter(|rule| rule.refill.load > 0);
        let node = Node {
            free: frames,
            zeroed: zeroed.map_or(0, |rule| frames / rule.smallest * rule.smallest),
            left: 0,
            block: 0,
            work: Work::default(),
            has_idle_cpu: false,
            seen: 0,
            busy_until: 0,
        };
        let mut memory = Self { nodes: vec![node; prices.nodes as usize], scrub };
        memory.place(prices);
        memory
    }

    /// Returns for each node whether its daemon runs on a CPU.
    pub fn daemons(&self) -> Vec<bool> {
        self.nodes.iter().map(|node| node.left > 0 && !self.is_engine(node)).collect()
    }

    /// Returns whether the engine zeroes the node's current block, without a CPU.
    fn is_engine(&self, node: &Node) -> bool {
        self.scrub.is_some_and(|rule| rule.engine_time(node.block).is_some())
    }

    /// Returns the daemons' work since the last call.
    pub fn work(&mut self) -> Work {
        let mut all = Work::default();
        for node in &mut self.nodes {
            let Work { pages, cpu } = std::mem::take(&mut node.work);
            all = Work { pages: all.pages + pages, cpu: all.cpu + cpu };
        }
        all
    }

    /// Returns the number of zeroed pages on all nodes.
    pub fn zeroed(&self) -> u64 {
        self.nodes.iter().map(|node| node.zeroed).sum()
    }

    /// Returns the free blocks of each node, or `None` if the kernel does not zero ahead.
    pub fn blocks(&self) -> Option<Vec<FreeBlocks>> {
        let blocks = |node: &Node| FreeBlocks::new(node.free - node.zeroed, node.zeroed);
        self.scrub.map(|_| self.nodes.iter().map(blocks).collect())
    }

    /// Gives the daemons the CPUs that threads leave idle.
    pub fn place(&mut self, prices: &Prices) {
        for (node, threads) in self.nodes.iter_mut().zip(prices.threads_of_nodes()) {
            node.has_idle_cpu = threads < prices.per_node;
        }
    }

    /// Takes pages for a CPU of `home`, beginning at time `at`. If `home` has too few, the next node serves them.
    pub fn take(&mut self, home: u32, pages: u64, at: u64, prices: &Prices) -> Taken {
        let home = home as usize;
        let has = |node: &usize| self.nodes[*node].free >= pages;
        let mut order = (home..self.nodes.len()).chain(0..home);
        let Some(node) = order.find(has) else {
            unreachable!("experiments that need more memory than the machine has are refused")
        };
        self.look(node, at, false);
        let is_local = node == home;
        let own = &mut self.nodes[node];
        let clean = own.zeroed.min(pages);
        own.free -= pages;
        own.zeroed -= clean;
        let dirty = pages - clean;
        let (zeroing, busy) = prices.zero(dirty, is_local);
        let mut done = at + zeroing;
        if !is_local {
            done += clean * prices.costs.remote;
        }
        if dirty > 0 {
            let bus = &mut self.nodes[home].busy_until;
            *bus = (*bus).max(at) + busy;
            done = done.max(*bus);
        }
        self.wake(node);
        Taken { done, node }
    }

    /// Returns pages to a node, not zeroed.
    pub fn give(&mut self, node: usize, pages: u64, at: u64) {
        self.look(node, at, true);
        self.nodes[node].free += pages;
        self.wake(node);
    }

    /// Lets time pass while one thread runs. `has_others`: the daemons have other CPUs.
    pub fn quiet(&mut self, until: u64, has_others: bool) {
        for node in 0..self.nodes.len() {
            self.look(node, until, has_others);
        }
    }

    /// Runs the daemons until they are done, on a machine with one CPU: after a long sleep the scheduler prefers them.
    /// Returns the time taken.
    pub fn preempt(&mut self, at: u64) -> u64 {
        let mut taken = 0;
        for node in 0..self.nodes.len() {
            while self.nodes[node].left > 0 && !self.is_engine(&self.nodes[node]) {
                let left = self.nodes[node].left;
                taken += left;
                self.nodes[node].seen = at;
                self.look(node, at + left, true);
            }
        }
        for node in &mut self.nodes {
            node.seen = at + taken;
        }
        taken
    }

    /// Starts a new repetition at time 0.
    pub fn restart(&mut self) {
        for node in &mut self.nodes {
            (node.seen, node.busy_until) = (0, 0);
        }
    }

    /// Computes a daemon's work up to a time. `is_alone`: no thread competes for the CPU.
    fn look(&mut self, node: usize, at: u64, is_alone: bool) {
        let node = &mut self.nodes[node];
        let mut time = at.saturating_sub(node.seen);
        node.seen = node.seen.max(at);
        let Some(rule) = self.scrub else { return };
        while node.left > 0 {
            let is_engine = rule.engine_time(node.block).is_some();
            if !is_engine && !is_alone && !node.has_idle_cpu {
                return;
            }
            let worked = time.min(node.left);
            time -= worked;
            node.left -= worked;
            node.work.cpu += if is_engine { 0 } else { worked };
            if node.left > 0 {
                return;
            }
            // Threads may have taken pages of the block meanwhile.
            let zeroed = (node.zeroed + node.block).min(node.free);
            node.work.pages += zeroed - node.zeroed;
            node.zeroed = zeroed;
            rule.begin(node, rule.smallest, true);
        }
    }

    /// Starts the daemon if it sleeps and has enough to do.
    fn wake(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let Some(rule) = self.scrub
            && node.left == 0
        {
            rule.begin(node, rule.largest, false);
        }
    }

    /// Returns whether all daemons sleep. A working daemon's next step depends on the numbers of pages.
    pub fn is_quiet(&self) -> bool {
        self.nodes.iter().all(|node| node.left == 0)
    }

    /// Appends the state on which later events depend, relative to `at`, without the numbers of pages.
    pub fn state(&self, at: u64, into: &mut Vec<u64>) {
        for node in &self.nodes {
            into.push(node.busy_until.saturating_sub(at));
            into.push(u64::from(node.zeroed > 0) << 1 | u64::from(node.free > 0));
        }
    }

    /// Returns the numbers of free and zeroed pages, each with the limit below which later events depend on the number.
    /// Periods below the limit are not skipped.
    pub fn stocks(&self) -> Vec<Stock> {
        let stock = |node: &Node| {
            // The daemon starts below its rule's `start`. Without a daemon nothing changes until the stock is empty.
            let start = self.scrub.map_or(0, |rule| rule.refill.start.min(node.zeroed));
            [Stock { has: node.free, least: 0 }, Stock { has: node.zeroed, least: start }]
        };
        self.nodes.iter().flat_map(stock).collect()
    }

    /// Skips `times` periods. In each, time advances by `time` and the stocks shrink by `shrunk`.
    pub fn skip(&mut self, shrunk: &[u64], times: u64, time: u64) {
        for (node, shrunk) in self.nodes.iter_mut().zip(shrunk.chunks_exact(2)) {
            node.free -= shrunk[0] * times;
            node.zeroed -= shrunk[1] * times;
            node.seen += time * times;
            node.busy_until += time * times;
        }
    }

    /// Returns whether stocks and daemons are equal: then the next repetition equals the last.
    pub fn is_as(&self, other: &Self) -> bool {
        let same = |(one, other): (&Node, &Node)| {
            let state = |node: &Node| (node.free, node.zeroed, node.left, node.block);
            state(one) == state(other)
        };
        self.nodes.iter().zip(&other.nodes).all(same)
    }
}

/// A decreasing number of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stock {
    /// Number of pages.
    pub has: u64,
    /// If the stock has fewer pages than this, the next events depend on the exact number.
    pub least: u64,
}

impl Rule {
    /// Starts the daemon's next block if at least `least` pages are to be zeroed.
    fn begin(&self, node: &mut Node, least: u64, is_filling: bool) {
        let facts = Facts {
            ready: node.zeroed,
            is_filling,
            running: Some(self.running),
            headroom: Some(node.free - node.zeroed),
            ..Facts::default()
        };
        node.block = match self.refill.decide(&facts) {
            Decision::Fill(pages) if pages >= least => self.largest.min(1 << pages.ilog2()),
            _ => 0,
        };
        node.left = node.block * self.engine_time(node.block).unwrap_or(self.time);
    }

    /// Returns the engine's time per page of a block, or `None` if the engine does not take the block.
    fn engine_time(&self, block: u64) -> Option<u64> {
        self.engine.filter(|(engine, _)| engine.takes(block * self.page)).map(|(_, time)| time)
    }
}
