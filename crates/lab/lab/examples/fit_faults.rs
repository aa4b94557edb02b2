//! Fits contention constants of a machine of `fault-scaling` to published rows: those that the machine's file marks as
//! fitted, or others: `cargo run --release -p superpage-lab --example fit_faults -- altix-128 transfer crowding thread
//! [baseline=4,8 ...]`. The search starts at the file's values, and goes up and down by ever smaller factors;
//! `transfer-near` is a third of `transfer`.
//!
//! With `--one-thread` instead of rows, prices (`page zero zero-remote remote`) are fitted to the rows with one thread.
//! `--leave-one-out` instead of rows uses all rows: each set of patches is predicted by a fit to the other sets (rows
//! with several threads), and each number of threads by a fit to the other numbers. See docs/decisions/faults.md#4.

use fault_scaling::Machine;
use superpage_lab::tables::Role;
use superpage_lab::tables::faults::{self, Published};

/// Returns a constant that may be fitted: up to three of contention, and prices of a fault on one CPU.
fn constant<'a>(machine: &'a mut Machine, name: &str) -> &'a mut u64 {
    match name {
        "thread" => &mut machine.costs.thread,
        "transfer" => &mut machine.costs.transfer,
        "crowding" => &mut machine.costs.crowding,
        "bandwidth" => &mut machine.node_bandwidth.0,
        "page" => &mut machine.costs.page,
        "zero" => &mut machine.costs.zero,
        "zero-remote" => &mut machine.costs.zero_remote,
        "remote" => &mut machine.costs.remote,
        other => panic!("no constant `{other}`"),
    }
}

/// Parses `baseline=2,4`: rows to fit to, instead of those of the machine's file.
fn fitted(row: &str) -> fault_scaling::Fitted {
    let (patches, threads) = row.split_once('=').expect("patches=threads");
    let threads = threads.split(',').map(|threads| threads.parse().expect("a number")).collect();
    fault_scaling::Fitted { patches: patches.to_string(), threads }
}

fn set(machine: &mut Machine, name: &str, value: u64) {
    *constant(machine, name) = value;
    machine.costs.transfer_near = machine.costs.transfer / 3;
    machine.costs.zero_bulk = machine.costs.zero;
}

/// The rows to which constants are fitted.
#[derive(Clone, Copy, PartialEq)]
enum To {
    /// The rows with one thread.
    OneThread,
    /// The rows with several threads that are marked as fitted.
    Several,
}

/// Returns the error of the rows to which constants are fitted: the mean square of the logarithms of simulated over
/// published.
fn error(machine: &Machine, to: To) -> f64 {
    let wants = |published: &Published, role: Role| {
        role == Role::Fitted && (published.threads == 1) == (to == To::OneThread)
    };
    let fitted = faults::lines(machine, wants).expect("it runs");
    let squares: f64 = fitted.iter().map(|line| line.ratio().ln().powi(2)).sum();
    squares / fitted.len().max(1) as f64
}

/// Error ratio above which a step does not count as an improvement.
const NOTICEABLE: f64 = 0.9995;

/// Descends from the machine's constants; returns the final error.
fn descend(machine: &mut Machine, names: &[String], to: To) -> f64 {
    let mut best = error(machine, to);
    let mut step = 1.3;
    while !names.is_empty() && step > 1.01 {
        let before = best;
        for name in names {
            for factor in [step, 1.0 / step] {
                let old = *constant(machine, name);
                set(machine, name, (old as f64 * factor) as u64);
                let tried = error(machine, to);
                if tried < best * NOTICEABLE {
                    best = tried;
                } else {
                    set(machine, name, old);
                }
            }
        }
        if best == before {
            step = f64::sqrt(step);
        }
    }
    best
}

/// Descends from the best point of a wide grid around the machine's constants, because the file's values were fitted to
/// all rows.
fn search(machine: &mut Machine, names: &[String]) {
    let mut grid = vec![machine.clone()];
    for name in names {
        let wider = grid.iter().flat_map(|machine| {
            [0.3, 1.0, 3.0].map(|factor| {
                let mut machine = machine.clone();
                let old = *constant(&mut machine, name);
                set(&mut machine, name, (old as f64 * factor) as u64);
                machine
            })
        });
        grid = wider.collect();
    }
    let tried = grid.into_iter().map(|machine| (error(&machine, To::Several), machine));
    let best = tried.min_by(|(one, _), (other, _)| one.total_cmp(other));
    *machine = best.expect("a grid").1;
    descend(machine, names, To::Several);
}

