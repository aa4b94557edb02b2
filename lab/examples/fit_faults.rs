//! How far the machines of `lab::faults` are off their published rows, and which contention constants
//! would be nearest: `cargo run --release -p superpage-lab --example fit_faults -- altix-128 [fit]`.

use superpage_lab::faults::{self, Comparison, Machine};

/// The constants that may be fitted, at most three of a machine.
fn constant<'a>(machine: &'a mut Machine, name: &str) -> &'a mut u64 {
    match name {
        "thread" => &mut machine.costs.thread,
        "transfer" => &mut machine.costs.transfer,
        "crowding" => &mut machine.costs.crowding,
        "bandwidth" => &mut machine.node_bandwidth.0,
        other => panic!("no constant `{other}`"),
    }
}

/// The geometric mean error of the multi-threaded rows that constants are fitted to.
fn fit_error(comparison: &Comparison) -> f64 {
    let fitted: Vec<f64> = comparison
        .lines
        .iter()
        .filter(|line| line.row.threads > 1 && line.role == superpage_lab::tables::Role::Fitted)
        .map(|line| line.ratio().ln().powi(2))
        .collect();
    fitted.iter().sum::<f64>() / fitted.len().max(1) as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut machine = faults::preset(&arguments[0]).expect("a machine");
    let names = &arguments[1..];
    let error = |machine: &Machine| fit_error(&faults::compare(machine).expect("it runs"));
    let mut best = error(&machine);
    let mut step = 1.3;
    while !names.is_empty() && step > 1.01 {
        let before = best;
        for name in names {
            for factor in [step, 1.0 / step] {
                let old = *constant(&mut machine, name);
                *constant(&mut machine, name) = (old as f64 * factor) as u64;
                let tried = error(&machine);
                if tried < best {
                    best = tried;
                    println!("{name} = {} ns: {best:.5}", *constant(&mut machine, name) / 1000);
                } else {
                    *constant(&mut machine, name) = old;
                }
            }
        }
        if best == before {
            step = f64::sqrt(step);
        }
    }
    let comparison = faults::compare(&machine).expect("it runs");
    for line in &comparison.lines {
        let published = &line.published;
        println!(
            "{:12} {:5}M x{} {:4}  wall {:9.0} / {:9.0} = {:.2}   cpu {:9.0} / {:9.0} = {:.2} {:?} {} {}",
            published.patches,
            published.bytes >> 20,
            published.repetitions,
            published.threads,
            line.row.pages_per_wall_second,
            published.pages_per_wall_second,
            line.ratio(),
            line.row.pages_per_cpu_second,
            published.pages_per_cpu_second,
            line.row.pages_per_cpu_second / published.pages_per_cpu_second,
            line.role,
            line.row.events,
            line.row.skipped_faults,
        );
    }
    println!(
        "scaling {:?} held out {:?} single {:?}",
        comparison.scaling_error, comparison.held_out_error, comparison.single_error
    );
    for peak in &comparison.peaks {
        println!("{peak:?}");
    }
}
