//! Data caches for [`super::simulated::Simulated`]: set-associative, LRU. Without them the tests could not show that
//! the effects of data caches cancel out.

use machine::Machine;

/// All levels, with only the sets that the lines of one chase use: of millions of sets a chase uses thousands.
pub struct Caches<'a> {
    lines: &'a [u64],
    levels: Vec<Level>,
    memory: u64,
}

struct Level {
    ways: usize,
    cycles: u64,
    /// Where each line's set starts in `held`.
    set: Vec<usize>,
    /// All sets in order, each with the most recently used line first, as the line's index plus one; 0: empty.
    held: Vec<u64>,
}

const LINE: u64 = 64;

impl<'a> Caches<'a> {
    /// Returns empty caches for these lines. A machine's file does not give ways. The first level gets as many (at
    /// least 8) as make the set a function of the page offset; the others get 16.
    pub fn new(machine: &Machine, lines: &'a [u64]) -> Self {
        let level = |(index, cache): (usize, &machine::Cache)| {
            let ways = if index == 0 { (cache.bytes / 4096).max(8) } else { 16 } as usize;
            let sets = (cache.bytes / LINE / ways as u64).max(1);
            let mut used: Vec<u64> = lines.iter().map(|line| line % sets).collect();
            used.sort_unstable();
            used.dedup();
            let set = |line: &u64| ways * used.partition_point(|set| *set < line % sets);
            let set = lines.iter().map(set).collect();
            Level { ways, cycles: cache.cycles.into(), set, held: vec![0; used.len() * ways] }
        };
        let levels = machine.caches.iter().enumerate().map(level).collect();
        Self { lines, levels, memory: machine.memory_cycles.into() }
    }

    /// Returns the cycles of a load of the line with this index, which is then in all levels.
    pub fn load(&mut self, index: usize) -> u64 {
        let line = self.lines[index];
        let mut cycles = None;
        for level in &mut self.levels {
            if level.hit(index, line) {
                cycles = cycles.or(Some(level.cycles));
            }
        }
        cycles.unwrap_or(self.memory)
    }
}

impl Level {
    fn hit(&mut self, index: usize, line: u64) -> bool {
        let start = self.set[index];
        let set = &mut self.held[start..start + self.ways];
        let found = set.iter().position(|held| *held == line + 1);
        set.copy_within(..found.unwrap_or(self.ways - 1), 1);
        set[0] = line + 1;
        found.is_some()
    }
}
