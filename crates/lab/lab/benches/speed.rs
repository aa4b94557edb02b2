//! Speed of the whole model: `cargo bench -p superpage-lab --bench speed [WORD...]`. The words choose sections.
//!
//! Streams are generated beforehand and passed to the simulation block by block, unless a section says otherwise. Times
//! are CPU times of this thread, which a busy machine affects less, and the best of three passes. Only the sections
//! `designs` and `sweep` measure wall time. Columns: without and with the count of touched pages.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Instant;

use machine::Machine;
use mm_sim::fragment::Fragmentation;
use mm_sim::{Layout, Nodes};
use rustix::time::{ClockId, clock_gettime};
use superpage_lab::sweep::{NamedInput, PLAN_SCHEMA, Plan, Shard, Store};
use superpage_lab::{Experiment, Report, run, run_stream};
use trace::{Access, Advice, BLOCK, Backing, Block, Event, Page, Pages, Process, Source};
use units::ByteSize;
use workload::rng::{SplitMix64, below};

/// Number of accesses in a pass.
const ACCESSES: u32 = 16 << 20;
const MACHINE: &str = "cascade-lake";
const PASSES: usize = 3;

/// The same heap as the command's.
#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap::new();

fn main() {
    HEAP.advise();
    let all: Vec<String> = std::env::args().collect();
    if let [_, grow_flag, regions, each, utilisation] = all.as_slice()
        && grow_flag == "--grow"
    {
        let number = |word: &String| word.parse().expect("a number");
        return grow(number(regions), number(each), utilisation == "true");
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let sections: [(&str, fn()); 6] = [
        ("accesses", accesses),
        ("faults", faults),
        ("generated", generated),
        ("designs", designs),
        ("memory", memory),
        ("sweep", sweep),
    ];
    for (name, section) in sections {
        if words.is_empty() || words.iter().any(|word| word == name) {
            section();
        }
    }
}

/// CPU time of this thread in seconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A named piece of a stream; pieces without a name are not reported. `accesses` is the number of accesses that the
/// piece represents.
struct Part {
    name: &'static str,
    blocks: Vec<Block>,
    accesses: u64,
    times: usize,
}

/// A stream that was generated beforehand, for one design. Records when each part began.
struct Stream<'a> {
    parts: &'a mut [Part],
    part: usize,
    round: usize,
    block: usize,
    /// Whether the last block was passed to the simulation and is to be taken back.
    lent: bool,
    begun: Vec<(usize, f64)>,
}

impl Source for &mut Stream<'_> {
    type Error = Infallible;

    fn next(&mut self, block: &mut Block) -> Result<bool, Infallible> {
        if self.lent {
            std::mem::swap(&mut self.parts[self.part].blocks[self.block], block);
            self.block += 1;
        }
        while self.part < self.parts.len() {
            let part = &mut self.parts[self.part];
            if self.block < part.blocks.len() {
                if self.block == 0 {
                    self.begun.push((self.part, now()));
                }
                std::mem::swap(&mut part.blocks[self.block], block);
                self.lent = true;
                return Ok(true);
            }
            (self.block, self.round) = (0, self.round + 1);
            if self.round == part.times {
                (self.part, self.round) = (self.part + 1, 0);
            }
        }
        self.begun.push((self.part, now()));
        self.lent = false;
        block.clear();
        Ok(false)
    }
}

fn experiment(memory: &str, workload: &str, utilisation: bool) -> Experiment {
    let machine: Machine = machine::preset(MACHINE).expect("a built-in machine");
    Experiment {
        machine,
        memory: memory.parse::<ByteSize>().expect("a size"),
        layout: Layout::default(),
        fragmentation: Fragmentation::None,
        fragmentation_name: "none".to_string(),
        workload: workload.parse().expect("a workload"),
        workload_name: workload.to_string(),
        seed: 1,
        swap: ByteSize(0),
        utilisation,
    }
}

