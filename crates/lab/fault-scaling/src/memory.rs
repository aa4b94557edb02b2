//! `Memory`: the nodes' free pages, zeroed and not, how busy their memory is, and the daemon that zeroes
//! (scrubd, one per node).
//!
//! The daemon's work is carried out when somebody looks: it needs no events, and is exact all the same.
//! See docs/decisions/faults.md#2, #3 and #11.

use policy::ahead::{Decision, Facts, Refill};

use super::prices::Prices;
use super::{Engine, Experiment, FreeBlocks, Kernel, Zeroing};

/// All nodes.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    nodes: Vec<Node>,
    scrub: Option<Rule>,
}

/// The daemon's rule, the same on every node.
#[derive(Debug, Clone, Copy)]
struct Rule {
    refill: Refill,
    /// Pages of the largest block that the daemon zeroes at once, and of the smallest.
    largest: u64,
    smallest: u64,
    /// CPU time per page.
    time: u64,
    /// The engine that zeroes the blocks it accepts, and its time per page.
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
    /// Time until the daemon's block is done, and its pages. 0: it sleeps.
    left: u64,
    block: u64,
    /// Work of the daemon since the last call of [`Memory::work`].
    work: Work,
    /// The daemon has a CPU to run on while threads fault.
    has_idle_cpu: bool,
    /// The time of the last look.
    seen: u64,
    /// Until then its CPUs' bus is taken by zeroing.
    busy_until: u64,
}

/// Work of daemons.
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
    /// Time at which they are zeroed.
    pub done: u64,
    /// Their node.
    pub node: usize,
}

impl Memory {
    /// As it is before the first repetition: nothing is in use, and everything is zeroed that will be.
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
        // Nobody runs before the first repetition, so a load of 1 or more lets the daemon zero.
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

    /// On which nodes a daemon has a CPU.
    pub fn daemons(&self) -> Vec<bool> {
        self.nodes.iter().map(|node| node.left > 0 && !self.is_engine(node)).collect()
    }

    /// Whether a node's block is the engine's, which needs no CPU.
    fn is_engine(&self, node: &Node) -> bool {
        self.scrub.is_some_and(|rule| rule.engine_time(node.block).is_some())
    }

    /// The daemons' work since the last call.
    pub fn work(&mut self) -> Work {
        let mut all = Work::default();
        for node in &mut self.nodes {
            let Work { pages, cpu } = std::mem::take(&mut node.work);
            all = Work { pages: all.pages + pages, cpu: all.cpu + cpu };
        }
        all
    }

    /// Number of zeroed pages of all nodes.
    pub fn zeroed(&self) -> u64 {
        self.nodes.iter().map(|node| node.zeroed).sum()
    }

    /// Free blocks of each node, of kernels that zero ahead.
    pub fn blocks(&self) -> Option<Vec<FreeBlocks>> {
        let blocks = |node: &Node| FreeBlocks::new(node.free - node.zeroed, node.zeroed);
        self.scrub.map(|_| self.nodes.iter().map(blocks).collect())
    }

    /// Daemons have the CPUs that threads leave idle.
    pub fn place(&mut self, prices: &Prices) {
        for (node, threads) in self.nodes.iter_mut().zip(prices.threads_of_nodes()) {
            node.has_idle_cpu = threads < prices.per_node;
        }
    }

    /// Pages for a CPU of `home`, from `at` on; the other nodes follow when it has too few.
    pub fn take(&mut self, home: u32, pages: u64, at: u64, prices: &Prices) -> Taken {
        let home = home as usize;
        let has = |node: &usize| self.nodes[*node].free >= pages;
        let mut order = (home..self.nodes.len()).chain(0..home);
        let Some(node) = order.find(has) else {
            unreachable!("an experiment is refused that needs more memory than there is")
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

    /// Frees pages of a node, not zeroed.
    pub fn give(&mut self, node: usize, pages: u64, at: u64) {
        self.look(node, at, true);
        self.nodes[node].free += pages;
        self.wake(node);
    }

    /// Time goes by in which only one thread runs, so that the daemons have CPUs where there are others.
    pub fn quiet(&mut self, until: u64, has_others: bool) {
        for node in 0..self.nodes.len() {
            self.look(node, until, has_others);
        }
    }

    /// The daemons go first, as on a machine with one CPU: they slept for long. How long that takes.
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

    /// The daemon's work up to a time. `is_alone`: nobody else wants the CPU.
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
            // Threads may have taken the pages it was about to zero.
            let zeroed = (node.zeroed + node.block).min(node.free);
            node.work.pages += zeroed - node.zeroed;
            node.zeroed = zeroed;
            rule.begin(node, rule.smallest, true);
        }
    }

    /// Whether the daemon starts.
    fn wake(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let Some(rule) = self.scrub
            && node.left == 0
        {
            rule.begin(node, rule.largest, false);
        }
    }

    /// Whether no daemon works: a working daemon depends on the numbers of pages.
    pub fn is_quiet(&self) -> bool {
        self.nodes.iter().all(|node| node.left == 0)
    }

    /// Everything that what comes depends on, but for how many pages are left, at a time.
    pub fn state(&self, at: u64, into: &mut Vec<u64>) {
        for node in &self.nodes {
            into.push(node.busy_until.saturating_sub(at));
            into.push(u64::from(node.zeroed > 0) << 1 | u64::from(node.free > 0));
        }
    }

    /// Free and zeroed pages, and from which number of each on things are different: below it is not
    /// to be skipped.
    pub fn stocks(&self) -> Vec<Stock> {
        let stock = |node: &Node| {
            // The daemon starts below its rule's `start`; without one nothing happens before the end.
            let start = self.scrub.map_or(0, |rule| rule.refill.start.min(node.zeroed));
            [Stock { has: node.free, least: 0 }, Stock { has: node.zeroed, least: start }]
        };
        self.nodes.iter().flat_map(stock).collect()
    }

    /// Passes over `times` periods, in each of which stocks shrank by this much and time went on by `time`.
    pub fn skip(&mut self, shrunk: &[u64], times: u64, time: u64) {
        for (node, shrunk) in self.nodes.iter_mut().zip(shrunk.chunks_exact(2)) {
            node.free -= shrunk[0] * times;
            node.zeroed -= shrunk[1] * times;
            node.seen += time * times;
            node.busy_until += time * times;
        }
    }

    /// The same stocks and daemons: then the next repetition is as the last one.
    pub fn is_as(&self, other: &Self) -> bool {
        let same = |(one, other): (&Node, &Node)| {
            let state = |node: &Node| (node.free, node.zeroed, node.left, node.block);
            state(one) == state(other)
        };
        self.nodes.iter().zip(&other.nodes).all(same)
    }
}

/// A number of pages that shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stock {
    /// Number of pages.
    pub has: u64,
    /// Below this, the next events depend on the number.
    pub least: u64,
}

impl Rule {
    /// The daemon's next block, if it has one: not before there are `least` pages to zero.
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

    /// The engine's time for a page of a block, if it takes that.
    fn engine_time(&self, block: u64) -> Option<u64> {
        self.engine.filter(|(engine, _)| engine.takes(block * self.page)).map(|(_, time)| time)
    }
}
