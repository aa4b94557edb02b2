//! Prints completions of the whole command. They include names of designs, machines and workloads, although a file may
//! be given instead.
//!
//! clap's flags accept any text for these arguments; only the completions use flags that accept the names. This code is
//! not in `cli`, which it would grow by 4 KB.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use cli::docs::{self, CompletionsArgs, Shell};
use cli::exit::{self, Done, Failure};
use workload::Workload;

/// Prints the completions.
pub fn completions(args: &CompletionsArgs, command: Command) -> Result<Done, Failure> {
    let script = docs::script(args, with_names(command, ""));
    exit::print(&or_files(args.shell, script))?;
    Ok(Done::Fine)
}

/// Returns the command, which is below the command `above`, with names as the possible values of its flags.
fn with_names(command: Command, above: &str) -> Command {
    let name = command.get_name().to_string();
    let offer = |arg: Arg| match names(&arg, &name, above) {
        Some(names) => arg.value_parser(PossibleValuesParser::new(names)),
        None => arg,
    };
    command.mut_args(offer).mut_subcommands(|below| with_names(below, &name))
}

/// Returns the names that a flag accepts, by its value name.
fn names(arg: &Arg, command: &str, above: &str) -> Option<Vec<&'static str>> {
    match (command, arg.get_value_names()?.first()?.as_str()) {
        // `faults` has its own machines.
        ("faults", "MACHINE") => Some(busy_machines()),
        (_, "DESIGN" | "A" | "B") => Some(designs()),
        (_, "MACHINE") => Some(machines()),
        (_, "WORKLOAD") if above == "lab" || above == "sweep" => Some(workloads()),
        ("workload", "NAME") | (_, "WORKLOAD" | "WORKLOADS") => Some(kernels()),
        _ => None,
    }
}

fn designs() -> Vec<&'static str> {
    design::designs::list().iter().map(|preset| preset.name).collect()
}

fn machines() -> Vec<&'static str> {
    machine::names().chain([tlb_probe::THIS]).collect()
}

fn busy_machines() -> Vec<&'static str> {
    fault_scaling::names().collect()
}

fn workloads() -> Vec<&'static str> {
    workload_streams::catalog().map(|entry| entry.name).collect()
}

fn kernels() -> Vec<&'static str> {
    Workload::ALL.iter().map(|workload| workload.name()).collect()
}

/// Makes the script complete files too. bash falls back to files by itself.
fn or_files(shell: Shell, script: String) -> String {
    let lists = [designs(), machines(), busy_machines(), workloads()];
    lists.iter().fold(script, |script, names| match shell {
        Shell::Zsh => {
            let names = names.join(" ");
            script.replace(&format!(":({names})"), &format!(":{{compadd {names};_files}}"))
        }
        Shell::Fish => {
            let first = format!("-a \"{}\\t", names[0]);
            script.replace(&format!("-r -f {first}"), &format!("-r -F {first}"))
        }
        _ => script,
    })
}
