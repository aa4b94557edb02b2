//! Fits constants of a machine of `fault-scaling` to the published rows that its file marks as fitted:
//! `cargo run --release -p superpage-lab --example fit_faults -- altix-128 transfer crowding thread`. With `--one-thread`,
//! to those with one thread: `node-memory zero-remote remote page zero`. What a fit without a size or a set of patches
//! predicts: `superpage lab faults --table --refit`. See docs/decisions/faults.md#4.

use fault_scaling::Constant;
use superpage_lab::tables::Role;
use superpage_lab::tables::faults;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = arguments.len();
    arguments.retain(|argument| argument != "--one-thread");
    let is_single = arguments.len() < given;
    let mut machine = fault_scaling::preset(&arguments[0]).expect("a machine");
    let constants = serde_json::json!(arguments[1..]);
    let constants: Vec<Constant> = serde_json::from_value(constants).expect("constants");
    let wants =
        |row: &faults::Published, role| role == Role::Fitted && (row.threads == 1) == is_single;
    let rows: Vec<_> = faults::lines(&machine, wants)
        .expect("it runs")
        .into_iter()
        .map(|line| line.published)
        .collect();
    let best = faults::descend(&mut machine, &constants, &rows.iter().collect::<Vec<_>>());
    for constant in constants {
        println!("{constant:?} {}", machine.constant(constant));
    }
    println!("mean square of the logarithms of {} rows: {:.6}", rows.len(), best.expect("it runs"));
    let comparison = faults::compare(&machine).expect("it runs");
    println!(
        "several threads off by {:?}, one thread by {:?}, held-out rows by {:?}, checks by {:?}",
        comparison.scaling_error,
        comparison.single_error,
        comparison.held_out_error,
        comparison.check_error
    );
}
