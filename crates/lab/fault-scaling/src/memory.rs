//! `Memory`: the nodes' free pages, zeroed and not, how busy their memory is, and the daemon that zeroes
//! (scrubd, one per node).
//!
//! The daemon's work is carried out when somebody looks: it needs no events, and is exact all the same.
//! See docs/decisions/faults.md#2 and #3.

use policy::ahead::{Decision, Facts, Refill};

use super::prices::Prices;
use super::{Experiment, Kernel};

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
    /// Pages that it zeroes at once.
    block: u64,
    /// Time for one of these.
    time: u64,
    /// Threads that run.
    running: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    /// Free pages, the zeroed ones among them.
    free: u64,
    zeroed: u64,
    /// Time until the daemon's block is done. 0: it sleeps.
    left: u64,
    /// It has a CPU to run on while threads fault.
    has_idle_cpu: bool,
    /// The time of the last look.
    seen: u64,
    /// Until then its CPUs' bus is taken by zeroing.
    busy_until: u64,
}

/// Pages that somebody got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// When they are zeroed.
    pub done: u64,
    /// The node they are on.
    pub node: usize,
}

impl Memory {
    /// As it is before the first repetition: nothing is in use, and everything is zeroed that will be.
    pub fn new(experiment: &Experiment, prices: &Prices) -> Self {
        let machine = &experiment.machine;
        let frames = machine.node_memory.0 / machine.base_page.0;
        let Kernel { prezero, .. } = experiment.kernel;
        let scrub = prezero.map(|scrub| Rule {
            refill: scrub.refill(frames),
            block: 1 << scrub.order,
            time: (machine.costs.zero_bulk << scrub.order).max(1),
            running: u64::from(experiment.threads),
        });
        let node = Node {
            free: frames,
            zeroed: if scrub.is_some() { frames } else { 0 },
            left: 0,
            has_idle_cpu: false,
            seen: 0,
            busy_until: 0,
        };
        let mut memory = Self { nodes: vec![node; prices.nodes as usize], scrub };
        memory.place(prices);
        memory
    }

    /// On which nodes a daemon works.
    pub fn daemons(&self) -> Vec<bool> {
        self.nodes.iter().map(|node| node.left > 0).collect()
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

    /// So many pages of a node are freed, not zeroed.
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
            while self.nodes[node].left > 0 {
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

    /// A new repetition: its time begins at 0.
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
        let Some(rule) = self.scrub.filter(|_| is_alone || node.has_idle_cpu) else { return };
        while node.left > 0 && time >= node.left {
            time -= node.left;
            // Others may have taken what it was about to zero.
            node.zeroed = (node.zeroed + rule.block).min(node.free);
            node.left = if rule.goes_on(node) { rule.time } else { 0 };
        }
        if node.left > 0 {
            node.left -= time;
        }
    }

    /// Whether the daemon starts.
    fn wake(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let Some(rule) = self.scrub
            && node.left == 0
            && rule.decides(node, false)
        {
            node.left = rule.time;
        }
    }

    /// Whether no daemon works: where one does, the numbers of pages matter.
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
            (one.free, one.zeroed, one.left) == (other.free, other.zeroed, other.left)
        };
        self.nodes.iter().zip(&other.nodes).all(same)
    }
}

/// A number of pages that shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stock {
    /// So many.
    pub has: u64,
    /// Below this, what comes next depends on it.
    pub least: u64,
}

impl Rule {
    fn decides(&self, node: &Node, is_filling: bool) -> bool {
        let facts = Facts {
            ready: node.zeroed,
            is_filling,
            running: Some(self.running),
            headroom: Some(node.free - node.zeroed),
            ..Facts::default()
        };
        matches!(self.refill.decide(&facts), Decision::Fill(pages) if pages >= self.block)
    }

    fn goes_on(&self, node: &Node) -> bool {
        self.decides(node, true)
    }
}
