//! Programs described by memory areas and a mix of visits: most of the published set.

use std::collections::BTreeMap;

use trace::{Access, BLOCK, Backing, Block, Event};
use workload::memory::shares;
use workload::rng::{SplitMix64, mix};

use super::tables::{Kind, Model, Order, Visit};
use crate::entry::{Entry, Given};
use crate::kernels::{Sweep, bytes};
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Emit, Figure, Setup, Tables, WorkloadError};

/// The options of all models of this kind.
const OPTIONS: &[&str] = &["size", "operations", "threads", "weight"];

pub(super) const fn entry(name: &'static str, summary: &'static str) -> Entry {
    Entry { name, summary, options: OPTIONS, defaults, build }
}

fn defaults(entry: &Entry, tables: &Tables) -> Vec<Given> {
    let Some(model) = tables.models.get(entry.name) else { return Vec::new() };
    let numbers = [size(model), model.visits as u64, model.threads.into(), model.weight.into()];
    numbers.map(Given::Number).into()
}

/// Total size of the areas in bytes.
fn size(model: &Model) -> u64 {
    (model.areas.iter().map(|table| table.mib).sum::<f64>() * f64::from(1 << 20)) as u64
}

fn build(setup: &Setup, tables: &Tables) -> Built {
    let missing = || WorkloadError::Table(format!("no table [models.{}]", setup.name()));
    let model = tables.models.get(setup.name()).ok_or_else(missing)?;
    let threads = setup.threads_or(model.threads);
    let weight = setup.weight.unwrap_or(model.weight);
    let visits = setup.operations.unwrap_or(model.visits as u64);
    let areas = areas(setup, model)?;
    let no_area = |name: &str| WorkloadError::Table(format!("{}: no area {name}", setup.name()));
    let find = |visit: &Visit| {
        let area = areas.get(&visit.area).ok_or_else(|| no_area(&visit.area))?;
        Ok((*area, visit.clone()))
    };
    let mix = model.mix.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let filling = Filling { model, setup, areas: &areas };

    let mut program = Program::new(setup);
    program.phase("setup");
    if model.start_seconds > 0.0 {
        program.events([Event::Wait((model.start_seconds * 1e6) as u64)]);
    }
    filling.fill(&mut program, false);
    program.phase("run");
    let rounds = model.rounds.max(1);
    let made = (visits / u64::from(weight)).max(1) as usize;
    for (round, part) in shares(made, rounds as usize, 1).into_iter().enumerate() {
        filling.fill(&mut program, true);
        let rng = SplitMix64::stream(setup.seed, round as u64);
        program.pace(setup.sampled(model.run, threads, weight));
        program.step(Mix::new(&mix, rng, part.len() as u64));
        for table in model.areas.iter().filter(|table| table.transient) {
            program.events([areas[&table.name].unmap()]);
        }
    }
    let areas = areas.into_values().collect::<Vec<_>>();
    program.exit(setup, threads, Figure::Time, Extent::new(&areas))
}

/// The areas by name, scaled to the requested size.
fn areas(setup: &Setup, model: &Model) -> Result<BTreeMap<String, Area>, WorkloadError> {
    let total = model.areas.iter().map(|table| table.mib).sum::<f64>() * f64::from(1 << 20);
    let scale = setup.size_or(size(model))? as f64 / total;
    let mut space = Space::of(setup);
    let mut files = 0;
    let areas = model.areas.iter().map(|table| {
        let bytes = (table.mib * scale * f64::from(1 << 20)) as u64;
        let mut file = |cached| {
            files += 1;
            Backing::File { file: files, cached }
        };
        let backing = match table.kind {
            Kind::Anonymous => Backing::Anonymous,
            Kind::Heap => Backing::Heap,
            Kind::CachedFile => file(true),
            Kind::File => file(false),
        };
        (table.name.clone(), space.area(bytes.max(PAGE), backing))
    });
    Ok(areas.collect())
}

struct Filling<'a> {
    model: &'a Model,
    setup: &'a Setup,
    areas: &'a BTreeMap<String, Area>,
}

impl Filling<'_> {
    /// Maps and fills the transient areas, or if `transient` is false, all other areas.
    fn fill(&self, program: &mut Program, transient: bool) {
        let threads = self.model.fill_threads;
        let tables = self.model.areas.iter().filter(|table| table.transient == transient);
        for (number, table) in tables.enumerate() {
            if number == 0 {
                program.pace(self.setup.pace(self.model.setup, threads));
            }
            let area = self.areas[&table.name];
            if table.kind == Kind::Heap {
                program.step(Growing::new(area, table.step_kib));
                continue;
            }
            let parts = shares(area.pages as usize, threads.into(), 1).into_iter();
            let parts = parts.map(|part| [bytes(part, PAGE)]);
            program.map(area).step(Sweep::new(area, parts, 8, table.kind == Kind::Anonymous));
        }
    }
}