/// Returns the best time of each named part in seconds.
fn time(design: &str, memory: &str, utilisation: bool, parts: &mut [Part]) -> Vec<f64> {
    let design = design::designs::find(design).expect("a built-in design");
    let experiment = experiment(memory, "gups", utilisation);
    let count = parts.len();
    let mut stream = Stream { parts, part: 0, round: 0, block: 0, lent: false, begun: Vec::new() };
    run_stream(&experiment, &[design], 0, |_, _| Ok(&mut stream)).expect("a program's stream");
    let mut best = vec![f64::INFINITY; count];
    for pair in stream.begun.windows(2) {
        best[pair[0].0] = best[pair[0].0].min(pair[1].1 - pair[0].1);
    }
    best
}

/// Runs the parts under a design, without and with the count of touched pages, and prints the times.
fn report(design: &str, memory: &str, parts: &mut [Part], unit: &str) {
    let times = [false, true].map(|utilisation| time(design, memory, utilisation, parts));
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.name.is_empty()) {
        let [without, with] = [0, 1].map(|way: usize| part.accesses as f64 / times[way][at] / 1e6);
        println!("{:52}{without:10.1}{with:10.1} M {unit}/s", format!("{} ({design})", part.name));
    }
}

fn part(name: &'static str, times: usize, accesses: impl Iterator<Item = Access>) -> Part {
    let accesses: Vec<Access> = accesses.collect();
    let block = |piece: &[Access]| Block { accesses: piece.to_vec(), ..Block::default() };
    let blocks = accesses.chunks(BLOCK).map(block).collect();
    Part { name, blocks, accesses: accesses.len() as u64, times }
}

fn events(name: &'static str, accesses: u64, events: impl Iterator<Item = Event>) -> Part {
    let all: Vec<Event> = events.collect();
    let block = |piece: &[Event]| {
        let mut block = Block::default();
        piece.iter().for_each(|event| block.event(event.clone()));
        block
    };
    let blocks = all.chunks(BLOCK).map(block).collect();
    Part { name, blocks, accesses, times: 1 }
}

fn pages(first: u32, count: u32) -> Pages {
    Pages { first: Page(first), count }
}

fn map(count: u32) -> Event {
    Event::Map { pages: pages(0, count), address: 0, backing: Backing::Anonymous }
}

fn start(count: u32) -> Part {
    events("", 0, [Event::Spawn(Process(0)), map(count)].into_iter())
}

fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut rng = SplitMix64::new(7);
    for at in (1..order.len()).rev() {
        order.swap(at, below(rng.draw(), at as u64 + 1) as usize);
    }
    order
}

fn random(name: &'static str, pages: u64) -> Part {
    let mut rng = SplitMix64::new(1);
    let page = move |_| Access::write(Page(below(rng.draw(), pages) as u32));
    part(name, PASSES, (0..ACCESSES).map(page))
}

fn write(page: u32) -> Access {
    Access::write(Page(page))
}

fn read(page: u32) -> Access {
    Access::read(Page(page))
}

/// Accesses to mapped pages, and first touches of pages.
fn accesses() {
    let all = 1 << 24;
    let gups = || {
        vec![
            start(all),
            part("first touch of 64 GB, in order", 1, (0..all).map(write)),
            random("GUPS of 64 GB, steady", all.into()),
            events("", 0, [Event::Unmap(pages(0, all)), map(all)].into_iter()),
            part("first touch of 64 GB, at random", 1, shuffled(all).into_iter().map(write)),
        ]
    };
    report("base", "80G", &mut gups(), "accesses");
    report("linux-4.3", "80G", &mut gups()[..3], "accesses");
    report("freebsd", "80G", &mut gups()[..3], "accesses");

    // The streams are those of crates/shared/tlb-sim/benches/translate.rs.
    let mut rng = SplitMix64::new(1);
    let vertices: Vec<u32> = (0..ACCESSES)
        .map(|_| {
            let uniform = f64::from(below(rng.draw(), 1 << 24) as u32) / f64::from(1 << 24);
            (uniform.powi(3) * 65536.0) as u32
        })
        .collect();
    let page =
        |i: u32| if i.is_multiple_of(2) { (1 << 20) + i / 1024 } else { vertices[i as usize] };
    let stride = |per_page: u32| (0..ACCESSES).map(move |i| read((i / per_page) & 0xf_ffff));
    let runs = |name, count: u32| {
        let mut runs = part(name, PASSES, (0..1 << 20).map(read));
        runs.accesses *= u64::from(count);
        for block in &mut runs.blocks {
            block.counts = vec![count; block.accesses.len()];
        }
        runs
    };
    let mut parts = vec![
        start(1 << 21),
        part("", 1, (0..1 << 21).map(write)),
        part("PageRank mix", PASSES, (0..ACCESSES).map(page).map(read)),
        part("stream, every 8 bytes", PASSES, stride(512)),
        part("stream, every 64 bytes", PASSES, stride(64)),
        part("stream, every page", PASSES, stride(1)),
        runs("runs of 512 accesses", 512),
        runs("runs of 64 accesses", 64),
        random("at random in 128 KB", 32),
        random("at random in 4 MB", 1 << 10),
        random("at random in 32 MB", 1 << 13),
        random("at random in 4 GB", 1 << 20),
    ];
    report("base", "16G", &mut parts, "accesses");
}

