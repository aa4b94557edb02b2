//! The pool's persistent size (`set_max_huge_pages`, nr_hugepages).

use super::{Frames, HugetlbPool};

impl HugetlbPool {
    /// Makes the persistent pool `pages` large, or a node's part of it; returns what the size is then.
    ///
    /// Growing turns surplus pages into persistent ones first, and ends where memory gives no more.
    /// Shrinking frees what is neither in use nor promised; the rest becomes surplus.
    pub fn resize(&mut self, pages: u64, only: Option<u8>, frames: &mut impl Frames) -> u64 {
        let store = &mut self.store;
        let count = store.nodes.len();
        let nodes: Vec<usize> = only.map_or((0..count).collect(), |node| vec![node.into()]);
        let persistent = |store: &super::Store| store.total() - store.surplus();
        // In terms of the whole pool, as the kernel counts a node's request.
        let pages = match only {
            Some(node) => pages + persistent(store) - store.nodes[usize::from(node)].persistent(),
            None => pages,
        };
        while persistent(store) < pages {
            let Some(node) = store.next_node(&nodes, |node| node.surplus > 0) else { break };
            store.nodes[node].surplus -= 1;
        }
        while persistent(store) < pages {
            let turns: Vec<usize> = store.turns(&nodes).collect();
            let got = turns.into_iter().find_map(|at| Some((frames.allocate(at as u8)?, at)));
            let Some((frame, node)) = got else { break };
            store.turn = node + 1;
            store.nodes[node].total += 1;
            store.nodes[node].free.push(frame);
        }
        let needed = pages.max(store.reserved + store.total() - store.free());
        while needed < persistent(store) {
            // The kernel does not ask for the second, and can leave a node with more surplus than pages.
            let will_do =
                |node: &super::store::Node| !node.free.is_empty() && node.persistent() > 0;
            let Some(node) = store.next_node(&nodes, will_do) else { break };
            let frame = store.nodes[node].free.pop().expect("looked");
            store.nodes[node].total -= 1;
            frames.free(frame, node as u8);
        }
        while pages < persistent(store) {
            let Some(node) = store.next_node(&nodes, |node| node.surplus < node.total) else {
                break;
            };
            store.nodes[node].surplus += 1;
        }
        match only {
            Some(node) => store.nodes[usize::from(node)].persistent(),
            None => persistent(store),
        }
    }
}

impl super::store::Node {
    fn persistent(&self) -> u64 {
        self.total - self.surplus
    }
}

impl super::Store {
    /// The nodes, from the one whose turn it is on.
    fn turns<'a>(&self, nodes: &'a [usize]) -> impl Iterator<Item = usize> + use<'a> {
        let first = nodes.iter().position(|&node| node >= self.turn).unwrap_or(0);
        nodes.iter().copied().cycle().skip(first).take(nodes.len())
    }

    /// The first of them that will do; the turn passes on.
    fn next_node(
        &mut self,
        nodes: &[usize],
        will_do: impl Fn(&super::store::Node) -> bool,
    ) -> Option<usize> {
        let node = self.turns(nodes).find(|&node| will_do(&self.nodes[node]))?;
        self.turn = node + 1;
        Some(node)
    }
}
