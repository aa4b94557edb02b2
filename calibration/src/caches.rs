//! Data caches for [`crate::Simulated`]: set-associative, least recently used first out. Without them
//! the estimator's claim that data caches cancel would not be tested.

use hardware::Machine;

/// All levels.
pub(crate) struct Caches {
    levels: Vec<Level>,
    memory: u64,
}

struct Level {
    sets: u64,
    ways: usize,
    cycles: u64,
    /// By set, the line used last first.
    held: Vec<Vec<u64>>,
}

const LINE: u64 = 64;

impl Caches {
    /// Empty ones. A machine's file has no ways: the first level has as many as let its sets be found
    /// by a base page's offset, 8 at least; the others 16.
    pub(crate) fn new(machine: &Machine) -> Self {
        let level = |(index, cache): (usize, &hardware::Cache)| {
            let lines = cache.bytes / LINE;
            let ways = if index == 0 { (cache.bytes / 4096).max(8) } else { 16 };
            let sets = (lines / ways).max(1);
            Level {
                sets,
                ways: ways as usize,
                cycles: cache.cycles.into(),
                held: vec![Vec::new(); sets as usize],
            }
        };
        Self {
            levels: machine.caches.iter().enumerate().map(level).collect(),
            memory: machine.memory_cycles.into(),
        }
    }

    /// Cycles of a load; the line is then in all levels.
    pub(crate) fn load(&mut self, line: u64) -> u64 {
        let mut cycles = None;
        for level in &mut self.levels {
            if level.hit(line) {
                cycles = cycles.or(Some(level.cycles));
            }
        }
        cycles.unwrap_or(self.memory)
    }
}

impl Level {
    fn hit(&mut self, line: u64) -> bool {
        let set = &mut self.held[(line % self.sets) as usize];
        let found = set.iter().position(|held| *held == line);
        match found {
            Some(at) => set[..=at].rotate_right(1),
            None => {
                set.insert(0, line);
                set.truncate(self.ways);
            }
        }
        found.is_some()
    }
}