/// Faults of base pages. Their frames are split from larger blocks, and merged again.
fn faults() {
    let all = 1 << 22;
    let order = shuffled(all);
    let discard = |&page: &u32| Event::Advise(pages(page, 1), Advice::DontNeed);
    let cycle = |order: &[u32]| {
        let mut cycle = part("", PASSES, order.iter().copied().map(write));
        let end = (
            cycle.blocks.last().map_or(0, |block| block.accesses.len()) as u32,
            Event::Unmap(pages(0, all)),
        );
        if let Some(block) = cycle.blocks.last_mut() {
            block.events.extend([end.clone(), (end.0, map(all))]);
        }
        cycle
    };
    let in_order: Vec<u32> = (0..all).collect();
    let mut parts = vec![
        start(all),
        Part { name: "touch in order, unmap at once (16 GB)", ..cycle(&in_order) },
        Part { name: "touch at random, unmap at once", ..cycle(&order) },
        part("touch in order", 1, (0..all).map(write)),
        events("discard pages one by one, at random", all.into(), order.iter().map(discard)),
        part("touch at random", 1, order.iter().copied().map(write)),
        events("discard pages one by one, in order", all.into(), in_order.iter().map(discard)),
    ];
    for design in ["base", "linux-4.3", "freebsd"] {
        report(design, "20G", &mut parts, "faults");
    }
}

/// The stream is generated during the run. The time is the difference of a long run and a short one.
fn generated() {
    let design = design::designs::find("base").expect("a built-in design");
    let seconds = |operations: &str| {
        let workload = format!("gups:size=64G,operations={operations},weight=1");
        let start = now();
        let reports = run(&experiment("80G", &workload, true), std::slice::from_ref(&design));
        let accesses = reports.expect("a workload that runs")[0].counters.accesses;
        (accesses as f64, now() - start)
    };
    let (short, long) = (seconds("1M"), seconds("33M"));
    let speed = (long.0 - short.0) / (long.1 - short.1) / 1e6;
    println!(
        "{:52}{:10}{speed:10.1} M accesses/s",
        "GUPS of 64 GB, steady, made on the way (base)", ""
    );
}

const DESIGNS: [&str; 6] =
    ["base", "linux-4.3", "ingens", "hawkeye-pmu", "freebsd", "quicksilver-sync-64"];

/// Six designs in one pass over the stream, against one pass for each design.
fn designs() {
    let designs = DESIGNS.map(|name| design::designs::find(name).expect("a built-in design"));
    let experiment = experiment("16G", "gups:size=8G,operations=16M,weight=1", true);
    let clock = |run: &dyn Fn() -> Vec<Report>| {
        let start = Instant::now();
        let reports = run();
        (start.elapsed().as_secs_f64(), reports)
    };
    let pass = |designs| run(&experiment, designs).expect("a workload that runs");
    let (together, one) = clock(&|| pass(&designs));
    let (apart, each) =
        clock(&|| designs.iter().flat_map(|one| pass(std::slice::from_ref(one))).collect());
    assert_eq!(one, each, "a pass is the same whoever shares it");
    println!("{:52}{together:10.2}{apart:10.2} s: in one pass, in six", "six designs");
}

