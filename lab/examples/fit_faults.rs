//! Which contention constants bring a machine of `lab::faults` nearest to the rows that its file says they are
//! fitted to, or to others: `cargo run --release -p superpage-lab --example fit_faults -- altix-128 transfer
//! crowding thread [baseline=4,8 ...]`. Goes up and down by ever smaller factors from the file's values;
//! `transfer-near` is a third of `transfer`.

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

/// The mean square of the logarithms by which the multi-threaded rows are off that constants are fitted to.
fn fit_error(comparison: &Comparison) -> f64 {
    let fitted: Vec<f64> = comparison
        .lines
        .iter()
        .filter(|line| line.row.threads > 1 && line.role == superpage_lab::tables::Role::Fitted)
        .map(|line| line.ratio().ln().powi(2))
        .collect();
    fitted.iter().sum::<f64>() / fitted.len().max(1) as f64
}

/// `baseline=2,4`: rows to fit to, instead of the machine's.
fn fitted(row: &str) -> faults::Fitted {
    let (patches, threads) = row.split_once('=').expect("patches=threads");
    let threads = threads.split(',').map(|threads| threads.parse().expect("a number")).collect();
    faults::Fitted { patches: patches.to_string(), threads }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut machine = faults::preset(&arguments[0]).expect("a machine");
    let (rows, names): (Vec<_>, Vec<_>) =
        arguments[1..].iter().cloned().partition(|argument| argument.contains('='));
    if !rows.is_empty() {
        machine.fitted = rows.iter().map(|row| fitted(row)).collect();
    }
    let error = |machine: &Machine| fit_error(&faults::compare(machine).expect("it runs"));
    let mut best = error(&machine);
    let mut step = 1.3;
    while !names.is_empty() && step > 1.01 {
        let before = best;
        for name in &names {
            for factor in [step, 1.0 / step] {
                let old = *constant(&mut machine, name);
                *constant(&mut machine, name) = (old as f64 * factor) as u64;
                machine.costs.transfer_near = machine.costs.transfer / 3;
                let tried = error(&machine);
                if tried < best {
                    best = tried;
                    println!("{name} = {} ns: {best:.5}", *constant(&mut machine, name) / 1000);
                } else {
                    *constant(&mut machine, name) = old;
                    machine.costs.transfer_near = machine.costs.transfer / 3;
                }
            }
        }
        if best == before {
            step = f64::sqrt(step);
        }
    }
    let comparison = faults::compare(&machine).expect("it runs");
    println!("{:#?}", machine.costs);
    println!("a second: {}", machine.node_bandwidth);
    let (all, held_out) = (comparison.scaling_error, comparison.held_out_error);
    println!(
        "rows with several threads are off by {all:?}; those that are held out, by {held_out:?}"
    );
    for peak in &comparison.peaks {
        println!("{peak:?}");
    }
}
