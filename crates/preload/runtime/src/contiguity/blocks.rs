//! Free blocks by order, as /proc/buddyinfo lists them for each zone of each node. Pure and total: malformed lines are
//! skipped.

use crate::text::decimal;

/// Maximum number of nodes. Memory of further nodes counts for the last one.
pub const MAX_NODES: usize = 64;
/// Maximum length of a line; MAX_PAGE_ORDER is 13 at most, and eleven counts take 90 bytes.
pub const MAX_LINE: usize = 512;

/// Free memory of one node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// In blocks of a superpage or more.
    pub contiguous: usize,
    /// In blocks of any size.
    pub all: usize,
}

impl Free {
    fn add(&mut self, other: Self) {
        self.contiguous = self.contiguous.saturating_add(other.contiguous);
        self.all = self.all.saturating_add(other.all);
    }
}

/// Free memory by node.
#[derive(Clone, Debug)]
pub struct Blocks {
    base: usize,
    superpage: usize,
    nodes: [Option<Free>; MAX_NODES],
}

impl Blocks {
    /// Starts without free memory. Both sizes are powers of two.
    pub fn new(base: usize, superpage: usize) -> Self {
        Self { base, superpage, nodes: [None; MAX_NODES] }
    }

    /// Adds a line: `Node 0, zone   Normal   3417   4773 ...`.
    pub fn line(&mut self, line: &[u8]) {
        if let Some((node, free)) = self.parse(line) {
            let known = &mut self.nodes[node.min(MAX_NODES - 1)];
            known.get_or_insert_default().add(free);
        }
    }

    fn parse(&self, line: &[u8]) -> Option<(usize, Free)> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        (words.next()? == b"Node").then_some(())?;
        let node = decimal(words.next()?.strip_suffix(b",")?)?;
        (words.next()? == b"zone").then_some(())?;
        words.next()?;
        let mut free = Free::default();
        let mut block = self.base;
        let mut orders = 0;
        for word in words {
            let bytes = decimal(word)?.saturating_mul(block);
            free.add(Free {
                contiguous: if block >= self.superpage { bytes } else { 0 },
                all: bytes,
            });
            block = block.saturating_mul(2);
            orders += 1;
        }
        (orders > 0).then_some((node, free))
    }

    /// Number of nodes; 0: no line was valid.
    pub fn nodes(&self) -> usize {
        self.nodes.iter().flatten().count()
    }

    /// Free memory for a process that runs on `local` and may use the nodes in `allowed`.
    ///
    /// The kernel looks for a superpage on the local node first, and compacts there before it takes a remote one
    /// (`alloc_pages_mpol`, mm/mempolicy.c). Other nodes therefore only count if the local node has little
    /// memory in smaller blocks, which compaction would work on.
    pub fn usable(&self, local: usize, allowed: impl Fn(usize) -> bool) -> Free {
        let local = local.min(MAX_NODES - 1);
        let mut sum = Free::default();
        let own = self.nodes[local].filter(|_| allowed(local)).unwrap_or_default();
        sum.add(own);
        if own.all - own.contiguous <= own.contiguous || own.all == 0 {
            let others = self.nodes.iter().enumerate();
            let others = others.filter(|(node, _)| *node != local && allowed(*node));
            others.filter_map(|(_, free)| *free).for_each(|free| sum.add(free));
        }
        sum
    }
}

/// Splits text that arrives in pieces into lines. Drops lines that are too long or unfinished.
pub struct Lines {
    line: [u8; MAX_LINE],
    used: usize,
    is_too_long: bool,
}

impl Lines {
    /// Starts at the beginning of a text.
    pub const fn new() -> Self {
        Self { line: [0; MAX_LINE], used: 0, is_too_long: false }
    }

    /// Takes the next piece; `each` gets every complete line.
    pub fn feed(&mut self, piece: &[u8], mut each: impl FnMut(&[u8])) {
        for &byte in piece {
            if byte == b'\n' {
                if !self.is_too_long {
                    each(&self.line[..self.used]);
                }
                (self.used, self.is_too_long) = (0, false);
            } else if self.used < MAX_LINE {
                self.line[self.used] = byte;
                self.used += 1;
            } else {
                self.is_too_long = true;
            }
        }
    }
}
