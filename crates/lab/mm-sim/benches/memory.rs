//! Speed of physical memory: `cargo bench -p superpage-mm-sim --bench memory`. Prints million operations per
//! second of CPU time (other programs may run beside it); one core, the best of seven.

use superpage_mm_sim::memory::{Frame, Memory, Mobility, Owner, Shape};
use units::ByteSize;
use workload::rng::{SplitMix64, below};

const BYTES: ByteSize = ByteSize::gib(16);

/// The same heap as the command's.
#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap::new();

fn main() {
    HEAP.advise();
    let frames = Memory::new(&Shape::simple(BYTES)).frames();
    let fill = |memory: &mut Memory| {
        while memory.allocate(0, Mobility::Movable, 0, false).is_some() {}
    };
    let mut order: Vec<u32> = (0..frames).collect();
    let mut rng = SplitMix64::new(1);
    for at in (1..order.len()).rev() {
        order.swap(at, below(rng.draw(), at as u64 + 1) as usize);
    }

    report("allocate all, one by one, with owners", frames, |memory| {
        while let Some(got) = memory.allocate(0, Mobility::Movable, 0, false) {
            memory.set_owner(got.frame, Owner::Page(trace::Page(got.frame.0)));
        }
    });
    report("allocate all and free all in order (pairs)", frames, |memory| {
        fill(memory);
        (0..frames).for_each(|frame| memory.free(Frame(frame), 0));
    });
    report("allocate and free at once (pairs)", frames, |memory| {
        for _ in 0..frames {
            let got = memory.allocate(0, Mobility::Movable, 0, false);
            memory.free(got.map_or(Frame(0), |got| got.frame), 0);
        }
    });
    let mut full = Memory::new(&Shape::simple(BYTES));
    fill(&mut full);
    from("free all at random", frames, &full, |memory| {
        order.iter().for_each(|&frame| memory.free(Frame(frame), 0));
    });
    let mut half = full.clone();
    order[..order.len() / 2].iter().for_each(|&frame| half.free(Frame(frame), 0));
    from("allocate from scattered frames", frames / 2, &half, fill);
    report("superpages (pairs)", 100 * (frames / 512), |memory| {
        let mut got = Vec::with_capacity(frames as usize / 512);
        for _ in 0..100 {
            got.extend(std::iter::from_fn(|| memory.allocate(9, Mobility::Movable, 0, false)));
            got.drain(..).for_each(|got| memory.free(got.frame, 9));
        }
    });
}

fn report(what: &str, operations: u32, run: impl FnMut(&mut Memory)) {
    from(what, operations, &Memory::new(&Shape::simple(BYTES)), run);
}

fn from(what: &str, operations: u32, start: &Memory, mut run: impl FnMut(&mut Memory)) {
    let seconds = (0..7).map(|_| {
        let mut memory = start.clone();
        // Owners' words are touched beforehand, so that the host's page faults are not measured.
        (0..memory.frames()).for_each(|frame| memory.set_owner(Frame(frame), Owner::Kernel));
        (0..memory.frames()).for_each(|frame| memory.set_owner(Frame(frame), Owner::None));
        let before = cpu_seconds();
        run(&mut memory);
        cpu_seconds() - before
    });
    let best = seconds.fold(f64::INFINITY, f64::min);
    println!("{what:45} {:8.1} M/s", f64::from(operations) / best / 1e6);
}

/// CPU time of this thread: the first number of its schedstat, in nanoseconds.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}