fn show(machine: &mut Machine, names: &[String]) {
    let values = names.iter().map(|name| (name, *constant(machine, name)));
    let values: Vec<String> = values
        .map(|(name, value)| match name.as_str() {
            "bandwidth" => format!("{name} {} MB/s", value / 1_000_000),
            _ => format!("{name} {} ns", value / 1000),
        })
        .collect();
    println!("{}", values.join(", "));
}

/// Selects some of the rows with several threads. A fit without these rows predicts them.
type Part<'a> = (String, Box<dyn Fn(&Published) -> bool + 'a>);

/// Predicts each part by a fit to the other parts.
fn leave_one_out(machine: &Machine, names: &[String], parts: &[Part]) {
    let mut logarithms = Vec::new();
    let off = |logarithms: &[f64]| {
        let sum: f64 = logarithms.iter().map(|off| off.abs()).sum();
        (sum / logarithms.len() as f64).exp_m1() * 100.0
    };
    for (part, is_left_out) in parts {
        let rows = faults::published(&machine.name).into_iter();
        let others = rows.filter(|row| !is_left_out(row));
        let others = others
            .map(|row| fault_scaling::Fitted { patches: row.patches, threads: vec![row.threads] });
        let mut fold = Machine { fitted: others.collect(), ..machine.clone() };
        search(&mut fold, names);
        let wants = |row: &Published, role| row.threads > 1 && role == Role::HeldOut;
        let held_out = faults::lines(&fold, wants).expect("it runs");
        let own: Vec<f64> = held_out.iter().map(|line| line.ratio().ln()).collect();
        let (rows, percent) = (own.len(), off(&own));
        println!("{part}: {rows} rows off by {percent:.1} % with constants of the others' rows:");
        show(&mut fold, names);
        logarithms.extend(own);
    }
    println!("all {}: off by {:.1} % in the geometric mean", logarithms.len(), off(&logarithms));
}

/// Predicts first sets of patches, then numbers of threads.
fn leave_each_out(machine: &Machine, names: &[String]) {
    let rows = faults::published(&machine.name);
    let several = || rows.iter().filter(|row| row.threads > 1);
    let mut patches: Vec<&String> = several().map(|row| &row.patches).collect();
    patches.dedup();
    let mut threads: Vec<u32> = several().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let of_patches = |name: &&String| -> Part {
        let name = (*name).clone();
        (name.clone(), Box::new(move |row| row.patches == name))
    };
    let of_threads = |threads: &u32| -> Part {
        let threads = *threads;
        (format!("{threads} threads"), Box::new(move |row| row.threads == threads))
    };
    leave_one_out(machine, names, &patches.iter().map(of_patches).collect::<Vec<_>>());
    leave_one_out(machine, names, &threads.iter().map(of_threads).collect::<Vec<_>>());
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut is_asked = |switch: &str| {
        let before = arguments.len();
        arguments.retain(|argument| argument != switch);
        arguments.len() < before
    };
    let is_cross = is_asked("--leave-one-out");
    let to = if is_asked("--one-thread") { To::OneThread } else { To::Several };
    let mut machine = fault_scaling::preset(&arguments[0]).expect("a machine");
    let (rows, names): (Vec<_>, Vec<_>) =
        arguments[1..].iter().cloned().partition(|argument| argument.contains('='));
    if is_cross {
        return leave_each_out(&machine, &names);
    }
    if !rows.is_empty() {
        machine.fitted = rows.iter().map(|row| fitted(row)).collect();
    }
    let best = descend(&mut machine, &names, to);
    show(&mut machine, &names);
    println!("mean square of the fitted rows' logarithms: {best:.5}");
    let comparison = faults::compare(&machine).expect("it runs");
    let (all, held_out) = (comparison.scaling_error, comparison.held_out_error);
    println!(
        "rows with several threads are off by {all:?}; those that are held out, by {held_out:?}"
    );
    println!("rows with one thread are off by {:?}", comparison.single_error);
    for peak in &comparison.peaks {
        println!("{peak:?}");
    }
}
