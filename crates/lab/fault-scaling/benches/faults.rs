//! Speed of `fault-scaling`: simulated faults per second, and the time for a full table. Periods are skipped in one
//! measurement, and every event is simulated in the other. A simulated fault is one mapped base page, as in Lameter's
//! columns, whether its events were simulated or skipped. If one trap maps several pages, the number of traps is
//! printed too. `cargo bench -p superpage-fault-scaling --bench faults`

use std::time::Instant;

use superpage_fault_scaling::{Experiment, Machine, Patches, Stepping, Touches, preset, rows};
use units::ByteSize;

/// Enough memory for the periods of 512 CPUs to repeat.
const SIZE: ByteSize = ByteSize::gib(64);

fn experiment(machine: &Machine, patches: &Patches, size: ByteSize) -> Experiment {
    let kernel = patches.kernel(machine);
    Experiment {
        machine: machine.clone(),
        kernel,
        threads: 512,
        size,
        repetitions: 1,
        cache_lines: 1,
        touches: Touches::ALL,
    }
}

fn main() {
    let machine = preset("altix-128").expect("built in");
    println!("millions of simulated faults a second, 512 CPUs, {SIZE}");
    println!("{:32}{:>10}{:>10}{:>10}{:>10}", "", "skipped", "traps", "stepped", "traps");
    let mut sets = Patches::published();
    sets.push("numa-lock".parse().expect("a patch"));
    sets.push("per-vma,split-ptl,rss-split".parse().expect("patches"));
    for patches in sets {
        let rate = |stepping| {
            let began = Instant::now();
            let row = experiment(&machine, &patches, SIZE).run(stepping).expect("it runs");
            let seconds = began.elapsed().as_secs_f64() * 1e6;
            [row.pages as f64 / seconds, row.faults as f64 / seconds]
        };
        let (skipped, stepped) = (rate(Stepping::Skip), rate(Stepping::EachEvent));
        let [a, b, c, d] = [skipped[0], skipped[1], stepped[0], stepped[1]];
        println!("{:32}{a:>10.1}{b:>10.1}{c:>10.1}{d:>10.1}", patches.to_string());
    }
    let began = Instant::now();
    for patches in Patches::published() {
        let one = experiment(&machine, &patches, ByteSize::gib(1));
        let threads = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
        rows(&Experiment { repetitions: 3, ..one }, &threads).expect("it runs");
    }
    println!(
        "a full table, 1 GiB x 3, five sets of patches, 1 to 512 threads: {:.2?}",
        began.elapsed()
    );
}