/// Grows a heap and writes the new pages.
pub(crate) struct Growing {
    heap: Area,
    step: u32,
    grown: u32,
}

impl Growing {
    pub fn new(heap: Area, step_kib: u32) -> Self {
        Self { heap, step: (step_kib / 4).max(1), grown: 0 }
    }
}

impl Step for Growing {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() && self.grown < self.heap.pages {
            let step = self.step.min(self.heap.pages - self.grown);
            block.event(self.heap.grow(self.grown, step));
            for page in self.grown..self.grown + step {
                block.run(Access::write(self.heap.page(page.into())), (PAGE / 8) as u32);
            }
            self.grown += step;
        }
        self.grown < self.heap.pages
    }

    fn records(&self) -> Option<u64> {
        Some(self.heap.pages.into())
    }
}

/// The visits of the run.
struct Mix {
    targets: Vec<Target>,
    rng: SplitMix64,
    left: u64,
    runs: bool,
}

struct Target {
    /// Draws from the previous target's limit up to this limit select this target.
    limit: u16,
    first: u32,
    pages: u64,
    next: u64,
    order: Order,
    skew: u32,
    scattered: bool,
    run: u32,
    /// A draw below this limit makes the visit a write.
    writes: u16,
}

/// Converts a share to parts of 2^16, clamped.
fn per_65536(share: f64) -> u16 {
    (share * 65536.0).round().clamp(0.0, 65535.0) as u16
}

impl Mix {
    fn new(mix: &[(Area, Visit)], rng: SplitMix64, left: u64) -> Self {
        let total = mix.iter().map(|(_, visit)| visit.share).sum::<f64>();
        let mut sum = 0.0;
        let mut targets = Vec::new();
        for (area, visit) in mix {
            sum += visit.share / total;
            targets.push(Target {
                limit: per_65536(sum),
                first: area.first,
                pages: area.pages.into(),
                next: 0,
                order: visit.order,
                skew: visit.skew,
                scattered: visit.scattered,
                run: visit.run.max(1),
                writes: per_65536(visit.writes),
            });
        }
        let runs = targets.iter().any(|target| target.run > 1);
        Self { targets, rng, left, runs }
    }
}

/// Converts a draw to a number below `limit`. The larger `skew`, the more the numbers concentrate
/// near 0.
#[inline]
pub(crate) fn skewed(draw: u32, skew: u32, limit: u64) -> u64 {
    let uniform = u64::from(draw);
    let crowded = (1..skew).fold(uniform, |power, _| (power * uniform) >> 32);
    (crowded * limit) >> 32
}

impl Target {
    #[inline]
    fn page(&mut self, draw: u64) -> u32 {
        let number = match self.order {
            Order::Sequential => {
                let number = self.next;
                self.next = if number + 1 == self.pages { 0 } else { number + 1 };
                number
            }
            Order::Random => {
                let number = skewed((draw >> 32) as u32, self.skew, self.pages);
                // Two numbers may map to the same page, which suffices for scattering.
                if self.scattered { ((mix(number) >> 32) * self.pages) >> 32 } else { number }
            }
        };
        self.first + number as u32
    }
}

impl Step for Mix {
    fn fill(&mut self, block: &mut Block) -> bool {
        if !self.runs && block.has_counts() {
            return true;
        }
        let visits = (BLOCK.saturating_sub(block.accesses.len()) as u64).min(self.left);
        let last = self.targets.len() - 1;
        for _ in 0..visits {
            let draw = self.rng.draw();
            let choice = draw as u16;
            let mut number = 0;
            while number < last && choice >= self.targets[number].limit {
                number += 1;
            }
            let target = &mut self.targets[number];
            let writes = u32::from(((draw >> 16) as u16) < target.writes) << 31;
            let access = Access(target.page(draw) | writes);
            if self.runs { block.run(access, target.run) } else { block.access(access) }
        }
        self.left -= visits;
        self.left > 0
    }

    fn records(&self) -> Option<u64> {
        Some(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_model_and_every_model_can_be_built() {
        for name in Tables::embedded().models.keys() {
            assert!(crate::catalog().any(|entry| entry.name == name), "{name}");
        }
        for entry in crate::catalog().filter(|entry| entry.options == OPTIONS) {
            let setup = entry.name.parse::<Setup>().unwrap();
            let (description, _) = setup.build().unwrap();
            assert!(description.superpages > 100, "{description:?}");
        }
    }

    #[test]
    fn skew_crowds_at_the_begin() {
        let share = |skew| {
            let mut rng = SplitMix64::new(1);
            let below = |_: &u32| skewed((rng.draw() >> 32) as u32, skew, 1000) < 100;
            (0..100_000).filter(below).count() as f64 / 100_000.0
        };
        for (skew, expected) in [(1, 0.1), (2, 0.316), (3, 0.464), (4, 0.562)] {
            assert!((share(skew) - expected).abs() < 0.01, "{skew}: {}", share(skew));
        }
    }
}
