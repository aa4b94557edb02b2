//! The `superpage` command: flags, printing, exit codes.
//!
//! A library, because the program `superpage-lab` uses the same printing, output files and exit codes.
#![forbid(unsafe_code)]

mod advise;
mod background;
mod bench;
mod compare;
mod counters;
mod delivery;
pub mod design;
pub mod docs;
mod doctor;
mod evaluate;
pub mod exit;
mod exporter;
pub mod files;
mod groups;
pub mod lab;
mod legacy;
mod manage;
mod map;
mod measure;
mod pool;
pub mod progress;
mod record;
mod restore;
mod run;
mod targets;
mod tlb;
mod top;
mod trace;
mod verify_cost;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use operations::run::on_scratch_thread;
use operations::signals;

pub use compare::plans::in_words as plans_in_words;
pub use compare::text as comparison_text;
pub use pool::show::table;
pub use trace::words::event as trace_event;
pub use trace::{info as trace_info, open as open_trace};

/// Run Linux programs on superpages (huge pages) and measure the speedup.
///
/// Start with `superpage compare gups`, or `superpage compare -- ./your-program`.
#[derive(Debug, Parser)]
#[command(name = "superpage", version, max_term_width = 100, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Compare(Box<compare::Args>),
    Evaluate(evaluate::Args),
    Measure(Box<measure::Args>),
    VerifyCost(verify_cost::Args),
    Workload(workload::Args),
    Map(Box<map::Args>),
    Top(top::Args),
    Exporter(exporter::Args),
    Doctor(doctor::Args),
    Advise(Box<advise::Args>),
    Manage(Box<manage::Args>),
    Pool(pool::Args),
    Design(design::Args),
    Trace(trace::Args),
    Record(record::Args),
    Lab(lab::Args),
    Tlb(tlb::Args),
    Bench(bench::Args),
    Restore(restore::Args),
    Completions(docs::CompletionsArgs),
    Man(docs::ManArgs),
    #[command(flatten)]
    Legacy(legacy::Command),
}

/// Parses `run` alone, as [`Cli`] does. Building the tree of all commands would leave half-empty heap pages in this
/// process, which waits until the program ends.
#[derive(Debug, Parser)]
#[command(name = "superpage", version, max_term_width = 100, after_help = exit::HELP)]
struct OnlyRun {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(run::Args),
}

/// Commands that take a program after `--`.
const LAUNCHERS: [&str; 4] = ["compare", "map", "measure", "verify-cost"];

/// Returns the clap command with all flags and subcommands, except those of `lab`.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Stack that every command but `run` needs, in bytes.
const STACK: u64 = 1 << 20;
/// Stack that `run` needs, in bytes. Arguments, environment and their random offset are part of the main thread's stack.
const STACK_OF_RUN: u64 = 256 << 10;

/// Runs a command's main function, in a new thread if the main thread's stack limit (`ulimit -s`) is too small.
pub fn on_enough_stack(work: fn() -> ExitCode) -> ExitCode {
    on_stack(STACK, work)
}

/// Runs `work`, in a new thread if the main thread's stack limit is below `needed` bytes.
fn on_stack(needed: u64, work: fn() -> ExitCode) -> ExitCode {
    if sys::param::stack_limit().is_none_or(|limit| limit >= needed) {
        return work();
    }
    match std::thread::Builder::new().stack_size(8 << 20).spawn(work) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(error) => exit::finish(Err(signals::no_thread(error))),
    }
}

/// The main function.
pub fn main() -> ExitCode {
    operations::reporter::report_to(progress::Terminal);
    // `run` needs less stack than others, and a second thread would use memory while the program runs.
    let needed = match std::env::args_os().nth(1).is_some_and(|word| word == "run") {
        true => STACK_OF_RUN,
        false => STACK,
    };
    on_stack(needed, command_named)
}

fn command_named() -> ExitCode {
    if let Some(code) = legacy::under_own_name() {
        return code;
    }
    // `run` stays in memory as long as its program runs: limit its heap.
    if std::env::args_os().nth(1).is_some_and(|word| word == "run") {
        sys::mem::use_one_arena();
        return match on_scratch_thread(OnlyRun::try_parse) {
            Ok(OnlyRun { command: RunCommand::Run(args) }) => exit::finish(run::run(args)),
            Err(error) => exit::of_clap(&error, &LAUNCHERS),
        };
    }
    if let Some(lab) = lab::Args::of_help(std::env::args_os()) {
        return exit::finish(lab::run(lab));
    }
    if compare::help::is_advanced(std::env::args_os()) {
        return exit::finish(
            exit::print(&compare::help::all(Cli::command())).map(|()| exit::Done::Fine),
        );
    }
    let cli = on_scratch_thread(|| {
        let command = groups::grouped(Cli::command());
        let command = command.mut_subcommand("compare", compare::help::abridged);
        let matches = command.try_get_matches()?;
        Cli::from_arg_matches(&matches)
    });
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return exit::of_clap(&error, &LAUNCHERS),
    };
    let done = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::run(*args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Measure(args) => measure::run(*args),
        Command::VerifyCost(args) => verify_cost::run(args),
        Command::Workload(args) => workload::run(args),
        Command::Map(args) => map::run(*args),
        Command::Top(args) => top::run(args),
        Command::Exporter(args) => exporter::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Advise(args) => advise::run(*args),
        Command::Manage(args) => manage::run(*args),
        Command::Pool(args) => pool::run(args),
        Command::Design(args) => design::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Record(args) => record::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Tlb(args) => tlb::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Completions(args) => docs::completions_of_both(&args),
        Command::Man(args) => docs::man_of_both(&args),
        Command::Legacy(command) => return legacy::run(command),
    };
    exit::finish(done)
}