/// Memory of the simulation in bytes: the growth of the process from the start of a program to its end. Each
/// measurement runs in a separate process, so memory of other measurements does not count.
fn memory() {
    for (regions, each) in [(1u32 << 14, 0u32), (1 << 14, 1), (1 << 14, 512)] {
        for utilisation in [false, true] {
            let words = [regions.to_string(), each.to_string(), utilisation.to_string()];
            let program = std::env::current_exe().expect("this program");
            let child = std::process::Command::new(program).arg("--grow").args(words).output();
            let text =
                String::from_utf8(child.expect("a second process").stdout).unwrap_or_default();
            let bytes: f64 = text.trim().parse().expect("a number of bytes");
            println!(
                "{:52}{:10.1} B per region of 2 MB, {:.2} per touched page{}",
                format!("memory: {regions} regions, {each} pages of each touched"),
                bytes / f64::from(regions),
                bytes / f64::from(regions * each.max(1)),
                if utilisation { ", touched pages counted" } else { "" }
            );
        }
    }
}

/// Runs in the second process: prints how much the process grows.
fn grow(regions: u32, each: u32, utilisation: bool) {
    let touched = (0..regions).flat_map(|region| (0..each).map(move |slot| region << 9 | slot));
    let mut parts = vec![start(regions << 9), part("", 1, touched.map(write))];
    let design = design::designs::find("base").expect("a built-in design");
    let experiment = experiment("40G", "gups", utilisation);
    let mut stream =
        Stream { parts: &mut parts, part: 0, round: 0, block: 0, lent: false, begun: Vec::new() };
    let before = resident();
    let mut end = Resident { stream: &mut stream, bytes: 0 };
    run_stream(&experiment, &[design], 0, |_, _| Ok(&mut end)).expect("a program's stream");
    println!("{}", end.bytes.saturating_sub(before));
}

/// A stream that records the size of the process at its end.
struct Resident<'a, 'b> {
    stream: &'a mut Stream<'b>,
    bytes: u64,
}

impl Source for &mut Resident<'_, '_> {
    type Error = Infallible;
    fn next(&mut self, block: &mut Block) -> Result<bool, Infallible> {
        let more = (&mut &mut *self.stream).next(block)?;
        if !more {
            self.bytes = resident();
        }
        Ok(more)
    }
}

/// Private memory of the process: without pages of the executable file, which are touched during the run.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split(' ').skip(1).map_while(|pages| pages.parse::<u64>().ok());
    let (all, of_files) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    (all - of_files) * rustix::param::page_size() as u64
}

/// A sweep on one thread and on two: wall time.
fn sweep() {
    let input = |name: &str| NamedInput { name: name.to_string(), content: name.to_string() };
    let plan = Plan {
        schema: PLAN_SCHEMA.to_string(),
        designs: DESIGNS.map(input).to_vec(),
        machines: vec![input(MACHINE)],
        workloads: ["gups:size=4G,operations=8M,weight=1", "gups:size=2G,operations=8M,weight=1"]
            .map(input)
            .to_vec(),
        fragmentations: ["none", "frag-50"].map(input).to_vec(),
        memories: vec![ByteSize::gib(8)],
        nodes: vec![Nodes::default()],
        movables: vec![ByteSize(0)],
        seeds: (1..=3).collect(),
    };
    let seconds = |jobs| {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::at(directory.path());
        store.write_plan(&plan, false).expect("a plan");
        let start = Instant::now();
        let pass = |group: &superpage_lab::sweep::Group<'_>| {
            let fragmentation = group.fragmentation.name.clone();
            let designs: Vec<_> = (group.members.iter())
                .map(|member| {
                    design::designs::find(&member.design.name).expect("a built-in design")
                })
                .collect();
            let experiment = Experiment {
                memory: group.memory,
                fragmentation: fragmentation.parse().expect("a level"),
                fragmentation_name: fragmentation,
                seed: group.seed,
                ..experiment("8G", &group.workload.name, true)
            };
            run(&experiment, &designs).map_err(|error| error.to_string())
        };
        let ran = superpage_lab::sweep::run(&store, &plan, Shard::WHOLE, jobs, pass, |_| {
            ControlFlow::Continue(())
        });
        (ran.expect("a sweep").done, start.elapsed().as_secs_f64())
    };
    let ((cells, one), (_, two)) = (seconds(1), seconds(2));
    println!(
        "{:52}{one:10.2}{two:10.2} s: one thread, two ({:.2} times as fast)",
        format!("a sweep of {cells} cells"),
        one / two
    );
}
