//! Look-ups per second, on one core: `cargo bench -p superpage-tlb-sim`.
//!
//! The streams are the usual ones of TLB studies, with 16 Mi accesses each, generated beforehand. As in the engine, an
//! access to the same page as before is not looked up. Times are CPU times of this thread, the best of five passes.
//! Arguments: names of machines (default: three shapes), `--naive` to also measure the reference model.

use std::hint::black_box;

use machine::{Level, Machine, Size, preset};
use rustix::time::{ClockId, clock_gettime};
use superpage_tlb_sim::{Naive, Translate, Visitor, dispatch};

const ACCESSES: u32 = 16 << 20;

/// The page of each access, and the total size of the pages.
struct Stream {
    name: &'static str,
    pages: Vec<u32>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let naive = words.iter().any(|word| word == "--naive");
    let mut machines: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| *word != "--naive").collect();
    if machines.is_empty() {
        machines = vec!["cascade-lake", "zen2", "zen4"];
    }
    let streams = streams();
    print!("{:<24}", "M accesses/s");
    streams.iter().for_each(|stream| print!("{:>11}", stream.name));
    println!();
    for name in machines {
        let machine = preset(name).expect("the name of a built-in machine");
        for size in [Size::Base, Size::Large] {
            print!("{:<24}", format!("{name} {}", size.name()));
            for stream in &streams {
                let speed = dispatch(&machine, Bench { stream, size });
                print!("{speed:>11.0}");
            }
            println!();
        }
        if naive {
            print!("{:<24}", format!("{name} base, naive"));
            for stream in &streams {
                let speed = Bench { stream, size: Size::Base }.visit(Naive::new(&machine));
                print!("{speed:>11.0}");
            }
            println!();
        }
        walks(&machine, &streams);
    }
}

/// Prints the cost of walks for each stream, as a plausibility check of the cost model.
fn walks(machine: &Machine, streams: &[Stream]) {
    for size in [Size::Base, Size::Large] {
        print!("{:<24}", format!("  cycles/walk {}", size.name()));
        for stream in streams {
            struct Tallied<'a>(&'a Stream, Size);
            impl Visitor for Tallied<'_> {
                type Output = machine::Tally;
                fn visit<T: Translate>(self, mut tlb: T) -> Self::Output {
                    pass(&mut tlb, &self.0.pages, self.1);
                    tlb.tally()
                }
            }
            let tally = dispatch(machine, Tallied(stream, size));
            let most = u64::from(stream.pages.iter().copied().max().unwrap_or(0)) + 1;
            let pages = if size == Size::Base { most } else { 0 };
            let footprint = machine::Footprint::new(pages, most.div_ceil(512), pages << 13);
            let cycles = machine.walk_cycles(&tally, footprint) / tally.all_walks() as f64;
            print!("{cycles:>11.1}");
        }
        println!();
    }
}

struct Bench<'a> {
    stream: &'a Stream,
    size: Size,
}

impl Visitor for Bench<'_> {
    type Output = f64;

    fn visit<T: Translate>(self, mut tlb: T) -> f64 {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = now();
            black_box(pass(&mut tlb, &self.stream.pages, self.size));
            best = best.min(now() - start);
        }
        black_box(tlb.tally());
        self.stream.pages.len() as f64 / best / 1e6
    }
}

/// CPU time of this thread in seconds, which a busy machine affects less than wall time.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Makes one pass over a stream, block by block like the engine; returns the number of walks.
fn pass<T: Translate>(tlb: &mut T, pages: &[u32], size: Size) -> u64 {
    let mut walks = 0;
    for block in pages.chunks(16 << 10) {
        walks += T::vectorized(
            #[inline(always)]
            || {
                let (mut last, mut walks) = (u32::MAX, 0);
                for &page in block {
                    if page != last {
                        last = page;
                        walks += u64::from(tlb.look_up(page, size) == Level::Walk);
                    }
                }
                walks
            },
        );
    }
    walks
}

fn streams() -> Vec<Stream> {
    let mut state = 1u64;
    // Vigna's splitmix64, as in crates/shared/workload/src/rng.rs.
    let mut draw = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mut random = |name, pages: u64| {
        let pages =
            (0..ACCESSES).map(|_| ((u64::from(draw() as u32) * pages) >> 32) as u32).collect();
        Stream { name, pages }
    };
    // An edge list read in order, eight bytes per edge, and for each edge a vertex in 256 MiB. Most edges lead to few
    // vertices: the index is the third power of a uniform number.
    let vertices = random("", 1 << 24);
    let pagerank = (0..ACCESSES).zip(&vertices.pages).map(|(i, &vertex)| {
        let skewed = (f64::from(vertex) / f64::from(1 << 24)).powi(3);
        if i % 2 == 0 { (1 << 20) + i / 1024 } else { (skewed * 65536.0) as u32 }
    });
    let pagerank = Stream { name: "pagerank", pages: pagerank.collect() };
    let stride = |name, per_page: u32| Stream {
        name,
        pages: (0..ACCESSES).map(|i| (i / per_page) & 0xf_ffff).collect(),
    };
    vec![
        stride("8 B", 512),
        stride("64 B", 64),
        stride("page", 1),
        random("128 KiB", 32),
        random("4 MiB", 1 << 10),
        random("32 MiB", 1 << 13),
        random("gups 4G", 1 << 20),
        random("gups 64G", 1 << 24),
        pagerank,
    ]
}
